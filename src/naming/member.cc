#include "naming/member.h"

#include <filesystem>
#include <future>

#include "naming/health_gate.h"
#include "naming/machine_watch.h"
#include "naming/names_saver.h"
#include "naming/own_names.h"
#include "naming/ownership_notifier.h"
#include "naming/ownership_reporter.h"
#include "naming/protocol.h"
#include "naming/published_addresses.h"
#include "naming/saved_names.h"
#include "naming/watched_ranges.h"
#include "node/uuid.h"

namespace idetcd::naming {

using namespace std::chrono_literals;

// A node's part in one store.
struct Member::Side {
  // `has_predecessor`: the state directory may say what an earlier process has in this store.
  Side(Impl& member, std::unique_ptr<store::Store> given_store, records::RecordStore& record_store,
       std::shared_ptr<const void> records_owner, const metrics::Scope& metrics,
       std::function<void(std::string)> on_fatal, bool has_predecessor);

  // False: something is held still, or may be.
  bool waitUntilReleased(std::chrono::milliseconds budget) const {
    return !started || (is_released.wait_for(budget) == std::future_status::ready && is_released.get());
  }

  const std::shared_ptr<const void> keeps_records;  // may be null: they outlive the member
  const std::unique_ptr<store::Store> store;
  records::RecordStore& records;
  std::promise<bool> released;  // nothing is held any more; see Member::stop()
  const std::shared_future<bool> is_released = released.get_future().share();
  std::atomic<bool> started{false};
  Protocol protocol;
};

struct Member::Impl : std::enable_shared_from_this<Member::Impl> {
  using Self = std::shared_ptr<Impl>;

  Impl(runtime::Scheduler& given_scheduler, std::unique_ptr<store::Store> store, records::RecordStore& records,
       Options member_options, Logger logger, std::function<void(std::string)> on_fatal);

  Protocol::Options protocolOptions(Side& side, const metrics::Scope& metrics,
                                    std::function<void(std::string)> on_fatal, bool has_predecessor);
  std::shared_ptr<NamesSaver> makeSaver();
  std::shared_ptr<Side> lead() const;
  std::pair<std::shared_ptr<Side>, std::shared_ptr<Side>> bothSides() const;
  void start(const std::shared_ptr<Side>& side);
  void link(const std::shared_ptr<Side>& side, bool needed);
  void onChange();
  void noteGeneration();
  void follow();
  void setTold(bool told);
  struct Dropped {
    std::shared_ptr<Side> side;         // null: there was none
    std::shared_ptr<NamesSaver> saver;  // of it; may be null
  };
  Dropped drop(Which kept);
  void rememberClaim();
  OwnershipReporter::Listener ownershipListener();
  void onClaimed(const Ownership& owned);
  void onLost();
  void keepLeases(const Side& side, uint64_t cluster_id, std::vector<int64_t> leases, std::function<void()> kept);
  std::function<void()> onScheduler(std::function<void()> work);
  void dropHandedOver();
  void onAddresses(const Result<node::NodeAddresses>& found);
  void setDrained(bool wanted);
  void publishDrained();
  void watchHealth();
  void onHealth(const std::string& sick);
  void setOut(bool out);
  bool isDrainedByCheck() const { return health.out && !options.check_releases; }
  void noteFloor(bool may_be_out);
  void restore(const std::vector<const records::RecordStore*>& known);
  void takeFiles();
  void dropFiles();
  bool takeOver(const std::vector<const records::RecordStore*>& known);
  void start();
  void giveUp();
  void close(std::chrono::milliseconds budget, bool may_save);

  // --- tasks. Each keeps what it works on alive, by a parameter: a lambda's captures would die before the coroutine ---
  static runtime::Task<void> runReporter(Self impl);
  static runtime::Task<void> runRoster(Self impl, Done<store::StoreResult<Roster>> done);
  static runtime::Task<void> runSlot(Self impl, std::string name,
                                     Done<store::StoreResult<std::optional<RosterSlot>>> done);
  static runtime::Task<void> runRelease(Self impl, std::string name, int64_t revision,
                                        Done<store::StoreResult<bool>> done);
  static runtime::Task<void> runDrain(Self impl, bool wanted, Done<Drained> done);
  static runtime::Task<bool> isWritten(Self impl);
  static runtime::Task<void> runHealthGate(Self impl);
  static runtime::Task<void> runGeneration(Self impl);
  static runtime::Task<void> runHandedOver(Self impl, BootClock::time_point until);
  static runtime::Task<void> runDiskWatch(Self impl);

  runtime::Scheduler& scheduler;
  KernelRandom random;
  const Options options;
  const Logger log;
  FileCounters counters;
  Lifetime lifetime;
  mutable std::mutex sides;  // guards which they are: only the scheduler's thread changes it, once there are tasks
  std::shared_ptr<Side> first;
  std::shared_ptr<Side> second;  // null: there is one store
  OwnNames name;
  PublishedAddresses addresses;
  OwnershipReporter reporter;

  const std::shared_ptr<Executor::Strand> files;  // small ones
  const std::shared_ptr<Executor::Strand> saves;  // of the names
  std::unique_ptr<OwnershipNotifier> notifier;    // if there is a state directory or a hook
  std::shared_ptr<NamesSaver> saver;              // if there is a state directory
  std::unique_ptr<MachineWatch> machine;          // from start() to stop()
  std::unique_ptr<node::HealthChecks> checks;     // from start() to stop(), if there are any
  HealthGate gate;
  runtime::Event health_changed;
  runtime::Event generation_changed;

  int64_t preferred = 0;     // slot; before start()
  NamedNode named;           // the name under which the claim was reported. Scheduler's thread only
  uint64_t tellings = 0;     // of claims. Scheduler's thread only
  bool handed_over = false;  // the identity file has a predecessor's name; from takeFiles() on scheduler's thread only
  bool unsaved = false;      // read when quiet

  std::atomic<bool> drained{false};
  std::atomic<bool> had_name{false};  // it was owned: a claim alone does not count
  mutable std::mutex health_mutex;
  bool held_by_floor = false;  // as logged. Scheduler's thread only
  Health health;  // guarded by health_mutex; scheduler's thread only changes it
  std::mutex starting;  // guards the next three
  bool has_files = false;
  bool started = false;
  bool stopped = false;
  std::once_flag restored;
  std::once_flag stop_once;
  std::once_flag close_once;
  std::promise<void> quiet;  // nothing is published and no callback is called any more
  const std::shared_future<void> is_quiet = quiet.get_future().share();
};

namespace {

Member::Options withUuid(Member::Options options, RandomSource& random) {
  if (options.uuid.empty()) options.uuid = options.state ? options.state->node().uuid : node::randomUuid(random);
  return options;
}

Claim::Options claimOptions(const Member::Options& options, bool has_predecessor) {
  NodeRecord record;
  record.ipv4 = options.addresses.ipv4;
  record.ipv6 = options.addresses.ipv6;
  record.port = fmt::format("{}", options.dns_port);
  record.id = options.uuid;
  record.services = options.services;
  record.networks = options.addresses.networks;
  record.place = options.place;
  std::optional<Claim::Predecessor> predecessor;
  if (has_predecessor && options.state && options.state->predecessorEnded()) {
    const node::RememberedNode& before = options.state->node();
    predecessor = Claim::Predecessor{before.cluster_id, before.revision, before.leases};
  }
  return {.pattern = options.pattern,
          .lease = options.lease,
          .hold = options.hold,
          .record = std::move(record),
          .predecessor = predecessor};
}

// Keeps what it works on alive. Parameters, not captures: a lambda's captures would die before the coroutine.
template <typename Side>
runtime::Task<void> runSaver(std::shared_ptr<Side> side, std::shared_ptr<NamesSaver> saver) {
  co_await saver->saveRegularly(side->protocol.lifetime());
}

std::unique_ptr<OwnershipNotifier> makeNotifier(const Member::Options& options, std::shared_ptr<Executor::Strand> files,
                                                FileCounters& counters, const Logger& log) {
  if (!options.state && options.on_claim.empty()) return nullptr;
  std::optional<node::ClaimHook::Options> hook;
  if (!options.on_claim.empty()) hook = node::ClaimHook::Options{.command = options.on_claim, .runner = options.runner};
  return std::make_unique<OwnershipNotifier>(options.state, std::move(hook), std::move(files), counters, log);
}

}  // namespace

Member::Side::Side(Impl& member, std::unique_ptr<store::Store> given_store, records::RecordStore& record_store,
                   std::shared_ptr<const void> records_owner, const metrics::Scope& metrics,
                   std::function<void(std::string)> on_fatal, bool has_predecessor)
    : keeps_records(std::move(records_owner)),
      store(std::move(given_store)),
      records(record_store),
      protocol(member.scheduler, *store, member.random, records,
               member.protocolOptions(*this, metrics, std::move(on_fatal), has_predecessor), member.log) {}

Member::Impl::Impl(runtime::Scheduler& given_scheduler, std::unique_ptr<store::Store> store,
                   records::RecordStore& records, Options member_options, Logger logger,
                   std::function<void(std::string)> on_fatal)
    : scheduler(given_scheduler),
      options(withUuid(std::move(member_options), random)),
      log(std::move(logger)),
      counters(options.metrics),
      lifetime(scheduler),
      first(std::make_shared<Side>(*this, std::move(store), records, options.records, options.metrics,
                                   std::move(on_fatal), true)),
      name({first, &first->protocol.name()}),
      addresses(options.addresses, log),
      reporter(scheduler, lifetime, name, ownershipListener()),
      files(options.executor->makeStrand()),
      saves(options.executor->makeStrand()),
      notifier(makeNotifier(options, files, counters, log)),
      saver(makeSaver()),
      gate(lifetime, {.pattern = options.pattern,
                      .floor_percent = options.check_floor_percent,
                      .interval = options.check_times.interval}),
      health_changed(scheduler),
      generation_changed(scheduler) {}

std::shared_ptr<NamesSaver> Member::Impl::makeSaver() {
  if (!options.state) return nullptr;
  return std::make_shared<NamesSaver>(scheduler, first->records, first->protocol.source(), counters, saves,
                                      NamesSaver::Options{.file = options.state->namesFile(),
                                                          .pattern = options.pattern.text(),
                                                          .interval = options.save_interval,
                                                          .max_names = options.max_names},
                                      log);
}

Protocol::Options Member::Impl::protocolOptions(Side& side, const metrics::Scope& metrics,
                                                std::function<void(std::string)> on_fatal, bool has_predecessor) {
  Claim::Options claim = claimOptions(options, has_predecessor);
  claim.keep_leases = [this, &side](uint64_t cluster_id, std::vector<int64_t> leases, std::function<void()> kept) {
    keepLeases(side, cluster_id, std::move(leases), std::move(kept));
  };
  claim.former_gone = [this, &side] {
    if (&side == first.get()) dropHandedOver();
  };
  return {.claim = std::move(claim),
          .exit_when_full = options.exit_when_full && on_fatal,
          .observe = options.observe,
          .reconcile_interval = options.reconcile_interval,
          .max_names = options.max_names,
          .watched = options.watched,
          .relay = options.relay,
          .metrics = metrics,
          .on_refused = std::move(on_fatal),
          .on_change = [this] { onChange(); },
          .on_released = [&side] { side.released.set_value(side.protocol.gaveBack()); }};
}

std::shared_ptr<Member::Side> Member::Impl::lead() const { return bothSides().first; }

std::pair<std::shared_ptr<Member::Side>, std::shared_ptr<Member::Side>> Member::Impl::bothSides() const {
  const std::lock_guard lock(sides);
  return {first, second};
}

OwnershipReporter::Listener Member::Impl::ownershipListener() {
  return {.claimed = [this](const Ownership& owned) { onClaimed(owned); }, .lost = [this] { onLost(); }};
}

void Member::Impl::onClaimed(const Ownership& owned) {
  const NodeRecord& record = name.record();
  // Its own claim is a change of the membership, which may be known before all others are.
  const int64_t generation = first->protocol.generation().ofClaim(owned.revision);
  named = {owned.name,       owned.id, owned.token, record.id, addresses.get(), owned.revision,
           owned.cluster_id, drained,  generation};
  ++tellings;
  had_name = true;
  handed_over = false;
  setTold(notifier != nullptr);
  if (notifier) notifier->claimed(named);
  if (options.on_ownership) options.on_ownership(owned);
}

void Member::Impl::onLost() {
  const auto told = [this, number = tellings] {
    if (number == tellings) setTold(false);
  };
  if (notifier) notifier->lost(named, onScheduler(told));
  if (options.on_ownership) options.on_ownership(std::nullopt);
}

// The member itself is looked for on the scheduler's thread only: it is not to end on one that it waits for.
std::function<void()> Member::Impl::onScheduler(std::function<void()> work) {
  return [&scheduler = scheduler, weak = weak_from_this(), work = std::move(work)] {
    scheduler.post([weak, work] {
      if (const auto self = weak.lock()) work();
    });
  };
}

void Member::Impl::setTold(bool told) {
  first->protocol.setTold(told);
  if (second) second->protocol.setTold(told);
}

// --- two stores ---

void Member::Impl::link(const std::shared_ptr<Side>& side, bool needed) {
  side->records.setGeneration(first->records.generation());  // it goes on from there
  side->protocol.name().setAddresses(addresses.get());
  side->protocol.name().setDrained(drained || isDrainedByCheck());
  if (!options.observe) side->protocol.bindTo(0, 0);
  if (reporter.reported()) side->protocol.setTold(notifier != nullptr);
  name.add({side, &side->protocol.name()}, needed || first->protocol.heldId() == 0);
  const std::lock_guard lock(sides);
  second = side;
}

void Member::Impl::onChange() {
  if (second && !options.observe) follow();
  reporter.report();
  // After stop() there may be no records.
  if (!lifetime.stopping() && first->records.generation() > named.generation) generation_changed.set();
}

// REQUIRES: a notifier.
void Member::Impl::noteGeneration() {
  if (lifetime.stopping() || !reporter.reported() || first->records.generation() <= named.generation) return;
  named.generation = first->records.generation();
  notifier->counted(named);
}

// The second store is to have the name that the first one has.
void Member::Impl::follow() {
  if (first->protocol.heldId() == 0) name.need();
  second->protocol.bindTo(first->protocol.heldId(), first->protocol.heldToken());
  if (const auto owned = second->protocol.name().ownership()) first->protocol.raiseToken(owned->token);
  if (name.needsBoth() || !name.join()) return;
  log.info("the name is in the store that the cluster moves to, too: it is owned only while both confirm it");
}

Member::Impl::Dropped Member::Impl::drop(Which kept) {
  if (!second || lifetime.stopping()) return {};
  const std::shared_ptr<Side> gone = kept == Which::kFirst ? second : first;
  Dropped dropped{.side = gone, .saver = nullptr};
  kept == Which::kFirst ? name.keepFirst() : name.keepSecond();
  {
    const std::lock_guard lock(sides);
    if (kept == Which::kSecond) {
      second->protocol.generation().goOnFrom(first->records.generation());
      first = second;
    }
    second.reset();
  }
  if (kept == Which::kSecond) {
    if (!(health.out && options.check_releases)) first->protocol.bindTo(std::nullopt, 0);
    dropped.saver = std::exchange(saver, makeSaver());
    if (dropped.saver) dropped.saver->abandon();
    if (saver) scheduler.spawn(runSaver(first, saver));
    rememberClaim();
  }
  gone->protocol.setTold(false);  // the name goes on
  gone->protocol.stop();
  reporter.report();
  return dropped;
}

// For a successor, which finds it in the store that is the first now.
void Member::Impl::rememberClaim() {
  const auto owned = first->protocol.name().ownership();
  if (!notifier || !owned || !reporter.reported()) return;
  named.uuid = first->protocol.name().record().id;
  named.revision = owned->revision;
  named.cluster_id = owned->cluster_id;
  notifier->leased(owned->cluster_id, {owned->lease}, {});
  notifier->moved(named);
}

// Of the second store's lease nothing is kept: after a crash it is waited for.
void Member::Impl::keepLeases(const Side& side, uint64_t cluster_id, std::vector<int64_t> leases,
                              std::function<void()> kept) {
  if (!options.state || &side != first.get()) return kept();
  notifier->leased(cluster_id, std::move(leases), onScheduler(std::move(kept)));
}

void Member::Impl::dropHandedOver() {
  if (std::exchange(handed_over, false)) notifier->forget();
}

void Member::Impl::onAddresses(const Result<node::NodeAddresses>& found) {
  if (lifetime.stopping() || !addresses.update(found)) return;
  const records::MemberAddresses now = addresses.get();
  first->records.setAddresses(now.list());
  if (second) second->records.setAddresses(now.list());
  name.setAddresses(now);
  named.addresses = now;
  if (notifier && reporter.reported()) notifier->moved(named);
}

void Member::Impl::setDrained(bool wanted) {
  if (drained.exchange(wanted) != wanted) {
    log.info("this node's addresses are {} its name: an operator has said so", wanted ? "taken out of" : "back under");
  }
  publishDrained();
  named.drained = wanted;
  if (notifier && reporter.reported()) notifier->moved(named);
}

void Member::Impl::publishDrained() { name.setDrained(drained || isDrainedByCheck()); }

void Member::Impl::watchHealth() {
  checks = std::make_unique<node::HealthChecks>(
      options.checks, options.check_times, options.runner,
      [weak = weak_from_this(), &posted = scheduler](const std::string& sick) {
        posted.post([weak, sick] {
          if (const auto self = weak.lock()) self->onHealth(sick);
        });
      },
      log);
}

void Member::Impl::onHealth(const std::string& sick) {
  if (lifetime.stopping()) return;
  if (!sick.empty() && health.sick.empty()) log.warning("this machine is sick: {}", sick);
  if (sick.empty() && !health.sick.empty()) log.info("this machine is well again");
  const bool flips = sick.empty() != health.sick.empty();
  {
    const std::lock_guard lock(health_mutex);
    health.sick = sick;
  }
  if (flips) health_changed.set();
}

void Member::Impl::setOut(bool out) {
  if (health.out == out) return;
  {
    const std::lock_guard lock(health_mutex);
    health.out = out;
  }
  if (!options.check_releases) {
    log.info("this node's addresses are {} its name, by its checks", out ? "taken out of" : "back under");
    return publishDrained();
  }
  log.info("this node {} by its checks", out ? "gives its name up, and asks for none," : "asks for a name again,");
  first->protocol.bindTo(out ? std::optional<int64_t>(0) : std::nullopt, 0);
  if (second) onChange();
}

// Says it once for each time.
void Member::Impl::noteFloor(bool may_be_out) {
  if (std::exchange(held_by_floor, !may_be_out) || may_be_out) return;
  log.warning("this node stays in, though its machine is sick: less than {} % of the nodes would be left",
              options.check_floor_percent);
}

// True: a store knew some names.
bool Member::Impl::takeOver(const std::vector<const records::RecordStore*>& known) {
  Protocol& protocol = first->protocol;
  records::RecordStore& table = first->records;
  for (const records::RecordStore* other : known) {
    forEachName(*other, [&](const SavedName& saved) {
      if (!isWatched(options.watched, saved.name.toString())) return;
      protocol.sawToken(saved.mod_revision);
      if (table.size() < options.max_names) table.put(saved.name, saved.addresses, saved.mod_revision, saved.member);
    });
  }
  if (table.size() == 0) return false;
  protocol.source().restored();
  table.setFreshness(records::Freshness::kFromFile);
  log.info("{} names as they are known already, until etcd answers", table.size());
  return true;
}

void Member::Impl::restore(const std::vector<const records::RecordStore*>& known) {
  const bool taken_over = takeOver(known);
  if (!options.state) return;
  const node::RememberedNode& node = options.state->node();
  if (node.drained) {
    log.warning("this node is drained, as before it was started: its name has no address until idetcd undrain");
    drained = true;
    publishDrained();
  }
  Protocol& protocol = first->protocol;
  protocol.sawToken(node.token);
  if (options.pattern.recognise(node.name) == node.id) preferred = node.id;
  if (!taken_over) saver->restore([&protocol](int64_t revision) { protocol.sawToken(revision); });
}

runtime::Task<void> Member::Impl::runReporter(Self impl) { co_await impl->reporter.watchDeadline(); }

runtime::Task<void> Member::Impl::runRoster(Self impl, Done<store::StoreResult<Roster>> done) {
  const auto side = impl->lead();
  std::shared_ptr<void> owner = side;
  store::StoreResult<Roster> roster = co_await side->protocol.roster().read(std::move(owner));
  done(std::move(roster));
}

runtime::Task<void> Member::Impl::runSlot(Self impl, std::string name,
                                          Done<store::StoreResult<std::optional<RosterSlot>>> done) {
  const auto side = impl->lead();
  std::shared_ptr<void> owner = side;
  RosterReader& roster = side->protocol.roster();
  store::StoreResult<std::optional<RosterSlot>> slot = co_await roster.readSlot(name, std::move(owner));
  done(std::move(slot));
}

runtime::Task<void> Member::Impl::runRelease(Self impl, std::string name, int64_t revision,
                                             Done<store::StoreResult<bool>> done) {
  const auto side = impl->lead();
  store::StoreResult<bool> released = co_await side->protocol.roster().release(name, revision);
  done(std::move(released));
}

runtime::Task<void> Member::Impl::runDrain(Self impl, bool wanted, Done<Drained> done) {
  impl->setDrained(wanted);
  const bool published = co_await impl->name.whenPublished(kDrainPatience);
  const bool remembered = co_await isWritten(impl);
  done({.published = published, .remembered = remembered, .sick = impl->health.out ? impl->health.sick : ""});
}

// Whether the state directory has all that was said until now. A disk that stands still is not waited for.
runtime::Task<bool> Member::Impl::isWritten(Self impl) {
  constexpr std::chrono::nanoseconds kPatience = 2s;
  if (!impl->options.state) co_return false;
  const auto reached = std::make_shared<runtime::Event>(impl->scheduler);
  const bool is_asked = impl->files->submit(impl->onScheduler([reached] { reached->set(); }));
  if (!is_asked) co_return false;
  const bool is_reached = co_await reached->wait(kPatience);
  co_return is_reached && impl->notifier->isWritten();
}

// Whether a sick node may be out, asked again and again; a node that is well is in. What the store does not answer changes
// nothing.
runtime::Task<void> Member::Impl::runHealthGate(Self impl) {
  while (!impl->lifetime.stopping()) {
    impl->health_changed.reset();
    const auto side = impl->lead();
    const BootClock::time_point asked = impl->scheduler.now();
    if (impl->health.sick.empty()) {
      impl->noteFloor(true);
      const bool was_out = impl->health.out;
      impl->setOut(false);
      if (was_out) co_await impl->name.whenPublished(kDrainPatience);
      co_await impl->gate.leave(*side->store);
    } else {
      std::string uuid = impl->name.uuid();
      const store::StoreResult<bool> may = co_await impl->gate.ask(*side->store, std::move(uuid));
      if (impl->lifetime.stopping()) break;
      // A name that was given up is asked for once the machine is well.
      const bool stays_out = impl->options.check_releases && impl->health.out;
      if (may && !stays_out && !impl->health.sick.empty()) {
        impl->setOut(*may);
        impl->noteFloor(*may);
      }
    }
    const std::chrono::nanoseconds took = impl->scheduler.now() - asked;
    const std::chrono::nanoseconds interval = impl->options.check_times.interval;
    const bool is_well = impl->health.sick.empty() && !impl->health.out;
    co_await impl->health_changed.wait(is_well ? 1h : std::clamp(20 * took, interval, 2 * interval));
  }
  const auto side = impl->lead();
  co_await impl->gate.leave(*side->store);
}

// Many changes at once are written once a second.
runtime::Task<void> Member::Impl::runGeneration(Self impl) {
  while (!impl->lifetime.stopping()) {
    co_await impl->generation_changed.wait(1h);
    impl->generation_changed.reset();
    impl->noteGeneration();
    co_await impl->lifetime.pause(1s);
  }
}

// A timer sleeps while the machine is suspended: so no sleep is long.
runtime::Task<void> Member::Impl::runHandedOver(Self impl, BootClock::time_point until) {
  while (impl->handed_over) {
    const std::chrono::nanoseconds left = until - impl->scheduler.now();
    if (left.count() <= 0) co_return impl->dropHandedOver();
    const bool go_on = co_await impl->lifetime.pause(std::min<std::chrono::nanoseconds>(left, 1s));
    if (!go_on) co_return;
  }
}

// What was not written to the state directory, since the disk is full, is written later. That the disk stands still is
// said, once: a write that never ends says nothing itself.
runtime::Task<void> Member::Impl::runDiskWatch(Self impl) {
  constexpr std::chrono::nanoseconds kPatience = 5s;
  bool was_slow = false;
  const auto done = std::make_shared<std::atomic<bool>>(true);  // what was before this in the strand
  while (true) {
    if (done->exchange(false, std::memory_order_relaxed)) {
      const auto note = [done] { done->store(true, std::memory_order_relaxed); };
      if (!impl->files->submit(note)) note();  // the process ends: that says nothing of the disk
    }
    const bool go_on = co_await impl->lifetime.pause(kPatience);
    if (!go_on) co_return;
    const bool is_slow = !done->load(std::memory_order_relaxed);
    if (!is_slow) impl->notifier->writeAgain();
    if (!is_slow || std::exchange(was_slow, true)) continue;
    impl->log.warning(
        "state directory {}: a write still takes its time after {} s; a claim, a loss and a change of the pattern wait "
        "for it",
        std::filesystem::path(impl->options.state->namesFile()).parent_path().string(), kPatience / 1s);
  }
}

// A reload waits for no disk.
void Member::Impl::takeFiles() {
  if (!options.state || std::exchange(has_files, true)) return;
  const auto self = shared_from_this();
  handed_over = preferred != 0 && options.state->handedOver();
  notifier->take(handed_over);
  scheduler.spawn(runDiskWatch(self));
  if (handed_over) scheduler.spawn(runHandedOver(self, *options.state->handedOver()));
}

// Of a member that was not started: it owns no name.
void Member::Impl::dropFiles() {
  if (!has_files) return;
  scheduler.post([self = shared_from_this()] { self->lifetime.stop(); });
  files->submit([self = shared_from_this()] {
    (void)self->options.state->writeIdentity("");
    self->options.state->release();
  });
  files->drain();
}

void Member::Impl::start() {
  const auto self = shared_from_this();
  takeFiles();
  scheduler.spawn(runReporter(self));
  if (notifier) scheduler.spawn(runGeneration(self));
  if (saver) scheduler.spawn(runSaver(first, saver));
  first->protocol.prefer(preferred);
  start(first);
  if (!options.checks.empty() && !options.observe) {
    scheduler.spawn(runHealthGate(self));
    watchHealth();
  }
  machine = std::make_unique<MachineWatch>(scheduler, self, log);
  if (!options.observe) machine->watchGeneration(name);
  if (options.find_addresses) {
    machine->watchAddresses(options.find_addresses,
                            [this](const Result<node::NodeAddresses>& found) { onAddresses(found); });
  }
}

void Member::Impl::start(const std::shared_ptr<Side>& side) {
  side->started = true;
  side->protocol.start(
      std::make_shared<std::pair<std::shared_ptr<Impl>, std::shared_ptr<Side>>>(shared_from_this(), side));
}

// Ends when nothing is published and called back any more.
void Member::Impl::giveUp() {
  checks.reset();
  machine.reset();
  const bool accepted = scheduler.post([self = shared_from_this()] {
    self->lifetime.stop();
    self->health_changed.set();
    self->generation_changed.set();
    self->reporter.report();
    if (self->second) self->second->protocol.stop();
    self->first->protocol.stop();
    self->unsaved = self->saver && self->saver->hasUnsaved();
    self->quiet.set_value();
  });
  // Refused: the thread is at its end, and every task with it, or it will be when its stop() returns.
  if (!accepted) quiet.set_value();
}

// REQUIRES: quiet.
void Member::Impl::close(std::chrono::milliseconds budget, bool may_save) {
  if (!notifier) return;
  if (saver) {
    if (may_save && unsaved) saver->save();
    if (!may_save) saver->abandon();
  }
  if (options.state) {
    files->submit([this] { (void)options.state->writeIdentity(""); });  // whatever way the end came
  }
  notifier->finish(budget);  // first: a program does not wait for a disk
  files->drain();
  if (saver) saver->drain();
  if (options.state) options.state->release();
}

// --- Member ---

Member::Member(runtime::Scheduler& scheduler, std::unique_ptr<store::Store> store, records::RecordStore& records,
               Options options, Logger log, std::function<void(std::string)> on_fatal)
    : impl_(std::make_shared<Impl>(scheduler, std::move(store), records, std::move(options), std::move(log),
                                   std::move(on_fatal))) {
  assert(impl_->first->store != nullptr);
}

Member::~Member() { stop(std::chrono::milliseconds(0)); }

void Member::restore(const std::vector<const records::RecordStore*>& known) {
  std::call_once(impl_->restored, [this, &known] { impl_->restore(known); });
}

void Member::found(int64_t id, int64_t token_base) {
  if (impl_->preferred == 0) impl_->preferred = id;
  impl_->first->protocol.sawToken(token_base);
}

int64_t Member::highestToken() const { return impl_->lead()->protocol.highestToken(); }

void Member::start() {
  const std::lock_guard lock(impl_->starting);
  assert(!impl_->started);
  if (impl_->started || impl_->stopped) return;
  impl_->started = true;
  restore();
  impl_->start();
}

void Member::takeFiles() {
  const std::lock_guard lock(impl_->starting);
  if (impl_->stopped) return;
  restore();
  impl_->takeFiles();
}

bool Member::stop(std::chrono::milliseconds budget) {
  assert(!impl_->scheduler.onThread());
  {
    const std::lock_guard lock(impl_->starting);
    const bool was_stopped = std::exchange(impl_->stopped, true);
    if (!impl_->started && !was_stopped) impl_->dropFiles();
    if (!impl_->started) return true;
  }
  const BootClock::time_point end = impl_->scheduler.now() + budget;
  std::call_once(impl_->stop_once, [this] { impl_->giveUp(); });
  impl_->is_quiet.wait();
  const auto [first, second] = impl_->bothSides();
  bool released = first->waitUntilReleased(budget);
  if (second) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - impl_->scheduler.now());
    released = second->waitUntilReleased(std::max(left, std::chrono::milliseconds(0))) && released;
  }
  std::call_once(impl_->close_once, [this, budget, end, first = first] {
    constexpr std::chrono::milliseconds kForTheHook{500};  // even if etcd has taken all the time
    constexpr size_t kQuicklySaved = 100'000;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - impl_->scheduler.now());
    const bool in_haste = budget.count() == 0;
    const bool may_save = !in_haste && first->records.size() <= kQuicklySaved;
    impl_->close(in_haste ? budget : std::max(left, kForTheHook), may_save);
  });
  return released;
}

void Member::addSecond(std::unique_ptr<store::Store> store, std::shared_ptr<records::RecordStore> records,
                       const metrics::Scope& metrics, bool needed) {
  records::RecordStore& table = *records;
  const auto side =
      std::make_shared<Side>(*impl_, std::move(store), table, std::move(records), metrics, nullptr, false);
  const std::lock_guard lock(impl_->starting);
  if (!impl_->started) return impl_->link(side, needed);
  impl_->scheduler.post([impl = impl_, side, needed] {
    if (!impl->lifetime.stopping()) impl->link(side, needed);
  });
}

void Member::startSecond(int64_t token_base) {
  const std::lock_guard lock(impl_->starting);
  const auto start = [impl = impl_, token_base] {
    if (!impl->second || impl->lifetime.stopping()) return;
    impl->second->protocol.sawToken(token_base);
    impl->start(impl->second);
    impl->onChange();
  };
  if (impl_->started && !impl_->stopped) impl_->scheduler.post(start);
}

void Member::keep(Which which, std::chrono::milliseconds budget) {
  assert(!impl_->scheduler.onThread());
  const auto dropped = std::make_shared<Impl::Dropped>();
  auto done = std::make_shared<std::promise<void>>();
  const std::future<void> is_done = done->get_future();
  impl_->scheduler.post([impl = impl_, which, dropped, done = std::move(done)] {
    *dropped = impl->drop(which);
    done->set_value();
  });
  is_done.wait();  // or the thread has ended, and the promise with it
  const auto [side, saver] = std::exchange(*dropped, {});
  if (side) side->waitUntilReleased(budget);
  if (saver) saver->drain();
}

std::optional<Member::Second> Member::second() const {
  const auto [first, second] = impl_->bothSides();
  if (!second) return std::nullopt;
  return Second{.store = {second, second->store.get()},
                .connected = second->protocol.counters().watch_connected.value() != 0,
                .needed = impl_->name.needsBoth(),
                .owned = second->protocol.name().ownership().has_value()};
}

void Member::abandon(pid_t successor) {
  if (!impl_->notifier) return;
  const auto owned = ownership();
  impl_->notifier->abandon(successor, owned ? std::optional(owned->deadline) : std::nullopt);
}

std::optional<Ownership> Member::ownership() const { return impl_->name.ownership(); }

records::MemberAddresses Member::addresses() const { return impl_->addresses.get(); }

std::string Member::uuid() const { return impl_->name.uuid(); }

size_t Member::names() const { return static_cast<size_t>(impl_->lead()->protocol.counters().names.value()); }

std::shared_ptr<const store::Store> Member::store() const {
  const auto side = impl_->lead();
  return {side, side->store.get()};
}

Member::StoreState Member::storeState() const {
  const auto side = impl_->lead();
  const Counters& counters = side->protocol.counters();
  return {.connected = counters.watch_connected.value() != 0,
          .since = static_cast<std::time_t>(counters.watch_changed.value())};
}

std::string Member::relay() const { return impl_->lead()->protocol.relay(); }

bool Member::hadName() const { return impl_->had_name; }

void Member::readRoster(Done<store::StoreResult<Roster>> done) {
  impl_->scheduler.spawn(Impl::runRoster(impl_, std::move(done)));
}

void Member::readSlot(std::string name, Done<store::StoreResult<std::optional<RosterSlot>>> done) {
  impl_->scheduler.spawn(Impl::runSlot(impl_, std::move(name), std::move(done)));
}

void Member::releaseSlot(std::string name, int64_t revision, Done<store::StoreResult<bool>> done) {
  impl_->scheduler.spawn(Impl::runRelease(impl_, std::move(name), revision, std::move(done)));
}

void Member::setDrained(bool drained, Done<Drained> done) {
  impl_->scheduler.spawn(Impl::runDrain(impl_, drained, std::move(done)));
}

bool Member::remembers() const { return impl_->options.state != nullptr; }

bool Member::isDrained() const { return impl_->drained; }

Member::Health Member::health() const {
  const std::lock_guard lock(impl_->health_mutex);
  return impl_->health;
}

}  // namespace idetcd::naming
