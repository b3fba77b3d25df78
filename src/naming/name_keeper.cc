#include "naming/name_keeper.h"

#include "node/uuid.h"

namespace idetcd::naming {
namespace {

using runtime::Task;
using store::StoreResult;
using namespace std::chrono_literals;

constexpr std::string_view kKeepingLease = "keeping the lease";
constexpr std::string_view kDuplicateUuid = "another node uses this node's UUID; was its state directory copied?";

constexpr std::string_view kReleasedByOperator = "an operator has released it";
constexpr std::string_view kKeyDeleted = "its key was deleted";
constexpr std::string_view kKeyOverwritten = "its key was overwritten by somebody else";

// What clocks may drift apart within a lease, and what lies between reading the clock and acting on it.
std::chrono::nanoseconds marginOf(std::chrono::nanoseconds ttl) { return ttl / 10; }

// As a rule the watch shows the key within milliseconds of the claim, and this node answers for its name before it says
// it.
constexpr std::chrono::nanoseconds kWatchGrace = 1s;

// Short enough that several attempts, each perhaps at another endpoint, fit between a renewal and the deadline.
std::chrono::nanoseconds keepAliveTimeout(std::chrono::nanoseconds ttl) {
  return std::clamp<std::chrono::nanoseconds>(ttl / 5, 200ms, 3s);
}

}  // namespace

NameKeeper::NameKeeper(Context& context, Claim::Options options, bool exit_when_full,
                       const records::RecordStore& records, OwnKeyObserver& own_key, Confirmation& confirmation,
                       std::function<void(std::string)> on_fatal, std::function<void()> on_change)
    : context_(context),
      options_(options),
      exit_when_full_(exit_when_full),
      records_(records),
      own_key_(own_key),
      confirmation_(confirmation),
      on_fatal_(std::move(on_fatal)),
      on_change_(std::move(on_change)),
      claim_(context, std::move(options), own_key),
      wake_(context.scheduler),
      moved_(context.scheduler),
      published_(context.scheduler),
      withdrawn_(context.scheduler),
      addresses_{{options_.record.ipv4, options_.record.ipv6}, options_.record.networks},
      uuid_(options_.record.id) {
  own_key_.onChange([this] {
    publish();  // a name that is lost is lost now, whatever run() waits for
    wake_.set();
  });
  confirmation_.onHolder([this] {
    publish();
    if (confirmation_.holder() != Confirmation::Holder::kOurs || confirmation_.slotIsGone()) wake_.set();
  });
  withdrawn_.set();
  confirmation_.onStandstill([this] { renewNow(); });
}

Task<void> NameKeeper::run() {
  Backoff backoff(context_.jitter, 250ms, 30s);  // between losing a name and claiming again
  while (!context_.lifetime.stopping()) {
    if (bound_ == 0) {
      wake_.reset();
      co_await wake_.wait(1h);
      continue;
    }
    if (bound_) preferred_id_ = *bound_;
    const BootClock::time_point started = context_.now();
    renewed_mark_ = confirmation_.standstill().mark();
    const bool may_exit = exit_when_full_ && !ever_held_;
    const Claim::WhenFull when_full = may_exit ? Claim::WhenFull::kGiveUp : Claim::WhenFull::kWait;
    const Claim::ClaimOutcome outcome = co_await claim_.run(preferred_id_, when_full);
    if (outcome == Claim::ClaimOutcome::kStopped || context_.lifetime.stopping()) {
      co_await claim_.release();
      break;
    }
    if (outcome == Claim::ClaimOutcome::kBoundElsewhere) continue;
    if (outcome == Claim::ClaimOutcome::kFull) {
      if (on_fatal_) on_fatal_(claim_.refusal());
      break;
    }
    if (outcome == Claim::ClaimOutcome::kDuplicateNodeId) {
      if (claim_.reservation().isGrantedHere()) co_await claim_.reservation().drop();
      context_.counters.conflicts.add();
      context_.log.error("{}", kDuplicateUuid);
      regenerateNodeId();
      continue;
    }
    announce(started);
    const Loss loss = co_await hold();
    const bool held_long = context_.now() - started > 2 * options_.lease;
    disown();
    recordLoss(loss);
    const bool goes_on = co_await afterHolding(loss, held_long, backoff);
    if (!goes_on) break;
  }
}

NameKeeper::AfterLoss NameKeeper::afterLoss(Loss loss) {
  switch (loss) {
    case Loss::kStopped:
      return {.waits_for_withdrawal = true, .ends = true};
    case Loss::kBoundElsewhere:
      return {.waits_for_withdrawal = true, .at_once = true};
    case Loss::kConflict:
      return {.waits_for_withdrawal = true};  // what was written over the key may be under our lease
    case Loss::kReverted:
      return {.at_once = true};  // the store was set back for all nodes, and the key is there
    case Loss::kDuplicateNodeId:
    case Loss::kCloned:
      return {.new_uuid = true};
    case Loss::kLeaseLost:
    case Loss::kKeyGone:
      break;
  }
  return {};
}

// False: the keeper ends.
Task<bool> NameKeeper::afterHolding(Loss loss, bool held_long, Backoff& backoff) {
  const AfterLoss after = afterLoss(loss);
  // Whoever takes the name next is told of it no sooner than this machine is that it has none.
  if (after.waits_for_withdrawal) co_await withdrawn_.wait(kWithdrawal);
  // To revoke it would take the name from the other copy. If there is none, the lease ends by itself.
  if (loss == Loss::kCloned || (loss == Loss::kStopped && stopped_in_doubt_)) claim_.leaveLease();
  co_await claim_.release();
  if (after.ends) co_return false;
  if (leavesReservation(loss)) co_await claim_.reservation().drop();
  if (after.new_uuid) regenerateNodeId();
  if (after.at_once) co_return true;
  if (held_long) backoff.reset();
  const std::chrono::nanoseconds delay = backoff.next();
  co_await context_.lifetime.pause(delay);
  co_return true;
}

void NameKeeper::bindTo(std::optional<int64_t> id, int64_t token) {
  own_key_.sawToken(token - 1);
  if (std::exchange(bound_, id) == id) return;
  claim_.bindTo(id);
  wake_.set();
}

void NameKeeper::raiseToken(int64_t token) {
  if (!holding_ || token <= claim_.slot().token) return;
  claim_.raiseToken(token);
  moved_.set();
}

Task<NameKeeper::Loss> NameKeeper::hold() {
  Backoff retry(context_.jitter, 200ms, 1s);
  while (true) {
    wake_.reset();
    if (context_.lifetime.stopping()) co_return Loss::kStopped;
    if (bound_ && *bound_ != claim_.slot().id) co_return Loss::kBoundElsewhere;
    const OwnKeyObserver::State state = own_key_.state(held());
    if (state == OwnKeyObserver::State::kGone) co_return Loss::kKeyGone;
    // The store may have been set back before the first snapshot: what has the key then can be older than the claim was,
    // and the watch will not say more.
    const bool unseen = state == OwnKeyObserver::State::kUnseen || state == OwnKeyObserver::State::kDoubted;
    if (unseen && confirmation_.slotIsGone()) co_return Loss::kKeyGone;
    if (state == OwnKeyObserver::State::kForeign) co_return Loss::kConflict;
    if (state == OwnKeyObserver::State::kReverted) co_return Loss::kReverted;
    if (state == OwnKeyObserver::State::kDuplicateNodeId) co_return Loss::kDuplicateNodeId;
    if (confirmation_.holder() == Confirmation::Holder::kForeign) co_return Loss::kCloned;
    if (confirmation_.holder() == Confirmation::Holder::kDuplicateNodeId) co_return Loss::kDuplicateNodeId;

    const BootClock::time_point now = context_.now();
    if (now < next_keepalive_) {
      co_await wake_.wait(next_keepalive_ - now);
      continue;
    }
    const bool alive = co_await keepAlive(retry);
    if (!alive) co_return Loss::kLeaseLost;
  }
}

Task<bool> NameKeeper::keepAlive(Backoff& retry) {
  const std::chrono::nanoseconds ttl = claim_.lease().ttl;
  const std::chrono::nanoseconds timeout = context_.round_trip.patience(keepAliveTimeout(ttl), ttl / 4);
  const node::Standstill::Mark mark = confirmation_.standstill().mark();
  next_keepalive_ = BootClock::time_point::max();  // until it is answered, unless renewNow() wants another
  const StoreResult<store::Lease> renewed = co_await context_.store.leaseKeepAlive(claim_.lease().id, timeout);
  if (renewed) {
    context_.counters.keepalives.add();
    context_.trouble.succeeded(kKeepingLease);
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
  context_.trouble.failed(kKeepingLease, renewed.error());
  if (context_.now() >= deadline() && !std::exchange(overdue_logged_, true) && !context_.lifetime.stopping()) {
    context_.log.warning("{} is not this node's name for the time being: etcd has not confirmed its lease in time",
                         claim_.slot().name);
  }
  next_keepalive_ = context_.now() + retry.next();
  co_return true;
}

void NameKeeper::renewNow() {
  next_keepalive_ = context_.now();
  wake_.set();
}

// At half of the lease, so that two may fail.
void NameKeeper::scheduleKeepAlive() {
  const std::chrono::nanoseconds ttl = claim_.lease().ttl;  // first as nanoseconds: the half of 1 s is not 0
  next_keepalive_ = claim_.lease().sent_at + context_.jitter.around(ttl / 2, 0.1);
}

void NameKeeper::announce(BootClock::time_point started) {
  const std::chrono::duration<double, std::milli> took = context_.now() - started;
  context_.log.info("{} {} (ID {}) in {:.0f} ms", ever_held_ ? "claimed again:" : "claimed", claim_.slot().name,
                    claim_.slot().id, took.count());
  ever_held_ = true;
  overdue_logged_ = false;
  holding_ = true;
  preferred_id_ = claim_.slot().id;
  scheduleKeepAlive();
  // The clocks may have moved while the claim took its time.
  if (confirmation_.standstill().since(renewed_mark_, confirmation_.tolerance())) renewNow();
  claimed_at_ = context_.now();
  confirmation_.hold(claim_.record().id, claim_.lease().id,
                     {.key = claim_.slot().name,
                      .create_revision = claim_.slot().create_revision,
                      .is_unread = own_key_.wasSetBack()},
                     claim_.slot().incarnation, renewed_mark_);
  own_key_.answered();
  publish();
  moved_.set();  // the record may have changed while it was being claimed
}

// By an operator.
bool NameKeeper::wasReleased(Loss loss) const {
  return own_key_.released() && (loss == Loss::kKeyGone || loss == Loss::kConflict);
}

// Of a copy of this process nothing is taken.
bool NameKeeper::leavesReservation(Loss loss) const {
  const bool has_another_id = loss == Loss::kDuplicateNodeId && claim_.reservation().isGrantedHere();
  const bool asks_for_none = loss == Loss::kBoundElsewhere && bound_ == 0;
  return has_another_id || asks_for_none || wasReleased(loss);
}

void NameKeeper::recordLoss(Loss loss) {
  const std::string& name = claim_.slot().name;
  const bool released = wasReleased(loss);
  if (released) preferred_id_ = 0;
  switch (loss) {
    case Loss::kStopped:
    case Loss::kBoundElsewhere:
      return;
    case Loss::kLeaseLost:
      context_.counters.leases_lost.add();
      context_.log.warning("lost {}: etcd no longer knows its lease", name);
      return;
    case Loss::kKeyGone:
      context_.counters.keys_lost.add();
      context_.log.warning("lost {}: {}", name, released ? kReleasedByOperator : kKeyDeleted);
      return;
    case Loss::kConflict:
      context_.counters.conflicts.add();
      context_.log.warning("lost {}: {}", name, released ? kReleasedByOperator : kKeyOverwritten);
      return;
    case Loss::kReverted:
      context_.counters.leases_lost.add();
      context_.log.warning("lost {}: etcd was set back to a time before its lease", name);
      return;
    case Loss::kDuplicateNodeId:
      context_.counters.conflicts.add();
      context_.log.error("lost {}: {}", name, kDuplicateUuid);
      return;
    case Loss::kCloned:
      context_.counters.clones.add();
      context_.log.error("lost {}: another copy of this process has its lease; was the machine resumed twice?", name);
      return;
  }
}

// Two nodes with one UUID would take the same name from each other for ever.
void NameKeeper::regenerateNodeId() {
  NodeRecord record = claim_.record();
  record.id = node::randomUuid(context_.random);
  {
    const std::lock_guard lock(mutex_);
    uuid_ = record.id;
  }
  claim_.setRecord(std::move(record));
  preferred_id_ = 0;
}

// --- the record ---

std::string NameKeeper::uuid() const {
  const std::lock_guard lock(mutex_);
  return uuid_;
}

void NameKeeper::setAddresses(const records::MemberAddresses& addresses) {
  addresses_ = addresses;
  updateRecord();
}

void NameKeeper::setDrained(bool drained) {
  drained_ = drained;
  updateRecord();
}

void NameKeeper::updateRecord() {
  const records::MemberAddresses shown = drained_ ? records::MemberAddresses{} : addresses_;
  NodeRecord record = claim_.record();
  record.ipv4 = shown.ipv4;
  record.ipv6 = shown.ipv6;
  record.networks = shown.networks;
  claim_.setRecord(std::move(record));
  published_.reset();
  moved_.set();
}

Task<bool> NameKeeper::whenPublished(std::chrono::nanoseconds patience) {
  const bool published = co_await published_.wait(patience);
  co_return published;
}

Task<void> NameKeeper::keepRecord() {
  constexpr std::string_view kUpdating = "updating this node's addresses";
  Backoff backoff(context_.jitter, 200ms, 5s);
  while (!context_.lifetime.stopping()) {
    moved_.reset();
    if (!holding_ || !claim_.outdated()) {
      backoff.reset();
      published_.set();
      co_await moved_.wait(1h);
      continue;
    }
    const StoreResult<bool> updated = co_await claim_.refresh();
    if (updated) context_.trouble.succeeded(kUpdating);
    if (updated && *updated) {
      context_.counters.address_updates.add();
      publish();  // the token may be another one
      continue;
    }
    // Not ours any more: the watch will say so too. An unclear failure is simply repeated, under the same condition.
    if (!updated) context_.trouble.failed(kUpdating, updated.error());
    const std::chrono::nanoseconds delay = backoff.next();
    co_await context_.lifetime.pause(delay);
  }
}

Task<void> NameKeeper::keepReservation() {
  constexpr std::string_view kReserving = "keeping the name reserved";
  const Reservation& reservation = claim_.reservation();
  if (!reservation.isWanted()) co_return;
  const std::chrono::nanoseconds period = reservation.renewalPeriod();
  bool failed = false;
  while (!context_.lifetime.stopping()) {
    const std::chrono::nanoseconds delay =
        context_.jitter.around(failed ? std::min<std::chrono::nanoseconds>(period, options_.lease) : period, 0.1);
    co_await context_.lifetime.pause(delay);
    if (!holding_ && !reservation.isPrepared()) continue;
    StoreResult<bool> renewed = true;
    if (holding_) {
      renewed = co_await claim_.renewReservation();
    } else {
      renewed = co_await claim_.prepareReservation();  // it waits for a name
    }
    failed = !renewed;
    if (renewed) context_.trouble.succeeded(kReserving);
    if (!renewed) context_.trouble.failed(kReserving, renewed.error());
  }
}

void NameKeeper::stop() {
  // What was not confirmed in time may be another copy's by now.
  stopped_in_doubt_ = holding_ && (confirmation_.isInDoubt() || context_.now() >= deadline());
  disown();
  wake_.set();
  moved_.set();
  claim_.stop();
}

// A watch that does not show the present no longer shows whether the key is still ours, though the lease may live.
// Before the first snapshot is there, there is none.
std::optional<Ownership> NameKeeper::ownership() const {
  const BootClock::time_point now = context_.now();
  // Before the evidence: what has shown that the name is lost must not count as fresh for what was there before it.
  const BootClock::time_point fresh_until = records_.freshUntil();
  const std::lock_guard lock(mutex_);
  if (!evidence_ || now >= evidence_->ownership.deadline) return std::nullopt;
  if (confirmation_.standstill().since(evidence_->mark, confirmation_.tolerance())) return std::nullopt;
  BootClock::time_point until;
  if (evidence_->seen) until = fresh_until;
  if (now >= evidence_->read_counts_from) until = std::max(until, evidence_->read_until);
  if (now >= until) return std::nullopt;
  Ownership owned = evidence_->ownership;
  owned.deadline = std::min(owned.deadline, until);
  return owned;
}

bool NameKeeper::isBeingConfirmed() const {
  const std::lock_guard lock(mutex_);
  if (!evidence_ || context_.now() >= evidence_->ownership.deadline) return false;
  return confirmation_.standstill().since(evidence_->mark, confirmation_.tolerance());
}

std::optional<NameKeeper::Evidence> NameKeeper::findEvidence() const {
  if (!holding_ || context_.lifetime.stopping()) return std::nullopt;
  const OwnKeyObserver::State state = own_key_.state(held());
  const bool seen = state == OwnKeyObserver::State::kOurs && !confirmation_.slotIsMissing();
  const bool read = (seen || state == OwnKeyObserver::State::kUnseen) && confirmation_.slotAsOf();
  if (!(seen || read) || confirmation_.holder() != Confirmation::Holder::kOurs) return std::nullopt;
  return Evidence{.ownership = {.name = claim_.slot().name,
                                .id = claim_.slot().id,
                                .token = claim_.slot().token,
                                .deadline = deadline(),
                                .revision = claim_.slot().revision,
                                .lease = claim_.lease().id,
                                .cluster_id = claim_.lease().cluster_id},
                  .seen = seen,
                  .read_until = read ? readUntil() : BootClock::time_point(),
                  .read_counts_from = claimed_at_ + kWatchGrace,
                  .mark = node::Standstill::Mark::earlier(renewed_mark_, confirmation_.heldMark())};
}

void NameKeeper::publish() {
  std::optional<Evidence> now = findEvidence();
  {
    const std::lock_guard lock(mutex_);
    evidence_ = std::move(now);
  }
  on_change_();
}

void NameKeeper::disown() {
  holding_ = false;
  confirmation_.letGo();
  publish();
}

OwnKeyObserver::Held NameKeeper::held() const {
  return {claim_.slot().create_revision, claim_.slot().revision, claim_.lease().id, claim_.record().id};
}

BootClock::time_point NameKeeper::deadline() const {
  const BootClock::time_point proven = std::min(claim_.lease().sent_at, confirmation_.heldAsOf());
  return proven + claim_.lease().ttl - marginOf(claim_.lease().ttl);
}

BootClock::time_point NameKeeper::readUntil() const {
  const BootClock::time_point read = confirmation_.slotAsOf().value_or(BootClock::time_point());
  return std::min(deadline(), read + claim_.lease().ttl - marginOf(claim_.lease().ttl));
}

}  // namespace idetcd::naming
