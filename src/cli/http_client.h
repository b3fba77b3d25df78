// One request of HTTP/1.1 over a Unix socket, blocking, within a time. Any thread.
#pragma once

#include "base/result.h"

namespace idetcd::cli {

struct HttpResponse {
  int status = 0;
  std::string body;
};

enum class Method : uint8_t { kGet, kPost };

// What went wrong before there was a response.
struct HttpError {
  std::string message;
  int error = 0;  // the errno of connect(2); 0: connected
};

// `target`: path and query, encoded. The whole exchange has `patience`.
tl::expected<HttpResponse, HttpError> ask(const std::string& socket_path, Method method, std::string_view target,
                                          std::chrono::milliseconds patience);

// Whether somebody may: false only where connect(2) says that nobody does, as at what a killed server has left behind.
bool isListenedAt(const std::string& socket_path);

// Reads the bytes of a response, in whatever pieces they come. One thread.
class ResponseReader {
 public:
  static constexpr size_t kMaxHead = 64 << 10;
  static constexpr size_t kMaxBody = 64 << 20;

  enum class Progress : uint8_t { kIncomplete, kComplete, kMalformed };

  Progress read(std::string_view bytes);
  // The server has closed the connection: complete where no length was said.
  Progress end();
  // After kComplete.
  HttpResponse take() { return std::move(response_); }

 private:
  Progress readHead();

  std::string head_;
  bool has_head_ = false;
  bool has_length_ = false;
  size_t length_ = 0;
  HttpResponse response_;
};

// For the value of a parameter of a target: RFC 3986.
std::string percentEncoded(std::string_view text);

}  // namespace idetcd::cli
