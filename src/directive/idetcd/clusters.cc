#include "directive/idetcd/clusters.h"

#include <future>

#include "control/local_socket.h"
#include "naming/saved_names.h"
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
      std::ranges::find_if(running_, [&store](const auto& cluster) { return &cluster->records() == &store; });
  return found != running_.end() ? found->get() : nullptr;
}

// The completion thread is the store's writer. A cluster that is retired waits for what was posted before.
void Clusters::observe(const records::RecordStore& store, std::shared_ptr<records::RecordObserver> observer) {
  Cluster* cluster = findRunning(store);
  if (cluster == nullptr) return;
  etcd_thread_->post([written = &cluster->records(), observer = std::move(observer)]() mutable {
    written->addObserver(std::move(observer));
  });
}

void Clusters::forget(const records::RecordStore& store,
                      const std::shared_ptr<const records::RecordObserver>& observer) {
  for (const auto& cluster : running_) {
    std::vector<records::RecordStore*> tables{cluster->first->records.get()};
    if (cluster->both) tables.push_back(&cluster->both->sum());
    for (records::RecordStore* table : tables) {
      if (table == &store) etcd_thread_->post([table, observer] { table->removeObserver(observer.get()); });
    }
  }
}

bool Clusters::isRunning(const Cluster* cluster) const {
  return std::ranges::any_of(running_, [cluster](const auto& running) { return running.get() == cluster; });
}

Result<Clusters::Joined> Clusters::join(const ClusterSettings& settings, uint16_t dns_port) {
  if (Cluster* cluster = find(settings); cluster != nullptr) {
    using Step = ClusterSettings::Step;
    const std::string& pattern = settings.pattern.text();
    const bool running = isRunning(cluster);
    if (cluster->has_left) return add(cluster->settings, dns_port);
    const bool asked = std::ranges::find(kept_, cluster, &Kept::cluster) != kept_.end();  // by another block
    if (running) kept_.push_back({cluster, settings.only});
    const auto changed = std::ranges::find(changes_, cluster, &Change::cluster);
    const ClusterSettings& known = changed != changes_.end() ? changed->settings : cluster->settings;
    const bool same = known.isSameMember(settings);
    if (!same && (!running || changed != changes_.end()))
      return fail(fmt::format("plugin/idetcd: two blocks with the pattern {} differ", pattern));
    if (changed != changes_.end()) return Joined{cluster, changed->answered};
    const Step step = same ? Step::kNone : cluster->settings.stepTo(settings);
    if (step != Step::kNone) {
      if (asked) return fail(fmt::format("plugin/idetcd: two blocks with the pattern {} differ", pattern));
      auto joined = change(*cluster, settings, step);
      if (!joined) return fail(fmt::format("plugin/idetcd: {}", joined.error().message));
      return joined;
    }
    if (!same && settings.move != ClusterSettings::Move::kNone)
      return fail(
          fmt::format("plugin/idetcd: {}: a move begins with the option that the Corefile has already, which "
                      "stands first, and changes nothing else",
                      pattern));
    if (!same) process_.log.named("plugin/idetcd").warning("{}: only 'fallthrough' changes without a restart", pattern);
    return Joined{cluster, &cluster->records()};
  }
  return add(settings, dns_port);
}

Result<Clusters::Joined> Clusters::add(const ClusterSettings& settings, uint16_t dns_port) {
  auto made = make(settings, dns_port);
  if (!made) return fail(fmt::format("plugin/idetcd: {}", made.error().message));
  added_.push_back(std::move(*made));
  return Joined{added_.back().get(), &added_.back()->records()};
}

// On a thread of the executor, as join() is, while the cluster runs.
Result<Clusters::Joined> Clusters::change(Cluster& cluster, const ClusterSettings& settings,
                                          ClusterSettings::Step step) {
  using Step = ClusterSettings::Step;
  Change made;
  made.cluster = &cluster;
  made.settings = settings;
  made.step = step;
  if (step == Step::kAddSecond) {
    const auto node = node::selectNodeAddresses(settings.address, node::readNetworkView());
    if (!node) return tl::unexpected(node.error());
    made.second = makeStore(settings, *node);
    if (settings.endsAtPeers()) {
      auto group = peerGroup(settings, *node);
      if (!group) return tl::unexpected(group.error());
      made.second->peers = std::move(*group);
    } else if (auto usable = etcd::Client::checkTlsFiles(settings.etcdOptions()); !usable) {
      return tl::unexpected(usable.error());
    }
    made.client = openStore(settings, *made.second, storeScope(settings, settings.endsAtPeers()));
    made.both = unite(settings, *node, *cluster.first, *made.second, records::RecordUnion::Second::kOnceFresh);
    made.answered = &made.both->sum();
  } else if (step == Step::kKeepFirst) {
    made.answered = cluster.first->records.get();
  } else {
    if (auto moved = checkMoved(cluster); !moved) return tl::unexpected(moved.error());
    made.answered = cluster.second->records.get();
  }
  changes_.push_back(std::move(made));
  return Joined{&cluster, changes_.back().answered};
}

// Whoever goes on with the second store alone owns names that nodes of the first one alone would own, too: so all names
// are to be in both.
Result<void> Clusters::checkMoved(const Cluster& cluster) const {
  const std::string to = cluster.settings.movesTo();
  const auto second = cluster.member->second();
  if (cluster.member->ownership() && !(second && second->needed))
    return fail(fmt::format("this node's name is not held in the store of `{}` yet: see idetcd status", to));
  for (const ClusterStore* store : {cluster.first.get(), cluster.second.get()}) {
    if (store->records->freshness() != records::Freshness::kFresh)
      return fail("the names of both stores are not known to be current: see idetcd status");
  }
  std::vector<std::string> missing;
  naming::forEachName(*cluster.first->records, [&](const naming::SavedName& name) {
    const auto wire = name.name.wire();
    const records::RecordTable& table = cluster.second->records->table();
    if (!cluster.settings.pattern.recognise(name.name.toString())) return;
    records::EpochDomain::Reader reader(table.epochs());
    const records::ReadSection section(reader);
    const records::Entry* entry = table.find(hashBytes(wire.data(), wire.size(), table.seed()), wire);
    if (entry == nullptr || !entry->isHeld()) missing.push_back(name.name.toString());
  });
  if (missing.empty()) return {};
  constexpr size_t kMost = 5;
  const size_t count = missing.size();
  missing.resize(std::min(count, kMost));
  return fail(
      fmt::format("{} of the names are not in the store of `{}` yet: {}{}; their nodes have to be given both first",
                  count, to, fmt::join(missing, " "), count > kMost ? " …" : ""));
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
      moving_(scope, "idetcd_moving", "Whether the cluster moves to another store: 1 or 0.",
              [&member] { return member.second() ? 1.0 : 0.0; }),
      moved_(scope, "idetcd_moved",
             "Whether this node has its name in the store to which the cluster moves, too: 1 or 0.",
             [&member] {
               const auto second = member.second();
               return second && second->needed && second->owned ? 1.0 : 0.0;
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
  std::vector<const ClusterStore*> stores;
  for (const auto* clusters : {&added_, &running_}) {
    for (const auto& cluster : *clusters) {
      stores.push_back(cluster->first.get());
      if (cluster->second) stores.push_back(cluster->second.get());
    }
  }
  for (const Change& change : changes_) {
    if (change.second) stores.push_back(change.second.get());
  }
  for (const ClusterStore* store : stores) {
    if (!store->peers || store->peers->settings().port != settings.peers->port) continue;
    if (store->peers->settings() == *settings.peers) return store->peers;
    return fail(
        fmt::format("two patterns with peers-port {} differ in their peers: write another port", settings.peers->port));
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
      replaceLeft();
      for (const auto& cluster : running_) {
        if (!cluster->has_left) start(*cluster);
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
    for (const auto* store : {&cluster->first, &cluster->second}) {
      peers::PeerGroup* const group = *store ? (*store)->peers.get() : nullptr;
      if (group != nullptr && std::ranges::find(groups, group) == groups.end()) groups.push_back(group);
    }
  }
  return groups;
}

// The one place that knows which store holds the names.
std::unique_ptr<etcd::Client> Clusters::openStore(const ClusterSettings& settings, ClusterStore& store,
                                                  const metrics::Scope& metrics) {
  etcd::Client::Options options = settings.etcdOptions();
  if (store.peers) {
    options.endpoints = store.peers->endpoints();
    options.tls = store.peers->tls();
    options.credentials.reset();
    options.self_founded = true;
  }
  options.spread = true;
  options.metrics = metrics;
  options.executor = process_.executor;
  auto client = std::make_unique<etcd::Client>(*etcd_thread_, std::move(options), process_.log.named("plugin/idetcd"));
  store.client = client.get();
  return client;
}

namespace {

records::RecordStore::Options recordOptions(const ClusterSettings& settings, const node::NodeAddresses& node,
                                            HashSeed seed) {
  records::RecordStore::Options options{.zone = settings.pattern.zone(),
                                        .ttl_seconds = settings.ttl_seconds,
                                        .addresses = node.addresses.list(),
                                        .hash_seed = seed,
                                        .is_member = {}};
  // An address may have other names too, such as a service's: those of the nodes come before them.
  options.is_member = [pattern = settings.pattern](const dns::Name& name) {
    return pattern.recognise(name.toString()).has_value();
  };
  return options;
}

}  // namespace

std::unique_ptr<ClusterStore> Clusters::makeStore(const ClusterSettings& settings,
                                                  const node::NodeAddresses& node) const {
  auto made = std::make_unique<ClusterStore>();
  made->records =
      std::make_shared<records::RecordStore>(process_.epochs, recordOptions(settings, node, process_.hash_seed));
  return made;
}

// Both tables are looked at by their writer only; blocks until that has been done.
std::unique_ptr<records::RecordUnion> Clusters::unite(const ClusterSettings& settings, const node::NodeAddresses& node,
                                                      const ClusterStore& first, const ClusterStore& second,
                                                      records::RecordUnion::Second counts) {
  auto both = std::make_unique<records::RecordUnion>(process_.epochs, recordOptions(settings, node, process_.hash_seed),
                                                     *first.records, *second.records, counts);
  onWriter([whole = both.get()] { whole->begin(); });
  return both;
}

// Blocks. Nothing is done if the thread has ended: it writes nothing any more.
void Clusters::onWriter(std::function<void()> work) {
  auto done = std::make_shared<std::promise<void>>();
  const std::future<void> is_done = done->get_future();
  etcd_thread_->post([work = std::move(work), done = std::move(done)] {
    work();
    done->set_value();
  });
  is_done.wait();
}

metrics::Scope Clusters::scopeOf(const ClusterSettings& settings) const {
  return process_.metrics.scope().with("pattern", settings.pattern.text());
}

// Of numbers that each store of a cluster that moves has for itself.
metrics::Scope Clusters::storeScope(const ClusterSettings& settings, bool at_peers) const {
  return scopeOf(settings).with("store", at_peers ? "peers" : "endpoint");
}

Result<std::unique_ptr<Cluster>> Clusters::make(const ClusterSettings& settings, uint16_t dns_port) {
  const Logger log = process_.log.named("plugin/idetcd");
  if (!settings.endpoints.empty()) {
    if (auto usable = etcd::Client::checkTlsFiles(settings.etcdOptions()); !usable)
      return tl::unexpected(usable.error());
  }
  const auto node = node::selectNodeAddresses(settings.address, node::readNetworkView());
  if (!node) return tl::unexpected(node.error());
  if (!node->warning.empty()) log.warning("{}", node->warning);

  auto made = std::make_unique<Cluster>();
  made->settings = settings;
  made->first = makeStore(settings, *node);
  if (settings.movesTo() != nullptr) made->second = makeStore(settings, *node);

  naming::Member::Options options = memberOptions(settings, *node, dns_port, process_.executor);
  options.runner = process_.programs;
  options.on_ownership = [this](const std::optional<naming::Ownership>&) { process_.status_changed(); };
  options.metrics = storeScope(settings, settings.startsAtPeers());
  if (const std::string directory = stateDirectory(settings); !directory.empty()) {
    auto state = node::StateDirectory::open({.directory = directory,
                                             .pattern = settings.pattern.text(),
                                             .predecessor = process_.predecessor,
                                             .takes_name = !settings.peers && !settings.observe},
                                            log);
    if (!state) return tl::unexpected(explained(state.error(), directory, process_));
    options.state = made->state = std::move(*state);
  }
  if (auto thread = makeThread(); !thread) return tl::unexpected(thread.error());
  if (settings.peers) {
    auto group = peerGroup(settings, *node);
    if (!group) return tl::unexpected(group.error());
    (settings.startsAtPeers() ? made->first : made->second)->peers = std::move(*group);
  }
  options.records = made->first->records;
  auto client = openStore(settings, *made->first, options.metrics);
  made->member =
      std::make_unique<naming::Member>(*etcd_thread_, std::move(client), *made->first->records, std::move(options), log,
                                       [this](const std::string& line) { process_.fatal("plugin/idetcd: " + line); });
  made->member->restore(tablesOf(*made->member->store()));
  if (made->second) {
    const auto scope = storeScope(settings, settings.endsAtPeers());
    made->member->addSecond(openStore(settings, *made->second, scope), made->second->records, scope, true);
    made->both = unite(settings, *node, *made->first, *made->second, records::RecordUnion::Second::kNeeded);
  }
  makeReports(*made);
  return made;
}

// Of a cluster that is new, or has taken a step.
void Clusters::makeReports(Cluster& cluster) {
  cluster.metrics.reset();
  cluster.metrics = std::make_unique<const ClusterMetrics>(scopeOf(cluster.settings), *cluster.member,
                                                           cluster.records(), cluster.settings.lease);
  std::vector<std::shared_ptr<peers::PeerGroup>> groups;
  for (const auto* store : {&cluster.first, &cluster.second}) {
    if (*store && (*store)->peers) groups.push_back((*store)->peers);
  }
  const auto peers = groups.empty() ? nullptr : groups.front();
  if (!cluster.report) {
    cluster.report = std::make_shared<ClusterReport>(cluster.records(), *cluster.member, cluster.settings, peers);
  } else {
    cluster.report->follow(cluster.records(), cluster.settings, peers);
  }
}

// Of the clusters that run over the same store.
std::vector<const records::RecordStore*> Clusters::tablesOf(const store::Store& store) const {
  const std::vector<std::string> endpoints = store.endpoints();
  std::vector<const records::RecordStore*> tables;
  for (const auto& cluster : running_) {
    const bool same = std::ranges::any_of(cluster->member->store()->endpoints(), [&endpoints](const std::string& one) {
      return std::ranges::find(endpoints, one) != endpoints.end();
    });
    if (same) tables.push_back(cluster->first->records.get());
  }
  return tables;
}

void Clusters::accept() {
  std::vector<std::unique_ptr<Cluster>> previous = std::exchange(running_, std::exchange(added_, {}));
  std::vector<std::unique_ptr<Cluster>> dropped;
  for (auto& cluster : previous) {
    const auto kept = std::ranges::find(kept_, cluster.get(), &Kept::cluster);
    if (kept != kept_.end()) cluster->settings.only = kept->only;
    (kept != kept_.end() ? running_ : dropped).push_back(std::move(cluster));
  }
  kept_.clear();
  for (Change& change : std::exchange(changes_, {})) apply(std::move(change));
  for (peers::PeerGroup* group : peerGroups()) {
    int64_t token = 0;
    for (const auto& cluster : running_) {
      for (const auto* store : {&cluster->first, &cluster->second}) {
        if (*store && (*store)->peers.get() == group) token = std::max(token, cluster->member->highestToken());
      }
    }
    group->start(token);
  }
  for (const auto& cluster : running_) {
    start(*cluster);
    if (cluster->state) cluster->state->linkIdentity(cluster->settings.only);
  }
  for (auto& cluster : dropped) retire(std::move(cluster));
  replaceLeft();  // one may have left while this configuration was built
}

// A reload makes new members, as a restart would.
void Clusters::replaceLeft() {
  if (std::ranges::any_of(running_, [](const auto& cluster) { return cluster->has_left.load(); }))
    process_.reloads.start();
}

void Clusters::apply(Change change) {
  using Step = ClusterSettings::Step;
  Cluster& cluster = *change.cluster;
  cluster.settings = std::move(change.settings);
  if (change.step == Step::kAddSecond) {
    cluster.second = std::move(change.second);
    cluster.both = std::move(change.both);
    cluster.member->addSecond(std::move(change.client), cluster.second->records,
                              storeScope(cluster.settings, cluster.settings.endsAtPeers()), false);
    makeReports(cluster);
    return;
  }
  using Which = naming::Member::Which;
  const Which which = change.step == Step::kKeepFirst ? Which::kFirst : Which::kSecond;
  if (which == Which::kSecond) std::swap(cluster.first, cluster.second);
  const auto store = std::make_shared<std::unique_ptr<ClusterStore>>(std::move(cluster.second));
  const auto both = std::make_shared<std::unique_ptr<records::RecordUnion>>(std::move(cluster.both));
  makeReports(cluster);
  ++droppings_;
  const auto drop = [this, member = cluster.member, which, store, both] {
    member->keep(which, kReleaseBudget);
    onWriter([both] { (*both)->end(); });
    both->reset();
    // A machine that leaves its own etcd hands over, as at its end.
    if ((*store)->peers.use_count() == 1) (*store)->peers->stop(kForHandingOver);
    store->reset();
    process_.loop.post([this] {
      --droppings_;
      onRetired();
    });
  };
  [[maybe_unused]] const bool taken = process_.executor->submit(drop);
  assert(taken);
}

// Whether it can be asked: a cluster that founds itself has to be there first.
bool Clusters::isReady(ClusterStore& store) {
  if (!store.peers) return true;
  std::vector<std::string> endpoints = store.peers->endpoints();
  if (endpoints.empty()) return false;
  store.client->setEndpoints(std::move(endpoints));
  return true;
}

// Until the stores can be asked, old names are answered.
void Clusters::start(Cluster& cluster) {
  using Membership = peers::PeerGroup::Membership;
  const auto membershipOf = [](const ClusterStore& store) {
    return store.peers ? store.peers->membership().value_or(Membership{}) : Membership{};
  };
  if (!isReady(*cluster.first)) return;
  if (!std::exchange(cluster.first->started, true)) {
    const Membership membership = membershipOf(*cluster.first);
    cluster.member->found(membership.number, membership.token_base);
    cluster.member->start();
  }
  if (!cluster.second || !isReady(*cluster.second) || std::exchange(cluster.second->started, true)) return;
  cluster.member->startSecond(membershipOf(*cluster.second).token_base);
}

void Clusters::refuse() {
  added_.clear();
  kept_.clear();
  for (Change& change : std::exchange(changes_, {})) {
    // The writer of the store that goes on looks at it.
    if (change.both) onWriter([both = change.both.get()] { both->end(); });
  }
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

// The members are made anew as soon as the group has the endpoints of the other cluster.
void Clusters::leave(uint16_t peers_port) {
  std::shared_ptr<peers::PeerGroup> group;
  std::vector<std::shared_ptr<naming::Member>> members;
  std::chrono::seconds lease{0};
  for (const auto& cluster : running_) {
    for (const auto* store : {&cluster->first, &cluster->second}) {
      if (!*store || !(*store)->peers || (*store)->peers->settings().port != peers_port) continue;
      group = (*store)->peers;
      lease = std::max(lease, cluster->settings.lease);
      if (!(*store)->started) continue;
      cluster->has_left = true;
      members.push_back(cluster->member);
    }
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
