#include "app/application.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <future>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "cluster/node_address.h"
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

std::string bannerLine(const config::ServerKey& key, const std::vector<SocketAddress>& addresses) {
  std::string line = key.text;
  for (const SocketAddress& address : addresses) {
    line += fmt::format("{}{}", &address == addresses.data() ? " on " : " ", address.ip.toString());
  }
  return line;
}

}  // namespace

Application::Application(Logger log) : log_(std::move(log)), hash_seed_(randomHashSeed()), server_(loop_, epochs_) {}

Application::~Application() {
  if (releaser_.joinable()) releaser_.join();
  for (const auto& cluster : clusters_) cluster->member->stop(std::chrono::milliseconds(0));
  if (etcd_thread_) etcd_thread_->stop();
  server_.close();
  clusters_.clear();
}

Result<void> Application::open(const Plan& plan) {
  for (const std::string& warning : plan.warnings) log_.warning("{}", warning);
  for (const BlockPlan& block : plan.blocks) {
    if (auto added = addBlock(block); !added) return added;
  }
  return listen();
}

Result<void> Application::addBlock(const BlockPlan& plan) {
  const auto addresses = bindAddresses(plan.bind);
  if (!addresses) return tl::unexpected(addresses.error());
  auto built = buildBlock(plan);
  if (!built) return tl::unexpected(built.error());
  const std::shared_ptr<const resolve::ServerBlock> block = std::move(*built);
  blocks_.push_back(block);
  for (const config::ServerKey& key : plan.keys) {
    banner_.push_back(bannerLine(key, *addresses));
    std::vector<server::Listen> wanted;
    for (SocketAddress address : *addresses) {
      address.port = key.port;
      wanted.push_back({.address = address, .any_address = false, .resolver = nullptr});
    }
    if (wanted.empty())
      wanted.push_back({.address = {.ip = {}, .port = key.port}, .any_address = true, .resolver = nullptr});
    for (const server::Listen& listen : wanted) {
      auto endpoint = std::find_if(endpoints_.begin(), endpoints_.end(), [&listen](const Endpoint& e) {
        return e.listen.any_address == listen.any_address && e.listen.address == listen.address;
      });
      if (endpoint == endpoints_.end()) endpoint = endpoints_.insert(endpoint, {.listen = listen, .zones = {}});
      endpoint->listen.workers = std::max(endpoint->listen.workers, plan.workers);
      endpoint->zones.push_back({.name = key.zone, .block = block});
    }
  }
  return {};
}

Result<std::unique_ptr<resolve::ServerBlock>> Application::buildBlock(const BlockPlan& plan) {
  auto block = std::make_unique<resolve::ServerBlock>();
  if (!plan.log.empty()) block->log = std::make_shared<const resolve::QueryLog>(plan.log, log_);
  if (plan.errors) {
    auto errors = resolve::ErrorLog::make(plan.consolidate, log_.named("plugin/errors"));
    if (!errors) return tl::unexpected(errors.error());
    block->errors = std::move(*errors);
  }
  if (plan.cluster) {
    const auto store = addCluster(*plan.cluster, plan.keys.front().port);
    if (!store) return tl::unexpected(store.error());
    block->cluster = std::make_shared<const resolve::ClusterZone>(
        **store, resolve::ClusterZone::Options{.fallthrough = plan.cluster->fallthrough});
  }
  block->whoami = plan.whoami;
  return block;
}

Result<const records::RecordStore*> Application::addCluster(const ClusterPlan& plan, uint16_t dns_port) {
  const Logger log = log_.named("plugin/idetcd");
  const auto node = cluster::selectNodeAddresses(plan.address, cluster::readNetworkView());
  if (!node) return fail(fmt::format("plugin/idetcd: {}", node.error().message));
  if (!node->warning.empty()) log.warning("{}", node->warning);

  records::RecordStore::Options store_options{
      .zone = plan.pattern.zone(), .ttl_seconds = plan.ttl_seconds, .addresses = {}, .hash_seed = hash_seed_};
  for (const auto& address : {node->addresses.ipv4, node->addresses.ipv6}) {
    if (address) store_options.addresses.push_back(*address);
  }
  auto cluster = std::make_unique<Cluster>();
  cluster->store = std::make_unique<records::RecordStore>(epochs_, std::move(store_options));

  if (!etcd_thread_) etcd_thread_ = std::make_unique<etcd::CompletionThread>();
  cluster::Member::Options options;
  options.endpoints = plan.endpoints;
  options.pattern = plan.pattern;
  options.limit = plan.limit;
  options.lease = plan.lease;
  options.observe = plan.observe;
  options.addresses = node->addresses;
  options.dns_port = dns_port;
  cluster->member =
      std::make_unique<cluster::Member>(*etcd_thread_, *cluster->store, std::move(options), log,
                                        [this](const std::string& line) { loop_.post([this, line] { fatal(line); }); });
  clusters_.push_back(std::move(cluster));
  return clusters_.back()->store.get();
}

Result<void> Application::listen() {
  std::vector<server::Listen> listens;
  for (Endpoint& endpoint : endpoints_) {
    endpoint.listen.resolver = std::make_shared<resolve::Resolver>(std::move(endpoint.zones), hash_seed_);
    listens.push_back(std::move(endpoint.listen));
  }
  endpoints_.clear();
  return server_.open(listens);
}

int Application::run() {
  std::vector<std::unique_ptr<net::SignalWatcher>> signals;
  for (const int signal : {SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1}) {
    signals.push_back(std::make_unique<net::SignalWatcher>(loop_, signal, [this, signal] { onSignal(signal); }));
  }
  net::Timer error_report(loop_, [this] {
    for (const auto& block : blocks_) {
      if (block->errors) block->errors->flush(false);
    }
  });
  error_report.start(std::chrono::seconds(1), std::chrono::seconds(1));
  server_.start();
  for (const auto& cluster : clusters_) cluster->member->start();
  loop_.run();
  server_.close();
  return status_;
}

void Application::onSignal(int signal) {
  switch (signal) {
    case SIGTERM:
      log_.info("SIGTERM: Shutting down servers then terminating");
      return shutDown(0);
    case SIGINT:
      if (shutting_down_) {
        log_.info("SIGINT: Force quit");
        log_.flush();
        _exit(2);
      }
      log_.info("SIGINT: Shutting down");
      return shutDown(0);
    case SIGQUIT:
      log_.info("SIGQUIT: Quitting process immediately");
      log_.flush();
      _exit(0);
    default:
      log_.warning("{}: reloading is not supported; the configuration stays as it is",
                   signal == SIGHUP ? "SIGHUP" : "SIGUSR1");
  }
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
  log_.flush();
  std::fprintf(stderr, "plugin/idetcd: %s\n", line.c_str());
  shutDown(1);
}

}  // namespace idetcd::app
