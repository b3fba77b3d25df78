// Requests and responses of HTTP/1.1 (RFC 9110, RFC 9112), as far as endpoints for operators need them. Plain values.
#pragma once

#include "base/std.h"

namespace idetcd::http {

// GET or HEAD, and POST on a Unix socket; others are refused before a handler sees them.
struct Request {
  std::string path;    // as it was sent, without the query: "/metrics"
  std::string query;   // what is behind '?'
  std::string accept;  // the field Accept
  std::string host;    // the field Host, as it was sent: "[::1]:9153"; empty in HTTP/1.0
  bool is_head = false;
  bool is_post = false;      // something is to be changed
  bool keeps_alive = false;  // the connection stays open for another request
};

struct Response {
  int status = 200;
  std::string body = {};
  std::string content_type = "text/plain; charset=utf-8";
  // Other fields. REQUIRES: text without CR and LF, and none of those that the server writes itself: Date, Allow,
  // Connection and those of the content.
  std::vector<std::pair<std::string_view, std::string>> fields = {};
};

// Answers the requests for a path. Called on the HTTP thread, one request at a time: it must not wait for anything,
// and keeps alive what it uses. For HEAD it answers as for GET; the body is left out.
using Handler = std::function<Response(const Request& request)>;

// Answers a request whose handler has returned. Any thread, also when the server is gone. The first call counts; where all
// copies are gone without one, the client gets 500.
using Reply = std::function<void(Response response)>;
// As Handler, where the answer has to be waited for. `request` is gone when it returns. The client waits for
// Server::kLatePatience at most; other requests are answered meanwhile.
using LateHandler = std::function<void(const Request& request, Reply reply)>;

// Reads requests from the bytes of a connection, in whatever pieces they come. One thread.
//
// A request is refused (RFC 9112) if it is not HTTP/1.0 or HTTP/1.1, has another method than GET or HEAD (or POST, where
// that is allowed), a body, no Host in HTTP/1.1, or a head of more than kMaxHead bytes. After a refusal the rest of the
// connection has no meaning.
class RequestReader {
 public:
  static constexpr size_t kMaxHead = 8192;  // request line and fields

  enum class Progress : uint8_t { kIncomplete, kComplete, kRefused };

  enum class Post : bool { kRefused, kAllowed };

  explicit RequestReader(Post post = Post::kRefused);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  // `bytes` begin with what the last call has left. After kIncomplete it is called again when there are more; after
  // kComplete the next bytes are another request.
  Progress read(std::string_view bytes);
  // How many of the last call's bytes were taken, from the front.
  size_t taken() const { return taken_; }

  // After kComplete.
  const Request& request() const { return request_; }
  // After kRefused: the status that says why.
  int status() const { return status_; }

 private:
  struct Parser;
  Progress refuse(int status);
  Progress finish();

  const Post post_;
  std::unique_ptr<Parser> parser_;  // of the request that is being read
  size_t taken_ = 0;
  size_t head_bytes_ = 0;  // of this request, in earlier calls
  Request request_;
  int status_ = 0;
};

}  // namespace idetcd::http
