#include "directive/idetcd/clusters.h"

#include <future>

#include "control/local_socket.h"
#include "directive/idetcd/relays.h"
#include "naming/watched_ranges.h"
#include "node/addresses.h"
#include "node/place.h"

namespace idetcd::directive {

using namespace std::chrono_literals;

namespace {

constexpr std::chrono::milliseconds kForHandingOver{800};  // even if the names have taken all the time
constexpr std::chrono::milliseconds kReplaceAgain{10'000};  // after a reload, which may have been refused

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
  options.hold = settings.hold;
  options.reconcile_interval = settings.reconcile;
  options.watched = naming::watchedRanges(settings.watch, settings.pattern);
  options.exit_when_full = settings.exit_when_full;
  options.observe = settings.observe;
  options.addresses = node.addresses;
  options.on_claim = settings.on_claim;
  options.services = settings.services;
  options.checks = settings.checks;
  options.check_times = settings.check_times;
  options.check_releases = settings.check_releases;
  options.check_floor_percent = settings.check_floor_percent;
  if (!settings.address.areFixed()) {
    options.find_addresses = [address = settings.address] {
      return node::selectNodeAddresses(address, node::readNetworkView());
    };
  }
  options.dns_port = dns_port;
  options.executor = std::move(executor);
  return options;
}

// Empty: not known.
std::string placeOf(const ClusterSettings& settings, const resolve::Process& process, const Logger& log) {
  if (settings.topology.empty()) return {};
  auto place = node::readPlace(settings.topology, process.programs.get());
  if (place) return std::move(*place);
  log.warning("this node has no place among the others: topology: {}", place.error().message);
  return {};
}

// Null: there is to be none.
Result<std::shared_ptr<node::StateDirectory>> openState(const ClusterSettings& settings,
                                                        const resolve::Process& process, const Logger& log) {
  const std::string directory = stateDirectory(settings);
  if (directory.empty()) return nullptr;
  auto state = node::StateDirectory::open({.directory = directory,
                                           .pattern = settings.pattern.text(),
                                           .predecessor = process.predecessor,
                                           .takes_name = !settings.observe},
                                          log);
  if (!state) return tl::unexpected(explained(state.error(), directory, process));
  return state;
}

}  // namespace

Clusters::~Clusters() { stop(); }

std::string Clusters::status() const {
  std::vector<std::string> all;
  for (const auto& cluster : running_) all.push_back(cluster->status());
  return fmt::format("{}", fmt::join(all, ", "));
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
  stores_.thread().post([written = &cluster->records(), observer = std::move(observer)]() mutable {
    written->addObserver(std::move(observer));
  });
}

void Clusters::forget(const records::RecordStore& store,
                      const std::shared_ptr<const records::RecordObserver>& observer) {
  for (const auto& cluster : running_) {
    std::vector<records::RecordStore*> tables{cluster->first->records.get()};
    if (cluster->both) tables.push_back(&cluster->both->sum());
    for (records::RecordStore* table : tables) {
      if (table == &store) stores_.thread().post([table, observer] { table->removeObserver(observer.get()); });
    }
  }
}

// --- for the configuration that is being built: on a thread of the executor, while the clusters run ---

Result<Clusters::Joined> Clusters::join(const ClusterSettings& settings, uint16_t dns_port) {
  const std::string& pattern = settings.pattern.text();
  auto asked = std::ranges::find(asked_, pattern, [](const Asked& one) { return one.settings.pattern.text(); });
  if (asked == asked_.end()) {
    auto found = ask(settings, dns_port);
    if (!found) return fail(fmt::format("plugin/idetcd: {}", found.error().message));
    asked = asked_.insert(asked_.end(), std::move(*found));
  } else if (!asked->settings.isSameMember(settings)) {
    return fail(fmt::format("plugin/idetcd: two blocks with the pattern {} differ", pattern));
  }
  return Joined{asked->cluster, asked->records};
}

Result<Clusters::Asked> Clusters::ask(const ClusterSettings& settings, uint16_t dns_port) {
  Asked asked{.settings = settings};
  const auto running = std::ranges::find(running_, settings.pattern.text(),
                                         [](const auto& cluster) { return cluster->settings.pattern.text(); });
  if (running == running_.end()) return askNew(std::move(asked), settings, dns_port);
  Cluster& cluster = **running;
  const bool same = cluster.settings.isSameMember(settings);
  const auto warnIfOther = [&] {
    if (same) return;
    process_.log.named("plugin/idetcd")
        .warning("{}: only 'fallthrough' changes without a restart", settings.pattern.text());
  };
  if (cluster.has_left) {
    warnIfOther();
    return askNew(std::move(asked), cluster.settings, dns_port);
  }
  const ClusterSettings::Step step = same ? ClusterSettings::Step::kNone : cluster.settings.stepTo(settings);
  if (step != ClusterSettings::Step::kNone) {
    auto change = prepare(cluster, settings, step);
    if (!change) return tl::unexpected(change.error());
    asked.cluster = &cluster;
    asked.records = change->answered;
    asked.change = std::move(*change);
    return asked;
  }
  if (!same && settings.move != ClusterSettings::Move::kNone)
    return fail(
        fmt::format("{}: a move begins with the option that the Corefile has already, which stands first, and "
                    "changes nothing else",
                    settings.pattern.text()));
  warnIfOther();
  asked.cluster = &cluster;
  asked.records = &cluster.records();
  return asked;
}

Result<Clusters::Asked> Clusters::askNew(Asked asked, const ClusterSettings& settings, uint16_t dns_port) {
  auto made = make(settings, dns_port);
  if (!made) return tl::unexpected(made.error());
  asked.made = std::move(*made);
  asked.cluster = asked.made.get();
  asked.records = &asked.made->records();
  return asked;
}

Result<Clusters::Change> Clusters::prepare(Cluster& cluster, const ClusterSettings& settings,
                                           ClusterSettings::Step step) {
  using Step = ClusterSettings::Step;
  Change made{.step = step};
  if (step == Step::kKeepSecond) {
    if (auto moved = cluster.checkMoved(); !moved) return tl::unexpected(moved.error());
    made.answered = cluster.second->records.get();
    return made;
  }
  if (step == Step::kKeepFirst) {
    made.answered = cluster.first->records.get();
    return made;
  }
  const auto node = node::selectNodeAddresses(settings.address, node::readNetworkView());
  if (!node) return tl::unexpected(node.error());
  made.second = stores_.make(settings, *node);
  if (settings.endsAtPeers()) {
    auto group = peerGroup(settings, *node);
    if (!group) return tl::unexpected(group.error());
    made.second->peers = std::move(*group);
  } else if (auto usable = etcd::Client::checkTlsFiles(settings.etcdOptions()); !usable) {
    return tl::unexpected(usable.error());
  }
  made.client = stores_.open(settings, *made.second, stores_.scopeOf(settings, settings.endsAtPeers()));
  made.both = stores_.unite(settings, *node, *cluster.first, *made.second, records::RecordUnion::Second::kOnceFresh);
  made.answered = &made.both->sum();
  return made;
}

// The one of these settings that there is, or a new one. A port is one group, whatever the patterns.
Result<std::shared_ptr<peers::PeerGroup>> Clusters::peerGroup(const ClusterSettings& settings,
                                                              const node::NodeAddresses& node) {
  std::vector<const ClusterStore*> stores;
  for (const auto& cluster : running_) std::ranges::copy(cluster->stores(), std::back_inserter(stores));
  for (const Asked& asked : asked_) {
    if (asked.made) std::ranges::copy(asked.made->stores(), std::back_inserter(stores));
    if (asked.change && asked.change->second) stores.push_back(asked.change->second.get());
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
        if (!cluster->has_left) cluster->start();
      }
    });
  };
  options.on_leave = [this, port = settings.peers->port] { process_.loop.post([this, port] { leave(port); }); };
  auto made = peers::PeerGroup::open(std::move(options), stores_.thread(), process_.log.named("plugin/idetcd"));
  if (!made) return tl::unexpected(explained(made.error(), stateDirectory(settings), process_));
  return std::move(*made);
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
  made->first = stores_.make(settings, *node);
  if (settings.movesTo() != nullptr) made->second = stores_.make(settings, *node);

  naming::Member::Options options = memberOptions(settings, *node, dns_port, process_.executor);
  options.runner = process_.programs;
  options.place = placeOf(settings, process_, log);
  options.on_ownership = [this](const std::optional<naming::Ownership>&) { process_.status_changed(); };
  options.metrics = stores_.scopeOf(settings, settings.startsAtPeers());
  auto state = openState(settings, process_, log);
  if (!state) return tl::unexpected(state.error());
  options.state = made->state = std::move(*state);
  if (options.hold.count() > 0 && !options.state) {
    options.hold = {};
    log.warning("hold without a state directory: a server that starts again is another node, so no name waits for it");
  }
  if (auto thread = stores_.begin(); !thread) return tl::unexpected(thread.error());
  if (settings.relay > 0) {
    options.relay = relayOptions(stores_.thread(), settings, process_, stores_.scopeOf(settings), log);
  }
  if (settings.peers) {
    auto group = peerGroup(settings, *node);
    if (!group) return tl::unexpected(group.error());
    (settings.startsAtPeers() ? made->first : made->second)->peers = std::move(*group);
  }
  options.records = made->first->records;
  auto client = stores_.open(settings, *made->first, options.metrics);
  made->member = std::make_unique<naming::Member>(
      stores_.thread(), std::move(client), *made->first->records, std::move(options), log,
      [this](const std::string& line) { process_.fatal("plugin/idetcd: " + line); });
  made->member->restore(tablesOf(*made->member->store()));
  if (made->second) {
    const auto scope = stores_.scopeOf(settings, settings.endsAtPeers());
    made->member->addSecond(stores_.open(settings, *made->second, scope), made->second->records, scope, true);
    made->both = stores_.unite(settings, *node, *made->first, *made->second, records::RecordUnion::Second::kNeeded);
  }
  makeReports(*made);
  return made;
}

// Of a cluster that is new, or has taken a step.
void Clusters::makeReports(Cluster& cluster) {
  cluster.metrics.reset();
  cluster.metrics = std::make_unique<const ClusterMetrics>(stores_.scopeOf(cluster.settings), *cluster.member,
                                                           cluster.records(), cluster.settings.lease);
  std::shared_ptr<peers::PeerGroup> peers;
  for (const ClusterStore* store : cluster.stores()) {
    if (!peers) peers = store->peers;
  }
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

// --- what runs ---

std::vector<peers::PeerGroup*> Clusters::peerGroups() const {
  std::vector<peers::PeerGroup*> groups;
  for (const auto& cluster : running_) {
    for (const ClusterStore* store : cluster->stores()) {
      peers::PeerGroup* const group = store->peers.get();
      if (group != nullptr && std::ranges::find(groups, group) == groups.end()) groups.push_back(group);
    }
  }
  return groups;
}

void Clusters::accept() {
  std::vector<std::unique_ptr<Cluster>> before = std::exchange(running_, {});
  for (Asked& asked : std::exchange(asked_, {})) {
    if (asked.made) {
      running_.push_back(std::move(asked.made));
    } else {
      const auto kept = std::ranges::find(before, asked.cluster, &std::unique_ptr<Cluster>::get);
      running_.push_back(std::move(*kept));
      before.erase(kept);
    }
    const bool only = asked.settings.only;
    if (asked.change) apply(*asked.cluster, std::move(asked.settings), std::move(*asked.change));
    asked.cluster->settings.only = only;
  }
  std::map<peers::PeerGroup*, int64_t> tokens;  // the highest that this machine has seen
  for (const auto& cluster : running_) {
    for (const ClusterStore* store : cluster->stores()) {
      if (!store->peers) continue;
      int64_t& token = tokens[store->peers.get()];
      token = std::max(token, cluster->member->highestToken());
    }
  }
  for (const auto& [group, token] : tokens) group->start(token);
  for (const auto& cluster : running_) {
    cluster->member->takeFiles();
    cluster->start();
    if (cluster->state) cluster->state->linkIdentity(cluster->settings.only);
  }
  for (auto& dropped : before) retire(std::move(dropped));
  replaceLeft();  // one may have left while this configuration was built
}

// A reload makes new members, as a restart would. It is tried again as long as it is refused.
void Clusters::replaceLeft() {
  if (std::ranges::none_of(running_, [](const auto& cluster) { return cluster->has_left.load(); })) return;
  process_.reloads.start();
  if (std::exchange(is_replacing_, true)) return;
  is_replacing_ = later_->submitAfter(kReplaceAgain, [this] {
    process_.loop.post([this] {
      is_replacing_ = false;
      replaceLeft();
    });
  });
}

void Clusters::apply(Cluster& cluster, ClusterSettings settings, Change change) {
  using Step = ClusterSettings::Step;
  cluster.settings = std::move(settings);
  if (change.step == Step::kAddSecond) {
    cluster.second = std::move(change.second);
    cluster.both = std::move(change.both);
    cluster.member->addSecond(std::move(change.client), cluster.second->records,
                              stores_.scopeOf(cluster.settings, cluster.settings.endsAtPeers()), false);
    return makeReports(cluster);
  }
  using Which = naming::Member::Which;
  const Which which = change.step == Step::kKeepFirst ? Which::kFirst : Which::kSecond;
  if (which == Which::kSecond) std::swap(cluster.first, cluster.second);
  const auto store = std::make_shared<std::unique_ptr<ClusterStore>>(std::move(cluster.second));
  const auto both = std::make_shared<std::unique_ptr<records::RecordUnion>>(std::move(cluster.both));
  makeReports(cluster);
  giveUp([this, member = cluster.member, which, store, both] {
    member->keep(which, kReleaseBudget);
    stores_.onWriter([both] { (*both)->end(); });
    both->reset();
    // A machine that leaves its own etcd hands over, as at its end.
    if ((*store)->peers.use_count() == 1) (*store)->peers->stop(kReleaseBudget);
    store->reset();
  });
}

// On the executor; the next configuration waits for it. If the process ends, nothing is given up in this way.
void Clusters::giveUp(std::function<void()> work) {
  ++giving_up_;
  const bool taken = process_.executor->submit([this, work = std::move(work)] {
    work();
    process_.loop.post([this] {
      --giving_up_;
      if (!isSettling()) process_.settled();
    });
  });
  if (!taken) --giving_up_;
}

void Clusters::refuse() {
  for (Asked& asked : std::exchange(asked_, {})) {
    // The writer of the store that goes on looks at it.
    if (asked.change && asked.change->both) stores_.onWriter([both = asked.change->both.get()] { both->end(); });
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
  std::erase_if(retirements_, [](const auto& before) { return before.expired(); });
  retirements_.push_back(*retired);
  giveUp([retired] {
    (*retired)->member->stop(kReleaseBudget);
    retired->reset();
  });
}

// The members are made anew as soon as the group has the endpoints of the other cluster.
void Clusters::leave(uint16_t peers_port) {
  std::shared_ptr<peers::PeerGroup> group;
  std::vector<std::shared_ptr<naming::Member>> members;
  std::chrono::seconds lease{0};
  for (const auto& cluster : running_) {
    for (const ClusterStore* store : cluster->stores()) {
      if (!store->peers || store->peers->settings().port != peers_port) continue;
      group = store->peers;
      lease = std::max(lease, cluster->settings.lease);
      if (!store->started) continue;
      cluster->has_left = true;
      members.push_back(cluster->member);
    }
  }
  if (!group) return;
  giveUp([group, members = std::move(members), lease] {
    int64_t token = 0;
    bool all_given_back = true;
    for (const auto& member : members) {
      if (!member->stop(kReleaseBudget)) all_given_back = false;
      token = std::max(token, member->highestToken());
    }
    group->left(all_given_back ? std::chrono::milliseconds(0) : peers::silenceAfter(lease), token);
  });
}

void Clusters::release(std::chrono::milliseconds budget) {
  const auto left = [this] {
    return std::max(std::chrono::ceil<std::chrono::milliseconds>(*release_end_ - BootClock::now()), 0ms);
  };
  release_end_ = BootClock::now() + budget;
  if (!peerGroups().empty()) budget -= std::min(budget, kForHandingOver);
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
  for (peers::PeerGroup* group : peerGroups()) group->stop(std::max(left(), kForHandingOver));
}

void Clusters::abandon() {
  for (const auto& cluster : running_) cluster->member->abandon(process_.successor);
  for (const auto& retired : retirements_) {
    if (const auto cluster = retired.lock()) cluster->member->abandon();
  }
}

void Clusters::stop() {
  for (const auto& cluster : running_) cluster->member->stop(std::chrono::milliseconds(0));
  for (const Asked& asked : asked_) {
    if (asked.made) asked.made->member->stop(std::chrono::milliseconds(0));
  }
  for (peers::PeerGroup* group : peerGroups()) group->stop(std::chrono::milliseconds(0));
  // What could not be given back in its time is not tried for longer: its lease ends by itself.
  std::chrono::nanoseconds grace = etcd::CompletionThread::kStopGrace;
  if (release_end_) grace = std::clamp(std::chrono::nanoseconds(*release_end_ - BootClock::now()), 0ns, grace);
  stores_.stop(grace);
}

}  // namespace idetcd::directive
