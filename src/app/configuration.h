// A plan carried out: its blocks with all that their directives share, and what listens where. Built beside the one
// that is in use, on any thread; start(), stop() and the end of it on the first loop's.
#pragma once

#include "app/plan.h"
#include "base/ip_address.h"
#include "base/result.h"
#include "resolve/directive.h"
#include "resolve/router.h"
#include "server/server.h"

namespace idetcd::app {

class Configuration {
 public:
  Configuration() = default;

  // May block. The error is one line. Until it is accepted (resolve::ProcessState) nothing is felt outside.
  static Result<Configuration> make(Plan plan, resolve::Process& process);

  // Has `server` listen for this configuration instead of what it listens for. On the threads of Server::open().
  Result<void> listen(server::Server& server, resolve::Process& process);

  // The routes of each listener for UDP and TCP, once: the first caller takes them. After listen().
  std::vector<resolve::ListenerRoutes> takeRoutes() { return std::exchange(routes_, {}); }

  void start() const;
  void stop() const;

  // One line a server, "zone.:port" and the addresses where not all are meant.
  const std::vector<std::string>& banner() const { return banner_; }

 private:
  // The zones of one address and port, each with the index of its block.
  struct Endpoint {
    server::Listen listen;
    config::Scheme scheme = config::Scheme::kDns;
    std::vector<std::pair<dns::Name, size_t>> zones;
    bool has_tcp = false;  // a block has said `listen.tcp`
  };
  // A block's listening addresses.
  struct ListenOptions {
    size_t workers = 1;
    std::optional<resolve::TcpLimits> tcp;
    std::shared_ptr<const net::TlsServer> tls;
  };
  // Chains that were made already, by worker and index of the block.
  using Chains = std::map<std::pair<size_t, size_t>, std::shared_ptr<const resolve::Chain>>;

  Result<void> add(resolve::Block block, resolve::Process& process);
  Result<void> addEndpoint(const SocketAddress& address, const ListenOptions& options, const config::ServerKey& key);
  Result<std::shared_ptr<const resolve::Chain>> makeChain(const resolve::Block& block, size_t worker,
                                                          net::EventLoop& loop, resolve::Process& process) const;
  std::vector<SocketAddress> listening(const resolve::Block& block) const;

  std::vector<resolve::Block> blocks_;
  std::vector<Endpoint> endpoints_;
  std::vector<std::string> banner_;
  std::vector<resolve::ListenerRoutes> routes_;
};

}  // namespace idetcd::app
