// Serves what can be read of a store, ranges and watches, to clients of etcd's API (client.h, Client::Options::pinned): over
// TLS, with a certificate of its own, to who carries its token. Both are made anew with each server, and are told to clients
// by a way that they trust.
//
// A call without the token is refused before anything of it is read, and counted. Connections are bounded in number, and
// those without a call in time. A client that reads slowly holds up itself alone: of a watch one batch is under way.
#pragma once

#include "base/ip_address.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/result.h"
#include "etcd/completion_thread.h"
#include "store/store.h"

namespace idetcd::etcd {

class Server {
 public:
  struct Options {
    std::vector<IpAddress> addresses;   // to listen on; a free port of each
    size_t max_calls = 256;             // more at once are refused; a watch is one
    size_t max_connections = 512;       // more at once are closed, whoever makes them
    std::chrono::seconds handshake{5};  // how long one may take for its TLS handshake
    std::chrono::seconds idle{10};      // how long one is kept that has no call
    metrics::Scope metrics{};
  };

  // Completion thread. The error is one line: an address cannot be listened on.
  static Result<std::unique_ptr<Server>> make(CompletionThread& thread, std::shared_ptr<store::Source> source,
                                              Options options, const Logger& log);
  // Completion thread. Calls end soon after it.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::vector<std::string>& endpoints() const;  // https://ADDRESS:PORT
  const std::string& certificate() const;             // PEM
  const std::string& token() const;
  size_t watches() const;  // that are open. Completion thread

 private:
  struct Impl;
  explicit Server(std::shared_ptr<Impl> impl);
  const std::shared_ptr<Impl> impl_;
};

}  // namespace idetcd::etcd
