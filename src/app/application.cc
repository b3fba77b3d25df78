#include "app/application.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "cluster/node_address.h"
#include "cluster/watched_ranges.h"
#include "net/local_addresses.h"

namespace idetcd::app {

namespace {

// Addresses and interfaces as addresses.
Result<std::vector<SocketAddress>> resolveAddresses(const std::vector<std::string>& texts) {
  std::vector<SocketAddress> addresses;
  for (const std::string& text : texts) {
    if (const auto ip = IpAddress::parse(text)) {
      addresses.push_back({.ip = *ip});
      continue;
    }
    const auto of_interface = net::interfaceAddresses(text);
    if (!of_interface)
      return fail(fmt::format("bind: '{}' is no IP address, and there is {}", text, of_interface.error().message));
    addresses.insert(addresses.end(), of_interface->begin(), of_interface->end());
  }
  return addresses;
}

// Where a block listens; empty: on every address.
Result<std::vector<SocketAddress>> bindAddresses(const BindPlan& plan) {
  auto listen = resolveAddresses(plan.listen);
  if (!listen) return listen;
  const auto except = resolveAddresses(plan.except);
  if (!except) return except;
  std::vector<SocketAddress> addresses;
  for (const SocketAddress& address : *listen) {
    const auto same = [&address](const SocketAddress& other) { return other.ip == address.ip; };
    if (std::none_of(except->begin(), except->end(), same) && std::none_of(addresses.begin(), addresses.end(), same)) {
      addresses.push_back(address);
    }
  }
  if (addresses.empty() && !plan.listen.empty()) return fail("bind: no address is left to listen on");
  return addresses;
}

std::string hostName() {
  char name[256];
  return gethostname(name, sizeof(name)) == 0 ? std::string(name, strnlen(name, sizeof(name))) : std::string();
}

// `state`, else what systemd has made for the service (the first of systemd.exec(5)'s list).
std::string stateDirectory(const ClusterPlan& plan) {
  if (!plan.state_directory.empty()) return plan.state_directory;
  const char* of_service = std::getenv("STATE_DIRECTORY");
  if (of_service == nullptr) return {};
  const std::string_view list(of_service);
  return std::string(list.substr(0, list.find(':')));
}

std::string bannerLine(const config::ServerKey& key, const std::vector<SocketAddress>& addresses) {
  std::string line = key.text;
  for (const SocketAddress& address : addresses) {
    line += fmt::format("{}{}", &address == addresses.data() ? " on " : " ", address.ip.toString());
  }
  return line;
}

}  // namespace

Application::Application(Logger log)
    : log_(std::move(log)),
      hash_seed_(randomHashSeed()),
      upstream_descriptors_(std::make_shared<net::DescriptorBudget>(net::DescriptorBudget::shareOfLimit())),
      server_(loop_, epochs_) {
  for (const int signal : kHandledSignals) {
    signals_.push_back(std::make_unique<net::SignalWatcher>(loop_, signal, [this, signal] { onSignal(signal); }));
  }
}

Application::~Application() {
  if (releaser_.joinable()) releaser_.join();
  joinRetired();
  for (const auto& cluster : clusters_) cluster->member->stop(std::chrono::milliseconds(0));
  if (etcd_thread_) etcd_thread_->stop();
  configuration_ = {};
  server_.close();
  clusters_.clear();
}

Result<void> Application::open(const Plan& plan) {
  auto configuration = configure(plan);
  if (!configuration) return tl::unexpected(configuration.error());
  if (auto listening = listen(*configuration); !listening) return listening;
  configuration_ = std::move(*configuration);
  clusters_ = std::move(configuration_.clusters);
  return {};
}

Result<Application::Configuration> Application::configure(const Plan& plan) {
  for (const std::string& warning : plan.warnings) log_.warning("{}", warning);
  Configuration configuration;
  for (const BlockPlan& block : plan.blocks) {
    if (auto added = addBlock(configuration, block); !added) return tl::unexpected(added.error());
  }
  return configuration;
}

Result<void> Application::addBlock(Configuration& configuration, const BlockPlan& plan) {
  const auto addresses = bindAddresses(plan.bind);
  if (!addresses) return tl::unexpected(addresses.error());
  auto block = buildBlock(configuration, plan);
  if (!block) return tl::unexpected(block.error());
  const size_t index = configuration.blocks.size();
  configuration.blocks.push_back(std::move(*block));
  for (const config::ServerKey& key : plan.keys) {
    configuration.banner.push_back(bannerLine(key, *addresses));
    std::vector<SocketAddress> listen = addresses->empty() ? server::anyAddresses(key.port) : *addresses;
    for (SocketAddress& address : listen) {
      address.port = key.port;
      addEndpoint(configuration, {.address = address, .workers = plan.workers, .make_resolver = {}}, key.zone, index);
    }
  }
  return {};
}

void Application::addEndpoint(Configuration& configuration, const server::Listen& listen, const dns::Name& zone,
                              size_t block) {
  std::vector<Endpoint>& endpoints = configuration.endpoints;
  auto endpoint = std::find_if(endpoints.begin(), endpoints.end(),
                               [&listen](const Endpoint& e) { return e.listen.address == listen.address; });
  if (endpoint == endpoints.end()) endpoint = endpoints.insert(endpoint, {.listen = listen, .zones = {}});
  endpoint->listen.workers = std::max(endpoint->listen.workers, listen.workers);
  endpoint->zones.emplace_back(zone, block);
}

Result<Application::Block> Application::buildBlock(Configuration& configuration, const BlockPlan& plan) {
  Block block;
  block.plan = plan;
  if (!plan.log.empty()) block.log = std::make_shared<const resolve::QueryLog>(plan.log, log_);
  if (plan.errors) {
    auto errors = resolve::ErrorLog::make(plan.consolidate, log_.named("plugin/errors"));
    if (!errors) return tl::unexpected(errors.error());
    block.errors = std::move(*errors);
  }
  Cluster* cluster = nullptr;
  if (plan.cluster) {
    const auto added = addCluster(configuration, *plan.cluster, plan.keys.front().port);
    if (!added) return tl::unexpected(added.error());
    cluster = *added;
    resolve::ClusterZone::Options options{.fallthrough = plan.cluster->fallthrough};
    if (plan.hosts || !plan.forward.empty()) options.sources = endpointNames(*plan.cluster);
    block.cluster = std::make_shared<const resolve::ClusterZone>(*cluster->store, std::move(options));
  }
  if (plan.nsid || cluster != nullptr) block.identity = makeIdentity(plan, cluster);
  if (!plan.acl.empty()) block.acl = std::make_shared<const resolve::Acl>(plan.acl);
  if (plan.hosts) {
    block.hosts = std::make_shared<const resolve::HostsSource>(*plan.hosts, hash_seed_, log_.named("plugin/hosts"));
  }
  return block;
}

// As which this machine may ask for the hosts of etcd's endpoints: itself, if it is the machine's resolver. A short
// name is completed by a search list, of which only the cluster's own zone can be in the way.
std::vector<dns::Name> Application::endpointNames(const ClusterPlan& plan) {
  std::vector<dns::Name> names;
  for (const std::string& endpoint : plan.endpoints) {
    const std::string host = etcd::Client::endpointHost(endpoint);
    if (IpAddress::parse(host) || host == "localhost") continue;
    if (const auto name = dns::Name::parse(host)) names.push_back(*name);
    if (host.find('.') != std::string::npos) continue;
    if (const auto name = dns::Name::parse(host + "." + plan.pattern.zone().toString())) names.push_back(*name);
  }
  return names;
}

// What a block says that it is to have forwarded: its own zones, and the names by which it is to reach etcd.
std::vector<dns::Name> Application::namedZones(const BlockPlan& plan) {
  std::vector<dns::Name> names = plan.cluster ? endpointNames(*plan.cluster) : std::vector<dns::Name>{};
  for (const config::ServerKey& key : plan.keys) names.push_back(key.zone);
  return names;
}

// The node's own name, unless the Corefile says something else; without a cluster `nsid` alone means the host name.
std::shared_ptr<const resolve::Identity> Application::makeIdentity(const BlockPlan& plan, Cluster* cluster) {
  resolve::Identity::Options options{.nsid = plan.nsid.value_or("")};
  if (cluster == nullptr) {
    if (options.nsid.empty()) options.nsid = hostName();
    return std::make_shared<const resolve::Identity>(std::move(options));
  }
  const cluster::Member& member = *cluster->member;
  options.own_name = [&member]() -> std::optional<std::string> {
    const auto ownership = member.ownership();
    return ownership ? std::optional(ownership->name) : std::nullopt;
  };
  options.own_addresses = [&member] { return member.addresses().list(); };
  options.ttl_seconds = plan.cluster->ttl_seconds;
  auto identity = std::make_shared<const resolve::Identity>(std::move(options));
  std::erase_if(cluster->identities, [](const auto& seen) { return seen.expired(); });
  cluster->identities.push_back(identity);
  return identity;
}

// The block's handlers on one loop.
Result<std::shared_ptr<const resolve::ServerBlock>> Application::instantiate(const Configuration& configuration,
                                                                             Block& block, net::EventLoop& loop) {
  // Its handles belong to the loop, whichever thread lets it go last.
  const std::shared_ptr<resolve::ServerBlock> instance(new resolve::ServerBlock, [&loop](resolve::ServerBlock* old) {
    if (loop.isLoopThread()) {
      delete old;
    } else {
      loop.post([old] { delete old; });
    }
  });
  instance->log = block.log;
  instance->errors = block.errors;
  instance->acl = block.acl;
  instance->cluster = block.cluster;
  instance->identity = block.identity;
  if (block.hosts) instance->hosts = std::make_unique<const resolve::Hosts>(block.hosts);
  instance->bufsize = block.plan.bufsize;
  instance->any = block.plan.any;
  instance->loadbalance = block.plan.loadbalance;
  instance->whoami = block.plan.whoami;
  if (!block.plan.forward.empty()) {
    auto recursion = makeRecursion(configuration, block, loop);
    if (!recursion) return tl::unexpected(recursion.error());
    instance->recursion = std::move(*recursion);
    if (block.plan.loop && !block.loop) probeForLoops(block, loop, *instance->recursion);
    instance->loop = block.loop;
  }
  return instance;
}

void Application::probeForLoops(Block& block, net::EventLoop& loop, resolve::Recursion& recursion) {
  block.loop = std::make_shared<resolve::LoopProbe>(
      loop, resolve::LoopProbe::Options{.zone = block.plan.keys.front().zone},
      [&recursion](const dns::Query& query, const std::function<void(bool)>& done) { recursion.ask(query, done); },
      [this](const std::string& line) { loop_.post([this, line] { fatal("plugin/loop: " + line); }); });
}

Result<std::unique_ptr<resolve::Recursion>> Application::makeRecursion(const Configuration& configuration,
                                                                       const Block& block, net::EventLoop& loop) const {
  std::vector<std::unique_ptr<resolve::Forwarder>> forwarders;
  for (resolve::Forwarder::Options options : block.plan.forward) {
    // Where this block listens. Another block of ours is a server like any other: it has zones and servers of its own.
    for (const Endpoint& endpoint : configuration.endpoints) {
      const uint16_t port = endpoint.listen.address.port;
      const bool ours = std::any_of(block.plan.keys.begin(), block.plan.keys.end(),
                                    [port](const config::ServerKey& key) { return key.port == port; });
      if (ours) options.own.push_back(endpoint.listen.address);
    }
    options.named = namedZones(block.plan);
    options.descriptors = upstream_descriptors_;
    auto forwarder = resolve::Forwarder::make(loop, std::move(options), log_.named("plugin/forward"));
    if (!forwarder) return fail(fmt::format("plugin/forward: {}", forwarder.error().message));
    // No probe is needed where there is nobody to ask but ourselves.
    if (const auto ourselves = (*forwarder)->ourselves();
        block.plan.loop && !ourselves.empty() && (*forwarder)->upstreams().empty()) {
      return fail("plugin/loop: " +
                  resolve::LoopProbe::describe(ourselves.front().address, block.plan.keys.front().zone));
    }
    forwarders.push_back(std::move(*forwarder));
  }
  resolve::Recursion::Options options{
      .minimal = block.plan.minimal, .loadbalance = block.plan.loadbalance, .identity = block.identity};
  if (block.plan.cluster) options.own_names = endpointNames(*block.plan.cluster);
  std::unique_ptr<resolve::Cache> cache;
  if (block.plan.cache) {
    options.cache_zones = block.plan.cache->zones;
    options.verify_stale = block.plan.cache->verify_stale;
    cache = std::make_unique<resolve::Cache>(block.plan.cache->options);
  }
  return std::make_unique<resolve::Recursion>(loop, std::move(options), std::move(cache), std::move(forwarders),
                                              block.log, block.errors);
}

// The cluster of this pattern, if there is one already: of the running configuration its name, records and watch go on;
// of the new one two blocks share it, so that the process has one name of a pattern.
Application::Cluster* Application::findCluster(const Configuration& configuration, const ClusterPlan& plan) const {
  for (const auto* clusters : {&configuration.clusters, &clusters_}) {
    const auto it = std::find_if(clusters->begin(), clusters->end(), [&plan](const auto& cluster) {
      return cluster->plan.pattern.text() == plan.pattern.text();
    });
    if (it != clusters->end()) return it->get();
  }
  return nullptr;
}

Result<Application::Cluster*> Application::addCluster(Configuration& configuration, const ClusterPlan& plan,
                                                      uint16_t dns_port) {
  const Logger log = log_.named("plugin/idetcd");
  if (Cluster* cluster = findCluster(configuration, plan); cluster != nullptr) {
    const bool running = std::ranges::any_of(clusters_, [cluster](const auto& c) { return c.get() == cluster; });
    if (!cluster->plan.isSameMember(plan)) {
      if (!running)
        return fail(fmt::format("plugin/idetcd: two blocks with the pattern {} differ", plan.pattern.text()));
      log.warning("{}: only `fallthrough` changes without a restart", plan.pattern.text());
    }
    if (running) configuration.kept.push_back(cluster);
    return cluster;
  }
  if (const auto usable = etcd::Client::checkTlsFiles(plan.etcdOptions()); !usable) {
    return fail(fmt::format("plugin/idetcd: {}", usable.error().message));
  }
  const auto node = cluster::selectNodeAddresses(plan.address, cluster::readNetworkView());
  if (!node) return fail(fmt::format("plugin/idetcd: {}", node.error().message));
  if (!node->warning.empty()) log.warning("{}", node->warning);

  records::RecordStore::Options store_options{
      .zone = plan.pattern.zone(), .ttl_seconds = plan.ttl_seconds, .addresses = {}, .hash_seed = hash_seed_};
  store_options.addresses = node->addresses.list();
  auto cluster = std::make_unique<Cluster>();
  cluster->plan = plan;
  cluster->store = std::make_unique<records::RecordStore>(epochs_, std::move(store_options));

  if (!etcd_thread_) etcd_thread_ = std::make_unique<etcd::CompletionThread>();
  cluster::Member::Options options;
  options.endpoints = plan.endpoints;
  options.tls = plan.tls;
  options.credentials = plan.credentials;
  options.pattern = plan.pattern;
  options.limit = plan.limit;
  options.lease = plan.lease;
  options.repair_interval = plan.reconcile;
  options.watched = cluster::watchedRanges(plan.watch, plan.pattern);
  options.exit_when_full = plan.exit_when_full;
  options.observe = plan.observe;
  options.addresses = node->addresses;
  options.on_claim = plan.on_claim;
  if (const std::string directory = stateDirectory(plan); !directory.empty()) {
    auto state =
        cluster::StateDirectory::open({.directory = directory, .pattern = plan.pattern.text(), .only = plan.only}, log);
    if (!state) return fail(fmt::format("plugin/idetcd: {}", state.error().message));
    options.state = std::move(*state);
  }
  if (plan.address.addresses.empty()) {
    options.find_addresses = [address = plan.address] {
      return cluster::selectNodeAddresses(address, cluster::readNetworkView());
    };
  }
  options.dns_port = dns_port;
  cluster->member = std::make_unique<cluster::Member>(
      *etcd_thread_, *cluster->store, std::move(options), log,
      [this](const std::string& line) { loop_.post([this, line] { fatal("plugin/idetcd: " + line); }); });
  configuration.clusters.push_back(std::move(cluster));
  return configuration.clusters.back().get();
}

Result<void> Application::listen(Configuration& configuration) {
  Instances instances;  // only until the listeners own them
  std::vector<server::Listen> listens;
  for (const Endpoint& endpoint : configuration.endpoints) {
    server::Listen listen = endpoint.listen;
    listen.make_resolver = [this, &configuration, &endpoint, &instances](
                               size_t worker,
                               net::EventLoop& loop) -> Result<std::shared_ptr<const resolve::Resolver>> {
      std::vector<resolve::Resolver::Zone> zones;
      for (const auto& [name, block] : endpoint.zones) {
        auto& instance = instances[{worker, block}];
        if (!instance) {
          auto made = instantiate(configuration, configuration.blocks[block], loop);
          if (!made) return tl::unexpected(made.error());
          instance = std::move(*made);
        }
        zones.push_back({.name = name, .block = instance});
      }
      return std::make_shared<const resolve::Resolver>(std::move(zones), hash_seed_);
    };
    listens.push_back(std::move(listen));
  }
  return server_.open(listens);
}

int Application::run() {
  net::Timer error_report(loop_, [this] {
    for (const Block& block : configuration_.blocks) {
      if (block.errors) block.errors->flush(false);
    }
  });
  error_report.start(std::chrono::seconds(1), std::chrono::seconds(1));
  server_.start();
  for (const auto& cluster : clusters_) cluster->member->start();
  start(configuration_);
  loop_.run();
  configuration_ = {};  // what it shares with the handlers (a LoopProbe) asks through what goes next
  server_.close();
  return status_;
}

void Application::start(const Configuration& configuration) {
  for (const Block& block : configuration.blocks) {
    if (block.loop) block.loop->start();
  }
}

void Application::onSignal(int signal) {
  switch (signal) {
    case SIGTERM:
      log_.info("SIGTERM: Shutting down servers then terminating");
      return shutDown(0);
    case SIGINT:
      if (shutting_down_) {
        log_.info("SIGINT: Force quit");
        quit(2);
      }
      log_.info("SIGINT: Shutting down");
      return shutDown(0);
    case SIGQUIT:
      log_.info("SIGQUIT: Quitting process immediately");
      quit(0);
    default:
      log_.info("{}: Reloading", signal == SIGHUP ? "SIGHUP" : "SIGUSR1");
      return reload();
  }
}

// Everything is built beside what runs; only when nothing can fail any more does it take its place.
void Application::reload() {
  if (shutting_down_) return;
  // Until a name is given up its member has its ticket and its files, which the new configuration may want.
  if (!retirements_.empty()) {
    log_.info("The reload waits until the names that the last one has dropped are given up");
    reload_waits_ = true;
    return;
  }
  auto plan = read_plan_ ? read_plan_() : Result<Plan>(fail("there is no file to read again"));
  auto configuration = plan ? configure(*plan) : Result<Configuration>(tl::unexpected(plan.error()));
  const Result<void> done =
      configuration ? listen(*configuration) : Result<void>(tl::unexpected(configuration.error()));
  if (!done) {
    log_.error("Restart failed: {}", done.error().message);
    return;
  }
  std::vector<std::unique_ptr<Cluster>> previous = std::move(clusters_);
  clusters_ = std::move(configuration->clusters);
  for (const auto& cluster : clusters_) cluster->member->start();
  for (const Block& block : configuration_.blocks) {
    if (block.loop) block.loop->stop();  // it may live on a little, but says nothing of the servers that we have now
  }
  configuration_ = std::move(*configuration);
  for (auto& cluster : previous) {
    const bool kept = std::ranges::find(configuration_.kept, cluster.get()) != configuration_.kept.end();
    kept ? clusters_.push_back(std::move(cluster)) : retire(std::move(cluster));
  }
  configuration_.kept.clear();
  start(configuration_);
  log_.info("Reloading complete");
}

// Gives up the name of a cluster that is no longer configured. Blocks of an older configuration may still wait for an
// upstream, and write their NSID then.
void Application::retire(std::unique_ptr<Cluster> cluster) {
  for (const auto& seen : cluster->identities) {
    if (const auto identity = seen.lock()) identity->disown();
  }
  std::shared_ptr<Cluster> retired = std::move(cluster);
  std::weak_ptr<Cluster> seen = retired;
  retirements_.push_back({std::move(seen), std::thread([this, retired = std::move(retired)]() mutable {
                            retired->member->stop(kReleaseBudget);
                            retired.reset();
                            loop_.post([this] { onRetired(); });
                          })});
}

void Application::onRetired() {
  std::erase_if(retirements_, [](Retirement& retirement) {
    if (!retirement.cluster.expired()) return false;
    retirement.thread.join();
    return true;
  });
  if (retirements_.empty() && std::exchange(reload_waits_, false)) reload();
}

void Application::joinRetired() {
  for (Retirement& retirement : retirements_) retirement.thread.join();
  retirements_.clear();
}

// Nothing is given back and nobody is waited for; but what this process has started ends with it.
void Application::quit(int status) {
  for (const auto& cluster : clusters_) cluster->member->abandon();
  for (const Retirement& retirement : retirements_) {
    if (const auto cluster = retirement.cluster.lock()) cluster->member->abandon();
  }
  log_.flush(kFlushBudget);
  _exit(status);
}

// The names are given up first, on a thread of its own: queries are answered for as long as that takes.
void Application::shutDown(int status) {
  if (shutting_down_) return;
  shutting_down_ = true;
  status_ = status;
  releaser_ = std::thread([this] {
    std::vector<std::future<void>> releases;
    for (const auto& cluster : clusters_) {
      releases.push_back(std::async(std::launch::async, [&cluster] { cluster->member->stop(kReleaseBudget); }));
    }
    for (auto& release : releases) release.wait();
    loop_.stop();
  });
}

void Application::fatal(const std::string& line) {
  if (shutting_down_) return;
  log_.flush(kFlushBudget);
  std::fprintf(stderr, "%s\n", line.c_str());
  shutDown(1);
}

}  // namespace idetcd::app
