#include "directive/idetcd/clusters.h"

#include <future>

#include "control/local_socket.h"
#include "naming/watched_ranges.h"
#include "node/addresses.h"

namespace idetcd::directive {

namespace {

constexpr std::chrono::milliseconds kForHandingOver{1000};  // even if the names have taken all the time

std::string stateDirectory(const ClusterSettings& settings) {
  return settings.state_directory.empty() ? node::stateDirectoryOfService() : settings.state_directory;
}

Error explained(const Error& error, const std::string& directory, const resolve::Process& process) {
  const auto known = process.checkWritten(directory);
  return known ? error : Error{.message = fmt::format("{}; {}", error.message, known.error().message)};
}

naming::Member::Options memberOptions(const ClusterSettings& settings, const node::NodeAddresses& node,
                                      uint16_t dns_port, std::shared_ptr<Executor> executor) {
  naming::Member::Options options;
  options.pattern = settings.pattern;
  options.lease = settings.lease;
  options.reconcile_interval = settings.reconcile;
  options.watched = naming::watchedRanges(settings.watch, settings.pattern);
  options.exit_when_full = settings.exit_when_full;
  options.observe = settings.observe;
  options.addresses = node.addresses;
  options.on_claim = settings.on_claim;
  if (settings.address.addresses.empty()) {
    options.find_addresses = [address = settings.address] {
      return node::selectNodeAddresses(address, node::readNetworkView());
    };
  }
  options.dns_port = dns_port;
  options.executor = std::move(executor);
  return options;
}

std::string statusOf(const Cluster& cluster) {
  const std::string& pattern = cluster.settings.pattern.text();
  if (cluster.settings.observe) return fmt::format("observes {}", pattern);
  const auto owned = cluster.member->ownership();
  if (!owned) return fmt::format("no name of {}", pattern);
  return owned->name.substr(0, owned->name.size() - 1);  // as host names are written
}

}  // namespace

Clusters::~Clusters() { stop(); }

std::string Clusters::status() const {
  std::vector<std::string> all;
  for (const auto& cluster : running_) all.push_back(statusOf(*cluster));
  return fmt::format("{}", fmt::join(all, ", "));
}

Cluster* Clusters::find(const ClusterSettings& settings) const {
  for (const auto* clusters : {&added_, &running_}) {
    const auto it = std::find_if(clusters->begin(), clusters->end(), [&settings](const auto& cluster) {
      return cluster->settings.pattern.text() == settings.pattern.text();
    });
    if (it != clusters->end()) return it->get();
  }
  return nullptr;
}

Cluster* Clusters::findRunning(const records::RecordStore& store) const {
  const auto found =
      std::ranges::find_if(running_, [&store](const auto& cluster) { return cluster->store.get() == &store; });
  return found != running_.end() ? found->get() : nullptr;
}

// The completion thread is the store's writer. A cluster that is retired waits for what was posted before.
void Clusters::observe(const records::RecordStore& store, std::shared_ptr<records::RecordObserver> observer) {
  Cluster* cluster = findRunning(store);
  if (cluster == nullptr) return;
  etcd_thread_->post([written = cluster->store.get(), observer = std::move(observer)]() mutable {
    written->addObserver(std::move(observer));
  });
}

void Clusters::forget(const records::RecordStore& store, std::shared_ptr<const records::RecordObserver> observer) {
  Cluster* cluster = findRunning(store);
  if (cluster == nullptr) return;
  etcd_thread_->post([table = cluster->store.get(), observer] { table->removeObserver(observer.get()); });
}

bool Clusters::isRunning(const Cluster* cluster) const {
  return std::ranges::any_of(running_, [cluster](const auto& running) { return running.get() == cluster; });
}

Result<Cluster*> Clusters::join(const ClusterSettings& settings, uint16_t dns_port) {
  if (Cluster* cluster = find(settings); cluster != nullptr) {
    const bool running = isRunning(cluster);
    if (!cluster->settings.isSameMember(settings)) {
      const std::string& pattern = settings.pattern.text();
      if (!running) return fail(fmt::format("plugin/idetcd: two blocks with the pattern {} differ", pattern));
      process_.log.named("plugin/idetcd").warning("{}: only 'fallthrough' changes without a restart", pattern);
    }
    if (cluster->has_left) return add(cluster->settings, dns_port);
    if (running) kept_.push_back({cluster, settings.only});
    return cluster;
  }
  return add(settings, dns_port);
}

Result<Cluster*> Clusters::add(const ClusterSettings& settings, uint16_t dns_port) {
  auto made = make(settings, dns_port);
  if (!made) return fail(fmt::format("plugin/idetcd: {}", made.error().message));
  added_.push_back(std::move(*made));
  return added_.back().get();
}

ClusterMetrics::ClusterMetrics(const metrics::Scope& scope, const naming::Member& member,
                               const records::RecordStore& store, std::chrono::seconds lease)
    : owned_(scope, "idetcd_owned", "Whether this node owns a name: 1 or 0.",
             [&member] { return member.ownership() ? 1.0 : 0.0; }),
      token_(scope, "idetcd_token", "The fencing token of the name that this node owns; 0: it owns none.",
             [&member] {
               const auto ownership = member.ownership();
               return ownership ? static_cast<double>(ownership->token) : 0;
             }),
      lease_(scope, "idetcd_lease_remaining_seconds",
             "How long the name is still owned if etcd answers no more; 0: none is owned.",
             [&member] {
               const auto ownership = member.ownership();
               return ownership ? std::chrono::duration<double>(ownership->deadline - BootClock::now()).count() : 0;
             }),
      fresh_(scope, "idetcd_names_fresh", "Whether answers are not marked as stale: 1 or 0.",
             [&store] { return store.freshness() == records::Freshness::kFresh ? 1.0 : 0.0; }),
      lag_(scope, "idetcd_names_age_seconds",
           "How old the last moment is as of which all names were known; infinite: there was none.",
           [&store, lease] {
             const auto until = store.lastFreshUntil();
             if (until == BootClock::time_point()) return std::numeric_limits<double>::infinity();
             return std::chrono::duration<double>(BootClock::now() - (until - lease)).count();
           }),
      table_bytes_(scope, "idetcd_table_bytes",
                   "The size of the table of names, with that of addresses: as large as they were at their largest.",
                   [&store] { return static_cast<double>(store.bytes()); }),
      drained_(scope, "idetcd_drained", "Whether an operator has taken the addresses of this node out of DNS: 1 or 0.",
               [&member] { return member.isDrained() ? 1.0 : 0.0; }) {}

Result<void> Clusters::makeThread() {
  if (etcd_thread_) return {};
  auto thread = etcd::CompletionThread::make();
  if (!thread) return tl::unexpected(thread.error());
  etcd_thread_ = std::move(*thread);
  return {};
}

// The one of these settings that there is, or a new one. A port is one group, whatever the patterns.
Result<std::shared_ptr<peers::PeerGroup>> Clusters::peerGroup(const ClusterSettings& settings,
                                                              const node::NodeAddresses& node) {
  if (!settings.peers) return nullptr;
  for (const auto* clusters : {&added_, &running_}) {
    for (const auto& cluster : *clusters) {
      if (!cluster->peers || cluster->peers->settings().port != settings.peers->port) continue;
      if (cluster->peers->settings() == *settings.peers) return cluster->peers;
      return fail(fmt::format("two patterns with peers-port {} differ in their peers: write another port",
                              settings.peers->port));
    }
  }
  peers::PeerGroup::Options options;
  options.settings = *settings.peers;
  options.state = stateDirectory(settings);
  options.predecessor = process_.predecessor;
  options.runtime = control::socketDirectory();
  options.addresses = node.addresses.list();
  if (settings.address.addresses.empty()) {
    options.find_addresses = [address = settings.address]() -> Result<std::vector<IpAddress>> {
      const auto found = node::selectNodeAddresses(address, node::readNetworkView());
      if (!found) return tl::unexpected(found.error());
      return found->addresses.list();
    };
  }
  options.observes = settings.observe;
  options.lease = settings.lease;
  options.executor = process_.executor;
  options.programs = process_.programs;
  options.metrics = process_.metrics.scope().with("port", fmt::to_string(settings.peers->port));
  options.on_change = [this] {
    process_.loop.post([this] {
      if (std::ranges::any_of(running_, &Cluster::has_left, [](const auto& one) -> Cluster& { return *one; }))
        return process_.reloads.start();
      for (const auto& cluster : running_) {
        if (cluster->peers) start(*cluster);
      }
    });
  };
  options.on_leave = [this, port = settings.peers->port] { process_.loop.post([this, port] { leave(port); }); };
  auto made = peers::PeerGroup::open(std::move(options), *etcd_thread_, process_.log.named("plugin/idetcd"));
  if (!made) return tl::unexpected(explained(made.error(), stateDirectory(settings), process_));
  return std::move(*made);
}

std::vector<peers::PeerGroup*> Clusters::peerGroups() const {
  std::vector<peers::PeerGroup*> groups;
  for (const auto& cluster : running_) {
    peers::PeerGroup* const group = cluster->peers.get();
    if (group != nullptr && std::ranges::find(groups, group) == groups.end()) groups.push_back(group);
  }
  return groups;
}

// The one place that knows which store holds the names.
std::unique_ptr<etcd::Client> Clusters::openStore(const Cluster& cluster, const metrics::Scope& metrics) {
  etcd::Client::Options options = cluster.settings.etcdOptions();
  if (cluster.peers) {
    options.endpoints = cluster.peers->endpoints();
    options.tls = cluster.peers->tls();
    options.self_founded = true;
  }
  options.spread = true;
  options.metrics = metrics;
  options.executor = process_.executor;
  return std::make_unique<etcd::Client>(*etcd_thread_, std::move(options), process_.log.named("plugin/idetcd"));
}

Result<std::unique_ptr<Cluster>> Clusters::make(const ClusterSettings& settings, uint16_t dns_port) {
  const Logger log = process_.log.named("plugin/idetcd");
  if (!settings.peers) {
    if (auto usable = etcd::Client::checkTlsFiles(settings.etcdOptions()); !usable)
      return tl::unexpected(usable.error());
  }
  const auto node = node::selectNodeAddresses(settings.address, node::readNetworkView());
  if (!node) return tl::unexpected(node.error());
  if (!node->warning.empty()) log.warning("{}", node->warning);

  records::RecordStore::Options store_options{.zone = settings.pattern.zone(),
                                              .ttl_seconds = settings.ttl_seconds,
                                              .addresses = {},
                                              .hash_seed = process_.hash_seed,
                                              .is_member = {}};
  store_options.addresses = node->addresses.list();
  // An address may have other names too, such as a service's: those of the nodes come before them.
  store_options.is_member = [pattern = settings.pattern](const dns::Name& name) {
    return pattern.recognise(name.toString()).has_value();
  };
  auto made = std::make_unique<Cluster>();
  made->settings = settings;
  made->store = std::make_unique<records::RecordStore>(process_.epochs, std::move(store_options));

  naming::Member::Options options = memberOptions(settings, *node, dns_port, process_.executor);
  options.runner = process_.programs;
  options.on_ownership = [this](const std::optional<naming::Ownership>&) { process_.status_changed(); };
  options.metrics = process_.metrics.scope().with("pattern", settings.pattern.text());
  if (const std::string directory = stateDirectory(settings); !directory.empty()) {
    auto state = node::StateDirectory::open(
        {.directory = directory,
         .pattern = settings.pattern.text(),
         .predecessor = process_.predecessor,
         .takes_name = !settings.peers && !settings.observe},
        log);
    if (!state) return tl::unexpected(explained(state.error(), directory, process_));
    options.state = made->state = std::move(*state);
  }
  if (auto thread = makeThread(); !thread) return tl::unexpected(thread.error());
  auto group = peerGroup(settings, *node);
  if (!group) return tl::unexpected(group.error());
  made->peers = std::move(*group);
  auto client = openStore(*made, options.metrics);
  made->client = client.get();
  made->member =
      std::make_unique<naming::Member>(*etcd_thread_, std::move(client), *made->store, std::move(options), log,
                                       [this](const std::string& line) { process_.fatal("plugin/idetcd: " + line); });
  made->metrics = std::make_unique<const ClusterMetrics>(
      process_.metrics.scope().with("pattern", settings.pattern.text()), *made->member, *made->store, settings.lease);
  made->report = std::make_shared<ClusterReport>(*made->store, *made->member, settings, made->peers);
  made->member->restore(tablesOf(*made->member->store()));
  return made;
}

// Of the clusters that run over the same store.
std::vector<const records::RecordStore*> Clusters::tablesOf(const store::Store& store) const {
  const std::vector<std::string> endpoints = store.endpoints();
  std::vector<const records::RecordStore*> tables;
  for (const auto& cluster : running_) {
    const bool same = std::ranges::any_of(cluster->member->store()->endpoints(), [&endpoints](const std::string& one) {
      return std::ranges::find(endpoints, one) != endpoints.end();
    });
    if (same) tables.push_back(cluster->store.get());
  }
  return tables;
}

void Clusters::accept() {
  std::vector<std::unique_ptr<Cluster>> previous = std::exchange(running_, std::exchange(added_, {}));
  for (peers::PeerGroup* group : peerGroups()) {
    int64_t token = 0;
    for (const auto& cluster : running_) {
      if (cluster->peers.get() == group) token = std::max(token, cluster->member->highestToken());
    }
    group->start(token);
  }
  for (const auto& cluster : running_) {
    start(*cluster);
    if (cluster->state) cluster->state->linkIdentity(cluster->settings.only);
  }
  for (const Kept& kept : kept_) {
    if (kept.cluster->state) kept.cluster->state->linkIdentity(kept.only);
  }
  for (auto& cluster : previous) {
    const bool is_kept = std::ranges::find(kept_, cluster.get(), &Kept::cluster) != kept_.end();
    is_kept ? running_.push_back(std::move(cluster)) : retire(std::move(cluster));
  }
  kept_.clear();
}

// A member of a cluster that founds itself has to wait until there is one; until then its old names are answered.
void Clusters::start(Cluster& cluster) {
  if (cluster.peers) {
    std::vector<std::string> endpoints = cluster.peers->endpoints();
    if (endpoints.empty()) return;
    cluster.client->setEndpoints(std::move(endpoints));
    if (const auto membership = cluster.peers->membership(); membership && !cluster.started)
      cluster.member->found(membership->number, membership->token_base);
  }
  if (!std::exchange(cluster.started, true)) cluster.member->start();
}

void Clusters::refuse() {
  added_.clear();
  kept_.clear();
}

// Chains of an older configuration may still wait for an upstream, and write their NSID then.
void Clusters::retire(std::unique_ptr<Cluster> cluster) {
  for (const auto& seen : cluster->identities) {
    if (const auto identity = seen.lock()) identity->disown();
  }
  cluster->report->detach();
  // One owner, which the executor releases.
  const auto retired = std::make_shared<std::shared_ptr<Cluster>>(std::move(cluster));
  retirements_.push_back(*retired);
  const auto give_up = [this, retired] {
    (*retired)->member->stop(kReleaseBudget);
    retired->reset();
    process_.loop.post([this] { onRetired(); });
  };
  // Always taken: what has dropped the cluster was built on a thread of the executor, which keeps its last one.
  [[maybe_unused]] const bool taken = process_.executor->submit(give_up);
  assert(taken);
}

void Clusters::onRetired() {
  std::erase_if(retirements_, [](const auto& retired) { return retired.expired(); });
  settle();
}

void Clusters::settle() {
  if (!isSettling()) process_.settled();
}

// A reload makes new members, as a restart would, as soon as the group has the endpoints of the other cluster.
void Clusters::leave(uint16_t peers_port) {
  std::shared_ptr<peers::PeerGroup> group;
  std::vector<std::shared_ptr<naming::Member>> members;
  std::chrono::seconds lease{0};
  for (const auto& cluster : running_) {
    if (!cluster->peers || cluster->peers->settings().port != peers_port) continue;
    group = cluster->peers;
    lease = std::max(lease, cluster->settings.lease);
    if (!cluster->started) continue;
    cluster->has_left = true;
    members.push_back(cluster->member);
  }
  if (!group) return;
  ++leaving_;
  const auto give_up = [this, group, members = std::move(members), lease] {
    int64_t token = 0;
    bool all_given_back = true;
    for (const auto& member : members) {
      if (!member->stop(kReleaseBudget)) all_given_back = false;
      token = std::max(token, member->highestToken());
    }
    group->left(all_given_back ? std::chrono::milliseconds(0) : peers::silenceAfter(lease), token);
    process_.loop.post([this] {
      --leaving_;
      settle();
    });
  };
  if (!process_.executor->submit(give_up)) --leaving_;  // the process ends: the next one goes on with it
}

void Clusters::release(std::chrono::milliseconds budget) {
  const BootClock::time_point end = BootClock::now() + budget;
  std::vector<std::future<void>> releases;
  for (const auto& cluster : running_) {
    auto released = std::make_shared<std::promise<void>>();
    releases.push_back(released->get_future());
    const auto release = [member = cluster->member.get(), budget, released] {
      member->stop(budget);
      released->set_value();
    };
    if (!process_.executor->submit(release)) release();
  }
  for (auto& release : releases) release.wait();
  // Their names are given up in an etcd that may be this machine's.
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - BootClock::now());
  for (peers::PeerGroup* group : peerGroups()) group->stop(std::max(left, kForHandingOver));
}

void Clusters::abandon() {
  for (const auto& cluster : running_) cluster->member->abandon(process_.successor);
  for (const auto& retired : retirements_) {
    if (const auto cluster = retired.lock()) cluster->member->abandon();
  }
}

void Clusters::stop() {
  for (const auto* clusters : {&running_, &added_}) {
    for (const auto& cluster : *clusters) cluster->member->stop(std::chrono::milliseconds(0));
  }
  for (peers::PeerGroup* group : peerGroups()) group->stop(std::chrono::milliseconds(0));
  if (etcd_thread_) etcd_thread_->stop();
}

}  // namespace idetcd::directive
