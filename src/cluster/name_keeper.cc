#include "cluster/name_keeper.h"

#include <algorithm>
#include <utility>

#include "cluster/uuid.h"

namespace idetcd::cluster {
namespace {

using etcd::ErrorCode;
using etcd::EtcdResult;
using etcd::Task;
using namespace std::chrono_literals;

constexpr std::string_view kDoing = "keeping the lease";
constexpr std::string_view kDoubleUuid = "another node uses this node's UUID; was its state directory copied?";

// What clocks may drift apart within a lease, and what lies between reading the clock and acting on it.
std::chrono::nanoseconds marginOf(std::chrono::nanoseconds ttl) { return ttl / 10; }

// Short enough that several attempts, each perhaps at another endpoint, fit between a renewal and the deadline.
std::chrono::nanoseconds keepAliveTimeout(std::chrono::nanoseconds ttl) {
  return std::clamp<std::chrono::nanoseconds>(ttl / 5, 200ms, 3s);
}

}  // namespace

NameKeeper::NameKeeper(Context& context, Claim::Options options, bool exit_when_full, OwnKey& own_key,
                       Confirmation& confirmation, std::function<void(std::string)> on_fatal,
                       std::function<void()> on_change)
    : context_(context),
      options_(options),
      exit_when_full_(exit_when_full),
      own_key_(own_key),
      confirmation_(confirmation),
      on_fatal_(std::move(on_fatal)),
      on_change_(std::move(on_change)),
      claim_(context, std::move(options), own_key),
      wake_(context.thread),
      moved_(context.thread) {
  own_key_.onChange([this] {
    publish();  // a name that is lost is lost now, whatever run() waits for
    wake_.set();
  });
  confirmation_.onHolder([this] {
    publish();
    if (confirmation_.holder() == Confirmation::Holder::kForeign) wake_.set();
  });
  confirmation_.onStandstill([this] { renewNow(); });
}

Task<void> NameKeeper::run() {
  Backoff backoff(context_.jitter, 250ms, 30s);  // between losing a name and claiming again
  while (!context_.lifetime.stopping()) {
    const BootClock::time_point started = BootClock::now();
    renewed_mark_ = confirmation_.standstill().mark();
    const bool may_exit = exit_when_full_ && !ever_held_;
    const Claim::WhenFull when_full = may_exit ? Claim::WhenFull::kGiveUp : Claim::WhenFull::kWait;
    const Claim::Outcome outcome = co_await claim_.run(preferred_id_, when_full);
    if (outcome == Claim::Outcome::kStopped || context_.lifetime.stopping()) {
      co_await claim_.release();
      break;
    }
    if (outcome == Claim::Outcome::kFull) {
      if (on_fatal_) on_fatal_(claim_.refusal());
      break;
    }
    if (outcome == Claim::Outcome::kDouble) {
      context_.counters.conflicts.add();
      context_.log.error("{}", kDoubleUuid);
      becomeSomebodyElse();
      continue;
    }
    announce(started);
    const Loss loss = co_await hold();
    const bool held_long = BootClock::now() - started > 2 * options_.lease;
    disown();
    recordLoss(loss);
    if (loss == Loss::kCloned) claim_.leaveLease();
    co_await claim_.release();
    if (loss == Loss::kStopped) break;
    if (loss == Loss::kDouble || loss == Loss::kCloned) becomeSomebodyElse();
    if (loss == Loss::kReverted) continue;  // the store was set back for all nodes, and the key is there
    if (held_long) backoff.reset();
    const std::chrono::nanoseconds delay = backoff.next();
    co_await context_.lifetime.pause(delay);
  }
}

Task<NameKeeper::Loss> NameKeeper::hold() {
  Backoff retry(context_.jitter, 200ms, 2s);
  while (true) {
    wake_.reset();
    if (context_.lifetime.stopping()) co_return Loss::kStopped;
    const OwnKey::State state = own_key_.state(held());
    if (state == OwnKey::State::kGone) co_return Loss::kKeyGone;
    if (state == OwnKey::State::kForeign) co_return Loss::kConflict;
    if (state == OwnKey::State::kReverted) co_return Loss::kReverted;
    if (state == OwnKey::State::kDouble) co_return Loss::kDouble;
    if (confirmation_.holder() == Confirmation::Holder::kForeign) co_return Loss::kCloned;

    const BootClock::time_point now = BootClock::now();
    if (now < next_keepalive_) {
      co_await wake_.wait(next_keepalive_ - now);
      continue;
    }
    const bool alive = co_await keepAlive(retry);
    if (!alive) co_return Loss::kLeaseLost;
  }
}

Task<bool> NameKeeper::keepAlive(Backoff& retry) {
  const std::chrono::nanoseconds timeout = keepAliveTimeout(claim_.lease().ttl);
  const Standstill::Mark mark = confirmation_.standstill().mark();
  next_keepalive_ = BootClock::time_point::max();  // until it is answered, unless renewNow() wants another
  const EtcdResult<etcd::Lease> renewed = co_await context_.client.leaseKeepAlive(claim_.lease().id, timeout);
  if (renewed) {
    context_.counters.keepalives.add();
    context_.trouble.succeeded(kDoing);
    retry.reset();
    claim_.renewed(*renewed);
    renewed_mark_ = mark;
    if (next_keepalive_ == BootClock::time_point::max()) scheduleKeepAlive();
    if (std::exchange(overdue_logged_, false)) context_.log.info("{} is this node's name again", claim_.slot().name);
    publish();
    co_return true;
  }
  if (renewed.error().code == ErrorCode::kLeaseNotFound) co_return false;
  context_.counters.keepalive_failures.add();
  context_.trouble.failed(kDoing, renewed.error());
  if (BootClock::now() >= deadline() && !std::exchange(overdue_logged_, true) && !context_.lifetime.stopping()) {
    context_.log.warning("{} is not this node's name for the time being: etcd has not confirmed its lease in time",
                         claim_.slot().name);
  }
  next_keepalive_ = BootClock::now() + retry.next();
  co_return true;
}

void NameKeeper::renewNow() {
  next_keepalive_ = BootClock::now();
  wake_.set();
}

// Three times within the lease, so that two may fail.
void NameKeeper::scheduleKeepAlive() {
  const std::chrono::nanoseconds ttl = claim_.lease().ttl;  // first as nanoseconds: a third of 1 s is not 0
  next_keepalive_ = claim_.lease().sent_at + context_.jitter.around(ttl / 3, 0.1);
}

void NameKeeper::announce(BootClock::time_point started) {
  const std::chrono::duration<double, std::milli> took = BootClock::now() - started;
  context_.log.info("{} {} (ID {}) in {:.0f} ms", ever_held_ ? "claimed again:" : "claimed", claim_.slot().name,
                    claim_.slot().id, took.count());
  ever_held_ = true;
  overdue_logged_ = false;
  holding_ = true;
  preferred_id_ = claim_.slot().id;
  scheduleKeepAlive();
  // The clocks may have moved while the claim took its time.
  if (confirmation_.standstill().since(renewed_mark_, confirmation_.tolerance())) renewNow();
  confirmation_.hold(claim_.record().id, claim_.lease().id);
  publish();
  moved_.set();  // the record may have changed while it was being claimed
}

void NameKeeper::recordLoss(Loss loss) {
  const std::string& name = claim_.slot().name;
  switch (loss) {
    case Loss::kStopped:
      return;
    case Loss::kLeaseLost:
      context_.counters.leases_lost.add();
      context_.log.warning("lost {}: etcd no longer knows its lease", name);
      return;
    case Loss::kKeyGone:
      context_.counters.keys_lost.add();
      context_.log.warning("lost {}: its key was deleted", name);
      return;
    case Loss::kConflict:
      context_.counters.conflicts.add();
      context_.log.warning("lost {}: its key was overwritten by somebody else", name);
      return;
    case Loss::kReverted:
      context_.counters.leases_lost.add();
      context_.log.warning("lost {}: etcd was set back to a time before its lease", name);
      return;
    case Loss::kDouble:
      context_.counters.conflicts.add();
      context_.log.error("lost {}: {}", name, kDoubleUuid);
      return;
    case Loss::kCloned:
      context_.counters.clones.add();
      context_.log.error("lost {}: another copy of this process has its lease; was the machine resumed twice?", name);
      return;
  }
}

// Two nodes with one UUID would take the same name from each other for ever.
void NameKeeper::becomeSomebodyElse() {
  NodeRecord record = claim_.record();
  record.id = randomUuid();
  claim_.setRecord(std::move(record));
  preferred_id_ = 0;
}

// --- the record ---

void NameKeeper::setAddresses(const records::HostAddresses& addresses) {
  NodeRecord record = claim_.record();
  record.ipv4 = addresses.ipv4;
  record.ipv6 = addresses.ipv6;
  claim_.setRecord(std::move(record));
  moved_.set();
}

Task<void> NameKeeper::keepRecord() {
  constexpr std::string_view kUpdating = "updating this node's addresses";
  Backoff backoff(context_.jitter, 200ms, 5s);
  while (!context_.lifetime.stopping()) {
    moved_.reset();
    if (!holding_ || !claim_.outdated()) {
      backoff.reset();
      co_await moved_.wait(1h);
      continue;
    }
    const EtcdResult<bool> updated = co_await claim_.refresh();
    if (updated) context_.trouble.succeeded(kUpdating);
    if (updated && *updated) {
      context_.counters.address_updates.add();
      continue;
    }
    // Not ours any more: the watch will say so too. An unclear failure is simply repeated, under the same condition.
    if (!updated) context_.trouble.failed(kUpdating, updated.error());
    const std::chrono::nanoseconds delay = backoff.next();
    co_await context_.lifetime.pause(delay);
  }
}

void NameKeeper::stop() {
  disown();
  wake_.set();
  moved_.set();
  claim_.stop();
}

std::optional<Ownership> NameKeeper::ownership() const {
  const std::lock_guard lock(mutex_);
  if (!ownership_ || BootClock::now() >= ownership_->deadline) return std::nullopt;
  if (confirmation_.standstill().since(confirmed_mark_, confirmation_.tolerance())) return std::nullopt;
  return ownership_;
}

bool NameKeeper::isBeingConfirmed() const {
  const std::lock_guard lock(mutex_);
  if (!ownership_ || BootClock::now() >= ownership_->deadline) return false;
  return confirmation_.standstill().since(confirmed_mark_, confirmation_.tolerance());
}

void NameKeeper::publish() {
  std::optional<Ownership> now;
  if (holding_ && !context_.lifetime.stopping() && own_key_.state(held()) == OwnKey::State::kOurs &&
      confirmation_.holder() == Confirmation::Holder::kOurs) {
    now = Ownership{claim_.slot().name, claim_.slot().id,       claim_.slot().token,
                    deadline(),         claim_.slot().revision, claim_.lease().id};
  }
  {
    const std::lock_guard lock(mutex_);
    ownership_ = std::move(now);
    confirmed_mark_ = Standstill::Mark::earlier(renewed_mark_, confirmation_.heldMark());
  }
  on_change_();
}

void NameKeeper::disown() {
  holding_ = false;
  confirmation_.letGo();
  publish();
}

OwnKey::Held NameKeeper::held() const {
  return {claim_.slot().create_revision, claim_.slot().revision, claim_.lease().id, claim_.record().id};
}

BootClock::time_point NameKeeper::deadline() const {
  const BootClock::time_point proven = std::min(claim_.lease().sent_at, confirmation_.heldAsOf());
  return proven + claim_.lease().ttl - marginOf(claim_.lease().ttl);
}

}  // namespace idetcd::cluster
