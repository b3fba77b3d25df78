#include "cluster/member.h"

#include <algorithm>
#include <cassert>
#include <ctime>
#include <future>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "cluster/address_monitor.h"
#include "cluster/confirmation.h"
#include "cluster/context.h"
#include "cluster/herald.h"
#include "cluster/keyspace.h"
#include "cluster/mirror.h"
#include "cluster/own_key.h"
#include "cluster/saved_names.h"
#include "cluster/uuid.h"
#include "cluster/vm_generation.h"
#include "cluster/worker_thread.h"
#include "etcd/client.h"

namespace idetcd::cluster {

struct Member::Impl : std::enable_shared_from_this<Member::Impl> {
  Impl(etcd::CompletionThread& completion_thread, records::RecordStore& record_store, Options member_options,
       Logger logger, std::function<void(std::string)> on_fatal);

  Claim::Options claimOptions() const;
  Mirror::Options mirrorOptions();
  Confirmation::Options confirmationOptions() const;

  // What may be said about the own name now. Any thread.
  std::optional<Ownership> ownership() const;
  void reportOwnership();
  bool isInDoubt();
  void tellClaim();
  void tellLoss();
  etcd::Task<void> watchDeadline();

  void preferOldName();
  void restoreNames();
  etcd::Task<void> saveRegularly();
  void saveNow();

  void watchGeneration();
  void watchAddresses();
  void setAddresses(const Result<NodeAddresses>& found);

  void close(std::chrono::milliseconds budget, bool save, bool abandon_save);

  etcd::CompletionThread& thread;
  records::RecordStore& store;
  const Options options;
  const Logger log;

  Counters counters;
  Jitter jitter;
  etcd::Client client;
  Lifetime lifetime;
  EtcdTrouble trouble;
  Context context;
  OwnKey own_key;
  SharedAddress shared_address;
  Confirmation confirmation;
  Mirror mirror;
  NameKeeper keeper;

  std::unique_ptr<WorkerThread> worker;  // for small files; if there is a state directory or a hook
  std::unique_ptr<WorkerThread> saver;   // for the names, which may take long; if there is a state directory
  std::unique_ptr<Herald> herald;        // likewise
  std::unique_ptr<AddressMonitor> monitor;
  std::unique_ptr<VmGeneration> generation;

  // Completion thread only.
  std::optional<Ownership> reported;
  std::optional<BootClock::time_point> in_doubt_since;  // the name that was reported
  NamedNode told;                                       // the name under which the claim was told
  uint64_t saved_changes = 0;                           // Mirror::changes() when the names were last saved
  bool saving = false;
  bool unsaved = false;         // read when quiet
  std::string address_trouble;  // as logged

  mutable std::mutex mutex;
  std::string uuid;                  // guarded by mutex
  records::HostAddresses addresses;  // guarded by mutex

  std::atomic<bool> save_abandoned{false};  // relaxed: it only hurries an end that is waited for
  std::atomic<bool> started{false};
  std::once_flag stop_once;
  std::once_flag close_once;
  std::promise<void> quiet;     // nothing is published and no callback is called any more
  std::promise<void> released;  // the keeper holds nothing any more
  const std::shared_future<void> is_quiet = quiet.get_future().share();
  const std::shared_future<void> is_released = released.get_future().share();
};

namespace {

using namespace std::chrono_literals;

Member::Options withUuid(Member::Options options) {
  if (options.uuid.empty()) options.uuid = options.state ? options.state->node().uuid : randomUuid();
  return options;
}

etcd::Client::Options clientOptions(const Member::Options& options) {
  etcd::Client::Options client;
  client.endpoints = options.endpoints;
  client.tls = options.tls;
  client.credentials = options.credentials;
  client.spread = true;
  return client;
}

std::string textOf(const records::HostAddresses& addresses) {
  std::string text;
  for (const IpAddress& ip : addresses.list()) text += (text.empty() ? "" : " ") + ip.toString();
  return text.empty() ? "none" : text;
}

}  // namespace

Member::Impl::Impl(etcd::CompletionThread& completion_thread, records::RecordStore& record_store,
                   Options member_options, Logger logger, std::function<void(std::string)> on_fatal)
    : thread(completion_thread),
      store(record_store),
      options(withUuid(std::move(member_options))),
      log(logger),
      client(thread, clientOptions(options), logger),
      lifetime(thread),
      trouble(logger),
      context{thread, client, lifetime, trouble, counters, jitter, logger},
      shared_address(
          options.pattern, options.limit, [this]() -> const NodeRecord& { return keeper.record(); }, counters, log),
      confirmation(context, confirmationOptions()),
      mirror(context, mirrorOptions(), store, own_key, confirmation),
      keeper(context, claimOptions(), options.exit_when_full, own_key, confirmation, std::move(on_fatal),
             [this] { reportOwnership(); }),
      uuid(options.uuid),
      addresses(options.addresses) {
  if (!options.state && options.on_claim.empty()) return;
  std::optional<ClaimHook::Options> hook;
  if (!options.on_claim.empty()) hook = ClaimHook::Options{.command = options.on_claim};
  worker = std::make_unique<WorkerThread>();
  if (options.state) saver = std::make_unique<WorkerThread>();
  herald = std::make_unique<Herald>(options.state, std::move(hook), *worker, log);
}

Claim::Options Member::Impl::claimOptions() const {
  NodeRecord record;
  record.ipv4 = options.addresses.ipv4;
  record.ipv6 = options.addresses.ipv6;
  record.port = fmt::format("{}", options.dns_port);
  record.id = options.uuid;
  std::optional<Claim::Predecessor> predecessor;
  if (options.state && options.state->predecessorEnded()) {
    const RememberedNode& before = options.state->node();
    predecessor = Claim::Predecessor{.lease = before.lease, .revision = before.revision};
  }
  return {.pattern = options.pattern,
          .limit = options.limit,
          .lease = options.lease,
          .record = std::move(record),
          .predecessor = predecessor};
}

Confirmation::Options Member::Impl::confirmationOptions() const {
  Confirmation::Options made{.lease = options.lease, .beat_keys = {}};
  for (const etcd::KeyRange& range : options.watched) made.beat_keys.push_back(beatKey(range));
  return made;
}

Mirror::Options Member::Impl::mirrorOptions() {
  Mirror::Options mirror_options;
  mirror_options.stale_after = options.lease;
  mirror_options.repair_interval = options.repair_interval;
  mirror_options.max_names = options.max_names;
  mirror_options.limit = options.limit;
  mirror_options.ranges = options.watched;
  if (!options.observe) mirror_options.shared_address = &shared_address;
  mirror_options.on_freshness = [this] { reportOwnership(); };
  return mirror_options;
}

// A watch that does not show the present no longer shows whether the key is still ours, though the lease may live.
std::optional<Ownership> Member::Impl::ownership() const {
  const BootClock::time_point fresh_until = store.freshUntil();
  if (BootClock::now() >= fresh_until) return std::nullopt;
  std::optional<Ownership> owned = keeper.ownership();
  if (owned) owned->deadline = std::min(owned->deadline, fresh_until);
  return owned;
}

// Tells what changed since the last report. An ownership that ended unseen, since this process stood still, is told to
// have ended even if it was renewed meanwhile. Once the member is being stopped it owns nothing, and its store may be
// gone.
void Member::Impl::reportOwnership() {
  const std::optional<Ownership> now = lifetime.stopping() ? std::nullopt : ownership();
  if (!now && isInDoubt()) return;
  in_doubt_since.reset();
  const bool lasts = now && reported && reported->deadline > BootClock::now() && reported->token == now->token &&
                     reported->name == now->name;
  if (reported && !lasts) {
    reported.reset();
    tellLoss();
  }
  const bool begins = now && !reported;
  reported = now;
  if (begins) tellClaim();
}

// After a jump of the wall clock nothing is told for a moment: as a rule the name is confirmed, and was owned all the
// time. REQUIRES: nothing is owned.
bool Member::Impl::isInDoubt() {
  constexpr std::chrono::nanoseconds kPatience = 1s;
  const BootClock::time_point now = BootClock::now();
  if (lifetime.stopping() || !reported || now >= reported->deadline || !keeper.isBeingConfirmed()) return false;
  if (!in_doubt_since) in_doubt_since = now;
  return now < *in_doubt_since + kPatience;
}

void Member::Impl::tellClaim() {
  const NodeRecord& record = keeper.record();
  told = {reported->name,  reported->id,      reported->token, record.id, {record.ipv4, record.ipv6},
          reported->lease, reported->revision};
  {
    const std::lock_guard lock(mutex);
    uuid = record.id;
  }
  if (herald) herald->claimed(told);
  if (options.on_ownership) options.on_ownership(reported);
}

void Member::Impl::tellLoss() {
  if (herald) herald->lost(told);
  if (options.on_ownership) options.on_ownership(std::nullopt);
}

// A timer sleeps while the machine is suspended, the deadline does not: so no sleep is long.
etcd::Task<void> Member::Impl::watchDeadline() {
  constexpr std::chrono::nanoseconds kLongest = std::chrono::seconds(1);
  while (true) {
    reportOwnership();
    std::chrono::nanoseconds delay = kLongest;
    if (reported) delay = std::min(delay, reported->deadline - BootClock::now());
    const bool go_on = co_await lifetime.pause(delay);
    if (!go_on) co_return;
  }
}

// --- what is kept over a restart ---

void Member::Impl::preferOldName() {
  if (!options.state) return;
  const RememberedNode& node = options.state->node();
  own_key.sawToken(std::min(node.token, kMaxToken));
  if (node.id < 1 || node.id > options.limit || options.pattern.render(node.id) != node.name) return;
  keeper.prefer(node.id);
}

// REQUIRES: no task runs yet, so that this thread is the store's writer.
void Member::Impl::restoreNames() {
  if (!options.state) return;
  const auto put = [this](const SavedName& saved) {
    own_key.sawToken(std::min(saved.mod_revision, kMaxToken));
    if (store.size() < options.max_names) store.put(saved.name, saved.addresses, saved.mod_revision);
  };
  const auto loaded = loadNames(options.state->namesFile(), options.pattern.text(), put);
  if (!loaded) {
    counters.saved_refused.add();
    log.warning("{}", loaded.error().message);
    return;
  }
  if (!*loaded || (*loaded)->count == 0) return;
  mirror.restored();
  store.setFreshness(records::Freshness::kRestored);
  const auto age_seconds = std::max<int64_t>(0, std::time(nullptr) - (*loaded)->written_at_seconds);
  log.info("{} names as they were known {} s ago, until etcd answers", (*loaded)->count, age_seconds);
}

etcd::Task<void> Member::Impl::saveRegularly() {
  constexpr std::chrono::nanoseconds kLook =
      1s;  // for changes; so a node that has just learnt the names saves them soon
  const std::chrono::nanoseconds look = std::min<std::chrono::nanoseconds>(kLook, options.save_interval);
  std::chrono::nanoseconds delay = look;
  while (true) {
    const bool go_on = co_await lifetime.pause(delay);
    if (!go_on) co_return;
    const bool due = store.freshness() == records::Freshness::kFresh && mirror.changes() != saved_changes && !saving;
    delay = due ? std::chrono::nanoseconds(options.save_interval) : look;
    if (due) saveNow();
  }
}

// On the saver, which reads the table as the loops do. REQUIRES: a state directory.
void Member::Impl::saveNow() {
  saving = true;
  saved_changes = mirror.changes();
  saver->post([self = weak_from_this(), this] {
    const auto abandoned = [this] { return save_abandoned.load(std::memory_order_relaxed); };
    const auto saved = saveNames(options.state->namesFile(), options.pattern.text(), store, abandoned);
    saved ? counters.saves.add() : counters.save_failures.add();
    if (!saved && !abandoned()) log.warning("the names are not saved: {}", saved.error().message);
    // The saver has finished before this object goes: close().
    if (const auto alive = self.lock()) {
      thread.post([alive, failed = !saved] {
        alive->saving = false;
        if (failed) alive->saved_changes = ~uint64_t{0};
      });
    }
  });
}

// --- the machine ---

void Member::Impl::watchGeneration() {
  if (options.observe) return;
  const auto on_change = [this, self = weak_from_this()] {
    const auto alive = self.lock();
    if (!alive) return;
    confirmation.standstill().noteGeneration();  // now, whatever the completion thread is at
    thread.post([alive] {
      alive->log.info("this machine was resumed from a snapshot: confirming the name");
      alive->confirmation.suspect();
    });
  };
  generation = std::make_unique<VmGeneration>(on_change, log);
}

void Member::Impl::watchAddresses() {
  if (!options.find_addresses) return;
  const auto look = [this, self = weak_from_this()] {
    const Result<NodeAddresses> found = options.find_addresses();
    if (const auto alive = self.lock()) thread.post([alive, found] { alive->setAddresses(found); });
  };
  monitor = std::make_unique<AddressMonitor>(AddressMonitor::Options{}, look, log);
}

void Member::Impl::setAddresses(const Result<NodeAddresses>& found) {
  if (lifetime.stopping()) return;
  // A machine that is off the network for a moment keeps what it has published: loopback would send everybody to
  // himself.
  const std::string why = found ? found->warning : found.error().message;
  if (!why.empty()) {
    if (std::exchange(address_trouble, why) != why) log.warning("the addresses stay {}: {}", textOf(addresses), why);
    return;
  }
  address_trouble.clear();
  if (found->addresses == addresses) return;
  log.info("this node's addresses are {} now, after {}", textOf(found->addresses), textOf(addresses));
  {
    const std::lock_guard lock(mutex);
    addresses = found->addresses;
  }
  store.setAddresses(addresses.list());
  keeper.setAddresses(addresses);
  told.addresses = addresses;
  if (herald && reported) herald->moved(told);
}

// --- end ---

// REQUIRES: quiet.
void Member::Impl::close(std::chrono::milliseconds budget, bool save, bool abandon_save) {
  if (!worker) return;
  if (save) saveNow();
  save_abandoned.store(abandon_save, std::memory_order_relaxed);
  if (options.state) {
    worker->post([this] { (void)options.state->writeIdentity(""); });  // whatever way the end came
  }
  herald->finish(budget);  // first: a program does not wait for a disk
  worker->finish();
  if (saver) saver->finish();
  if (options.state) options.state->release();
}

Member::Member(etcd::CompletionThread& thread, records::RecordStore& store, Options options, Logger log,
               std::function<void(std::string)> on_fatal)
    : impl_(std::make_shared<Impl>(thread, store, std::move(options), std::move(log), std::move(on_fatal))) {}

Member::~Member() { stop(std::chrono::milliseconds(0)); }

namespace {

// Each task keeps what it works on alive. Parameters, not captures: a lambda's captures would die before the coroutine.
template <typename Impl>
etcd::Task<void> runMirror(std::shared_ptr<Impl> impl) {
  co_await impl->mirror.run();
}
template <typename Impl>
etcd::Task<void> runRepairs(std::shared_ptr<Impl> impl) {
  co_await impl->mirror.repairRegularly();
}
template <typename Impl>
etcd::Task<void> runFreshness(std::shared_ptr<Impl> impl) {
  co_await impl->mirror.watchFreshness();
}
// An endpoint that is back takes its share of the nodes again within two minutes, and not all at once.
template <typename Impl>
etcd::Task<void> runReturns(std::shared_ptr<Impl> impl) {
  while (true) {
    const std::chrono::nanoseconds delay = impl->jitter.around(20s, 0.5);
    const bool go_on = co_await impl->lifetime.pause(delay);
    if (!go_on) co_return;
    co_await impl->client.returnHome();
  }
}
template <typename Impl>
etcd::Task<void> runConfirmation(std::shared_ptr<Impl> impl) {
  co_await impl->confirmation.run();
}
template <typename Impl>
etcd::Task<void> runDeadline(std::shared_ptr<Impl> impl) {
  co_await impl->watchDeadline();
}
template <typename Impl>
etcd::Task<void> runSaves(std::shared_ptr<Impl> impl) {
  co_await impl->saveRegularly();
}
template <typename Impl>
etcd::Task<void> runRecord(std::shared_ptr<Impl> impl) {
  co_await impl->keeper.keepRecord();
}
template <typename Impl>
etcd::Task<void> runQueue(std::shared_ptr<Impl> impl) {
  co_await impl->keeper.watchQueue();
}
template <typename Impl>
etcd::Task<void> runKeeper(std::shared_ptr<Impl> impl) {
  if (!impl->options.observe) co_await impl->keeper.run();
  impl->released.set_value();
}

}  // namespace

void Member::start() {
  const bool first = !impl_->started.exchange(true);
  assert(first);
  if (!first) return;
  impl_->preferOldName();
  impl_->restoreNames();
  impl_->thread.spawn(runMirror(impl_));
  impl_->thread.spawn(runRepairs(impl_));
  impl_->thread.spawn(runFreshness(impl_));
  if (impl_->options.endpoints.size() > 1) impl_->thread.spawn(runReturns(impl_));
  impl_->thread.spawn(runConfirmation(impl_));
  if (impl_->options.on_ownership || impl_->herald) impl_->thread.spawn(runDeadline(impl_));
  if (impl_->options.state) impl_->thread.spawn(runSaves(impl_));
  if (!impl_->options.observe) impl_->thread.spawn(runRecord(impl_));
  if (!impl_->options.observe) impl_->thread.spawn(runQueue(impl_));
  // Last: if the thread is being stopped, this one is refused and nothing will be released.
  if (!impl_->thread.spawn(runKeeper(impl_))) impl_->released.set_value();
  impl_->watchGeneration();
  impl_->watchAddresses();
}

void Member::stop(std::chrono::milliseconds budget) {
  assert(!impl_->thread.onCompletionThread());
  if (!impl_->started) return;
  const BootClock::time_point end = BootClock::now() + budget;
  std::call_once(impl_->stop_once, [this] {
    impl_->generation.reset();
    impl_->monitor.reset();
    const bool accepted = impl_->thread.post([impl = impl_] {
      impl->lifetime.stop();
      impl->keeper.stop();
      impl->confirmation.stop();
      impl->unsaved = impl->options.state && impl->store.freshness() == records::Freshness::kFresh && !impl->saving &&
                      impl->mirror.changes() != impl->saved_changes;
      impl->quiet.set_value();
    });
    // Refused: the thread is at its end, and every task with it, or it will be when thread.stop() returns.
    if (!accepted) impl_->quiet.set_value();
  });
  impl_->is_quiet.wait();
  impl_->is_released.wait_for(budget);
  std::call_once(impl_->close_once, [this, budget, end] {
    constexpr std::chrono::milliseconds kForTheHook{500};  // even if etcd has taken all the time
    constexpr size_t kQuicklySaved = 100'000;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - BootClock::now());
    const bool in_haste = budget.count() == 0;
    const bool may_save = !in_haste && impl_->store.size() <= kQuicklySaved;
    impl_->close(in_haste ? budget : std::max(left, kForTheHook), may_save && impl_->unsaved, !may_save);
  });
}

void Member::abandon() {
  if (impl_->herald) impl_->herald->abandon();
}

std::optional<Ownership> Member::ownership() const { return impl_->ownership(); }

bool Member::ready() const {
  if (records::isIncomplete(impl_->store.freshness())) return false;
  return impl_->options.observe || ownership().has_value();
}

const Counters& Member::counters() const { return impl_->counters; }
etcd::Client::Statistics Member::etcdStatistics() const { return impl_->client.statistics(); }

std::string Member::uuid() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->uuid;
}

records::HostAddresses Member::addresses() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->addresses;
}

}  // namespace idetcd::cluster
