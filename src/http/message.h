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

}  // namespace idetcd::http
