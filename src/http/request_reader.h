// Reads requests from the bytes of a connection, in whatever pieces they come. One thread.
//
// A request is refused (RFC 9112) if it is not HTTP/1.0 or HTTP/1.1, has another method than GET or HEAD (or POST, where
// that is allowed), a body, no Host in HTTP/1.1, or a head of more than kMaxHead bytes. After a refusal the rest of the
// connection has no meaning.
#pragma once

#include "http/message.h"

namespace idetcd::http {

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
