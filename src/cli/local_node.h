// The server on this machine, asked over its Unix socket (control/control.h). The socket is looked for anew at each
// request: a command that waits may start before the server. Any thread.
#pragma once

#include "base/json.h"
#include "cli/text.h"

namespace idetcd::cli {

// One request of HTTP/1.1 over a Unix socket, blocking, within a time. Any thread.
struct HttpResponse {
  int status = 0;
  std::string body;
};

enum class Method : uint8_t { kGet, kPost };

// The error of a request without a response.
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

class LocalNode {
 public:
  static constexpr std::chrono::milliseconds kPatience{30'000};     // it may write to etcd
  static constexpr std::chrono::milliseconds kReadPatience{6'000};  // it reads etcd, for which it takes 5 s at most

  // Without a path it is the only socket of `directory`.
  LocalNode(std::optional<std::string> socket, std::string directory)
      : socket_(std::move(socket)), directory_(std::move(directory)) {}

  // The server's answer, an object. A refusal is a failure with its line and status.
  Reply<nlohmann::json> get(std::string_view target, std::chrono::milliseconds patience = kPatience) const;
  Reply<nlohmann::json> post(std::string_view target, std::chrono::milliseconds patience = kPatience) const;

  Reply<std::string> socketPath() const;
  // Where it answers DNS, which the socket's name says: PORT.sock.
  Reply<uint16_t> port() const;

 private:
  std::optional<std::string> socket_;
  std::string directory_;
};

}  // namespace idetcd::cli
