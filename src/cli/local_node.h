// The server on this machine, asked over its Unix socket (control/control.h). The socket is looked for anew at each
// request: what waits may be there before the server is. Any thread.
#pragma once

#include "base/json.h"
#include "cli/failure.h"

namespace idetcd::cli {

class LocalNode {
 public:
  static constexpr std::chrono::milliseconds kPatience{30'000};     // it may write to etcd
  static constexpr std::chrono::milliseconds kReadPatience{6'000};  // it reads etcd, for which it takes 5 s at most

  // Without a path it is the only socket of `directory`.
  LocalNode(std::optional<std::string> socket, std::string directory)
      : socket_(std::move(socket)), directory_(std::move(directory)) {}

  // What it answers, an object. A refusal is a failure with its line and status.
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
