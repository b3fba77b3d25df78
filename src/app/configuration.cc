#include "app/configuration.h"

#include "control/control.h"
#include "control/traffic.h"
#include "net/local_addresses.h"
#include "directive/order.h"

namespace idetcd::app {

namespace {

using resolve::Block;
using resolve::Chain;
using resolve::Process;

std::string bannerLine(const config::ServerKey& key, const std::vector<SocketAddress>& addresses) {
  std::string line = key.text;
  for (const SocketAddress& address : addresses) {
    line += fmt::format("{}{}", &address == addresses.data() ? " on " : " ", address.ip.toString());
  }
  return line;
}

// Of blocks on one address none gets less than it asks for.
resolve::TcpLimits looser(const resolve::TcpLimits& a, const resolve::TcpLimits& b) {
  return {.max_per_client = std::max(a.max_per_client, b.max_per_client),
          .idle = std::max(a.idle, b.idle),
          .first = std::max(a.firstTime(), b.firstTime()),
          .write = std::max(a.writeTime(), b.writeTime())};
}

}  // namespace

Result<Configuration> Configuration::make(Plan plan, Process& process) {
  for (const std::string& warning : plan.warnings) process.log.warning("{}", warning);
  auto& control = process.state<control::Control>();
  control.begin();
  process.state<control::Traffic>().addTo(control);
  directive::addControlPaths(process);
  Configuration configuration;
  for (Block& block : plan.blocks) {
    if (auto added = configuration.add(std::move(block), process); !added) return tl::unexpected(added.error());
  }
  return configuration;
}

Result<void> Configuration::add(Block block, Process& process) {
  const auto addresses = boundAddresses(block);
  if (!addresses) return tl::unexpected(addresses.error());
  ListenOptions options;
  for (const auto& [type, directive] : block.directives) {
    options.workers = std::max(options.workers, directive->workerCount());
    if (resolve::TcpLimits tcp = options.tcp.value_or(resolve::TcpLimits{}); directive->limitTcp(tcp))
      options.tcp = tcp;
  }
  for (const auto& [type, directive] : block.directives) {
    if (auto shared = directive->prepare(process, block); !shared) return shared;
    if (auto tls = directive->tlsServer()) options.tls = std::move(tls);
  }
  auto& control = process.state<control::Control>();
  for (const auto& [type, directive] : block.directives) {
    if (auto missing = directive->readiness()) control.addReadiness(std::string(type->name), std::move(missing));
  }
  for (const config::ServerKey& key : block.keys) {
    banner_.push_back(bannerLine(key, *addresses));
    for (SocketAddress address : addresses->empty() ? net::anyAddresses(key.port) : *addresses) {
      address.port = key.port;
      if (auto added = addEndpoint(address, options, key); !added) return added;
    }
  }
  blocks_.push_back(std::move(block));
  return {};
}

// Of the block that is added next.
Result<void> Configuration::addEndpoint(const SocketAddress& address, const ListenOptions& options,
                                        const config::ServerKey& key) {
  auto endpoint = std::find_if(endpoints_.begin(), endpoints_.end(),
                               [&address](const Endpoint& e) { return e.listen.address == address; });
  if (endpoint == endpoints_.end()) {
    endpoint = endpoints_.insert(
        endpoint, {.listen = {.address = address, .make_router = {}}, .scheme = key.scheme, .zones = {}});
  }
  assert(endpoint->scheme == key.scheme || key.port == 0);  // the Corefile's parser sees to it
  if (key.scheme != config::Scheme::kDns) {
    auto& carrier = endpoint->listen.carrier;
    if (carrier.tls && carrier.tls != options.tls)
      return fail(fmt::format("plugin/tls: server blocks on {} differ in `tls`", address.toString()));
    carrier = {.tls = options.tls, .is_https = key.scheme == config::Scheme::kHttps};
  }
  endpoint->listen.workers = std::max(endpoint->listen.workers, options.workers);
  if (options.tcp) {
    endpoint->listen.tcp = endpoint->has_tcp ? looser(endpoint->listen.tcp, *options.tcp) : *options.tcp;
    endpoint->has_tcp = true;
  }
  endpoint->zones.emplace_back(key.zone, blocks_.size());
  return {};
}

Result<void> Configuration::listen(server::Server& server, Process& process) {
  Chains chains;  // only until the listeners own them
  std::vector<server::Listen> listens;
  for (const Endpoint& endpoint : endpoints_) {
    server::Listen listen = endpoint.listen;
    listen.make_router = [this, &process, &endpoint, &chains](
                             size_t worker, net::EventLoop& loop) -> Result<std::shared_ptr<const resolve::Router>> {
      std::vector<resolve::Router::Zone> zones;
      std::shared_ptr<resolve::QueryMeter> unrouted;  // if some block counts its queries
      for (const auto& [name, block] : endpoint.zones) {
        auto& chain = chains[{worker, block}];
        if (!chain) {
          auto made = makeChain(blocks_[block], worker, loop, process);
          if (!made) return tl::unexpected(made.error());
          chain = std::move(*made);
        }
        const auto& meters = chain->parts.meters;
        zones.push_back({.name = name,
                         .chain = chain,
                         .meter = meters ? meters(endpoint.listen.address, endpoint.scheme, &name) : nullptr});
        if (meters && !unrouted) unrouted = meters(endpoint.listen.address, endpoint.scheme, nullptr);
      }
      if (worker == 0 && endpoint.scheme == config::Scheme::kDns)
        routes_.push_back({.address = endpoint.listen.address, .zones = zones});
      return std::make_shared<const resolve::Router>(std::move(zones), process.hash_seed, std::move(unrouted),
                                                     process.state<resolve::LoopSamples>().of(worker));
    };
    listens.push_back(std::move(listen));
  }
  const size_t workers = server.workers().size();
  auto opened = server.open(listens);
  chains.clear();
  if (!opened) {
    routes_.clear();
    server.closeWorkers(workers);
  }
  return opened;
}

Result<std::shared_ptr<const Chain>> Configuration::makeChain(const Block& block, size_t worker, net::EventLoop& loop,
                                                              Process& process) const {
  // Its handles belong to the loop, whichever thread lets it go last.
  const std::shared_ptr<Chain> chain(new Chain, [&loop](Chain* old) {
    if (loop.isLoopThread()) {
      delete old;
    } else {
      loop.post([old] { delete old; });
    }
  });
  chain->parts.cookies = process.cookies;
  const std::vector<SocketAddress> own = listening(block);
  for (const auto& [type, directive] : block.directives) {
    const resolve::LoopContext context{
        .process = process, .block = block, .worker = worker, .loop = loop, .listening = own};
    chain->setDirective(process.names.idOf(type->name));
    if (auto added = directive->addTo(*chain, context); !added) return tl::unexpected(added.error());
  }
  return chain;
}

// Another block of ours is a server like any other: it has zones and upstream servers of its own.
std::vector<SocketAddress> Configuration::listening(const Block& block) const {
  std::vector<SocketAddress> addresses;
  for (const Endpoint& endpoint : endpoints_) {
    const SocketAddress& address = endpoint.listen.address;
    const bool ours = std::any_of(block.keys.begin(), block.keys.end(),
                                  [&address](const config::ServerKey& key) { return key.port == address.port; });
    if (ours) addresses.push_back(address);
  }
  return addresses;
}

void Configuration::start() const {
  for (const Block& block : blocks_) {
    for (const auto& [type, directive] : block.directives) directive->start();
  }
}

void Configuration::stop() const {
  for (const Block& block : blocks_) {
    for (const auto& [type, directive] : block.directives) directive->stop();
  }
}

}  // namespace idetcd::app
