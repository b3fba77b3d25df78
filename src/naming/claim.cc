#include "naming/claim.h"

#include <iterator>

#include <fmt/ranges.h>

#include "base/text.h"
#include "naming/keyspace.h"

namespace idetcd::naming {
namespace {

using store::Compare;
using store::RangeResult;
using store::StoreError;
using store::StoreResult;
using store::Transaction;
using store::TxnResult;
using namespace std::chrono_literals;

constexpr std::string_view kClaiming = "claiming a name";
// For a lease to be kept on disk before a name is claimed under it. A disk that stands still does not cost the name.
constexpr std::chrono::nanoseconds kKeepPatience = 1s;

// Keys of at most 255 bytes and some integers, those of reservations with UUIDs.
constexpr int64_t kLinePage = 10'000;
// A node has one reservation, as a rule; what is beyond ends by itself.
constexpr size_t kMostOwn = 50;

store::KeyRange reservedRange(const slots::NamePattern& pattern) {
  return store::KeyRange::prefix(reservationKey(pattern.literalPrefix()));
}

// The store answers, and will go on like this.
bool refusesForGood(const StoreError& error) {
  return error.sent && error.code != ErrorCode::kUnavailable && error.code != ErrorCode::kDeadlineExceeded;
}

}  // namespace

Claim::Claim(Context& context, Options options, OwnKeyObserver& own_key)
    : context_(context),
      options_(std::move(options)),
      own_key_(own_key),
      slots_(slotRange(options_.pattern)),
      reserved_(reservedRange(options_.pattern)),
      queue_(store::KeyRange::prefix(queuePrefix(options_.pattern.text()))),
      former_(options_.predecessor ? options_.predecessor->leases : std::vector<int64_t>{}),
      kept_(context.scheduler),
      claimed_(context.scheduler),
      reservation_(context, options_.hold, options_.lease),
      waiting_(options_.pattern, [this] { wake_.set(); }),
      wake_(context.scheduler),
      ahead_changed_(context.scheduler) {
  setRecord(options_.record);
}

void Claim::setRecord(NodeRecord record) {
  if (record.id != record_.id) reservation_.leave();
  record_ = std::move(record);
  ticket_ = ticketPrefix(options_.pattern) + record_.id;
}

std::string Claim::valueWith(int64_t said_token, int64_t slot) const {
  NodeRecord said = record_;
  said.token = said_token;
  said.slot = slot;
  return encodeRecord(said);
}

void Claim::stop() {
  wake_.set();
  kept_.set();
  ahead_changed_.set();
  own_key_.settled(first_ticket_);
}

void Claim::bindTo(std::optional<int64_t> id) {
  if (std::exchange(bound_, id) == id) return;
  rebound_ = true;
  waiting_noted_ = false;
  wake_.set();
}

runtime::Task<Claim::ClaimOutcome> Claim::run(int64_t preferred_id, WhenFull when_full) {
  assert(!lease_);
  Backoff backoff(context_.jitter, 100ms, 3s);
  while (!context_.lifetime.stopping()) {
    const StoreResult<AttemptOutcome> outcome = co_await attempt(preferred_id, when_full);
    own_key_.setWaitingLine(nullptr);
    ahead_.clear();
    if (outcome || refusesForGood(outcome.error())) own_key_.settled(first_ticket_);
    if (outcome) context_.trouble.succeeded(kClaiming);
    if (outcome && *outcome == AttemptOutcome::kClaimed) {
      context_.counters.claims.add();
      full_noted_ = waiting_noted_ = false;
      claimed_.set();
      co_return ClaimOutcome::kClaimed;
    }
    co_await release();
    if (outcome && *outcome == AttemptOutcome::kOldLease) {
      const bool ended = co_await oldLeaseEnds();
      if (!ended) co_return ClaimOutcome::kDuplicateNodeId;
      const std::chrono::nanoseconds delay = backoff.next();
      co_await context_.lifetime.pause(delay);
      continue;
    }
    if (outcome) co_return *outcome == AttemptOutcome::kFull ? ClaimOutcome::kFull : ClaimOutcome::kBoundElsewhere;
    context_.trouble.failed(kClaiming, outcome.error());
    const std::chrono::nanoseconds delay = delayAfter(outcome.error(), backoff);
    co_await context_.lifetime.pause(delay);
  }
  co_return ClaimOutcome::kStopped;
}

// One lease: from its grant to a slot, to "full", or to a failure that a new lease has to start over from.
Claim::Answer<Claim::AttemptOutcome> Claim::attempt(int64_t preferred_id, WhenFull when_full) {
  rebound_ = false;
  if (bound_ == 0) co_return AttemptOutcome::kBoundElsewhere;
  const int64_t only = bound_.value_or(0);
  if (only > 0) preferred_id = only;
  preferred_id_ = preferred_id;
  own_reservations_.clear();
  waiting_.waitOnlyFor(only);
  // Before the node's own lease, which nobody renews meanwhile.
  if (reservation_.isWanted()) {
    const StoreResult<bool> prepared = co_await prepareReservation();
    if (!prepared) co_return tl::unexpected(prepared.error());
  }
  const StoreResult<bool> granted = co_await grant();
  if (!granted) co_return tl::unexpected(granted.error());
  StoreResult<slots::QueueSnapshot> line = co_await enqueue(preferred_id);
  if (line && !line->own && options_.former_gone) options_.former_gone();
  // A former name that is not to be taken back is free again.
  if (line && !line->own && !former_.empty()) {
    const bool revoked = co_await revokeFormer();
    if (revoked) line = co_await look();
  }
  while (line && !context_.lifetime.stopping()) {
    if (rebound_) co_return AttemptOutcome::kBoundElsewhere;
    slots::SlotChoice choice = only > 0 ? slots::chooseOnly(options_.pattern, *line, only)
                                        : slots::chooseSlot(options_.pattern, *line, preferred_id);
    context_.counters.spare.set(choice.kind == slots::SlotChoice::Kind::kFull ? 1 : 0);
    switch (choice.kind) {
      case slots::SlotChoice::Kind::kFull:
        noteFull(*line, when_full);
        if (when_full == WhenFull::kGiveUp) co_return AttemptOutcome::kFull;
        line = co_await waitForTurn(true);
        break;
      case slots::SlotChoice::Kind::kUnqueued:
        line = co_await enqueue(preferred_id);
        break;
      case slots::SlotChoice::Kind::kWait:
        if (only > 0) co_await noteHolder(choice.name);
        line = co_await waitForTurn(only > 0);
        break;
      case slots::SlotChoice::Kind::kOldLease:
        old_name_ = std::move(choice.name);
        old_lease_ = line->own->lease;
        co_return AttemptOutcome::kOldLease;
      case slots::SlotChoice::Kind::kTake:
      case slots::SlotChoice::Kind::kTakeBack: {
        noteUnleased(*line, choice.id);
        co_await kept_.wait(kKeepPatience);
        if (context_.lifetime.stopping()) break;
        StoreResult<Attempt> taken = co_await take(std::move(choice), *std::move(line));
        if (!taken) co_return tl::unexpected(taken.error());
        if (taken->claimed) co_return AttemptOutcome::kClaimed;
        line = std::move(taken->line);
        break;
      }
    }
  }
  if (!line) co_return tl::unexpected(line.error());
  co_return stopped();
}

Claim::Answer<bool> Claim::grant() {
  context_.counters.claim_requests.add();
  const BootClock::time_point asked = context_.now();
  StoreResult<store::Lease> granted = co_await context_.store.leaseGrant(options_.lease);
  if (!granted) co_return tl::unexpected(granted.error());
  context_.round_trip.took(asked, context_.now());
  lease_ = *granted;
  if (options_.predecessor && options_.predecessor->cluster_id != lease_->cluster_id) former_.clear();
  keepLeases();
  co_return true;
}

// While stopping, nothing is kept: what is still granted then is given back, and nothing is claimed under it.
void Claim::keepLeases() {
  if (context_.lifetime.stopping() || !options_.keep_leases) return kept_.set();
  kept_.reset();
  std::vector<int64_t> leases = former_;
  leases.push_back(lease_->id);
  const uint64_t number = ++keeps_;
  const auto kept = [this, number] {
    if (number == keeps_) kept_.set();
  };
  options_.keep_leases(lease_->cluster_id, std::move(leases), kept);
}

// True: one of them was still there.
runtime::Task<bool> Claim::revokeFormer() {
  bool found = false;
  while (!former_.empty()) {
    const int64_t lease = former_.back();
    const StoreResult<void> revoked = co_await context_.store.leaseRevoke(lease);
    if (!revoked && revoked.error().code != ErrorCode::kLeaseNotFound) break;  // later
    found = found || revoked.has_value();
    std::erase(former_, lease);
  }
  if (lease_) keepLeases();
  co_return found;
}

runtime::Task<void> Claim::endFormerLeases() {
  while (!former_.empty() && !context_.lifetime.stopping()) {
    const bool claimed = co_await claimed_.wait(1s);
    if (!claimed || context_.lifetime.stopping()) continue;
    co_await revokeFormer();
    if (!former_.empty()) co_await context_.lifetime.pause(1s);
  }
}

// Puts our ticket, and reads where it stands. What has no answer is repeated on the same lease. `unclear`: the name whose
// claim may have been applied; empty: none.
Claim::Answer<slots::QueueSnapshot> Claim::enqueue(int64_t preferred_id, const std::string& unclear) {
  Backoff backoff(context_.jitter, 100ms, 3s);
  while (!context_.lifetime.stopping()) {
    const BootClock::time_point asked = context_.now();
    StoreResult<slots::QueueSnapshot> line = co_await putTicket(preferred_id, unclear);
    if (line) co_return line;
    const ErrorCode code = line.error().code;
    if (code != ErrorCode::kUnavailable && code != ErrorCode::kDeadlineExceeded) co_return line;
    const StoreResult<bool> kept = co_await pauseBeforeNext(line.error(), asked, backoff);
    if (!kept) co_return tl::unexpected(kept.error());
  }
  co_return stopped();
}

// Unless a claim under this lease was applied: a ticket that comes late does not stand beside its name. The incarnation
// shows that of any claim, but another process with our UUID may have written over it; the name shows it of the last one.
Claim::Answer<slots::QueueSnapshot> Claim::putTicket(int64_t preferred_id, const std::string& unclear) {
  const std::string preferred = preferredKey(preferred_id);
  const int64_t seen = own_key_.highestToken();
  Transaction transaction;
  for (const std::string& key : {incarnationKey(record_.id), unclear}) {
    if (key.empty()) continue;
    transaction.require({.key = key, .target = Compare::Target::kLease, .number = lease_->id, .differs = true});
  }
  transaction.put({ticket_, valueWith(0, 0), lease_->id});
  const Transaction::Read ticket = transaction.read({store::KeyRange::single(ticket_), {.keys_only = true}});
  Transaction::Read own_key;
  Transaction::Read floor;
  if (!preferred.empty()) {
    own_key = transaction.read({store::KeyRange::single(preferred), {}});
    floor = transaction.read({store::KeyRange::single(tokenFloorKey(preferred)), {}});
  }
  StoreResult<TxnResult> answer = co_await ask(&transaction);
  if (!answer) co_return tl::unexpected(answer.error());
  if (!answer->succeeded) co_return tl::unexpected(StoreError{ErrorCode::kOther, "the claim was applied"});
  if (first_ticket_ == 0) first_ticket_ = answer->revision;
  std::optional<slots::QueueSnapshot::OwnKey> own;
  if (!preferred.empty()) {
    floor_.name = preferred;
    learnFloor(transaction.result(*answer, floor));
    own = readOwn(transaction.result(*answer, own_key));
  }
  const std::vector<store::KeyValue>& found = transaction.result(*answer, ticket).kvs;
  // A ticket that was there before is not the youngest: those ahead have to be looked at, too.
  const bool is_new = !found.empty() && found.front().create_revision == answer->revision;
  StoreResult<slots::QueueSnapshot> line = slots::QueueSnapshot();
  if (own) {  // whatever others have
    line->older.emplace();
    line->ticket_revision = line->revision = answer->revision;
  } else if (is_new) {
    line = co_await lookAt(answer->revision);
  }
  if (!own && (!is_new || (!line && line.error().code == ErrorCode::kCompacted))) line = co_await look();
  if (!line) co_return line;
  line->own = own;
  line->set_back = answer->revision < seen;
  co_return line;
}

// Slots and queue as they were when our ticket, the youngest then, was put.
Claim::Answer<slots::QueueSnapshot> Claim::lookAt(int64_t revision) {
  Transaction transaction;
  const Transaction::Read names =
      transaction.read({slots_, {.revision = revision, .limit = kLinePage, .keys_only = true}});
  const Transaction::Read reserved = transaction.read({reserved_, {.revision = revision, .limit = kLinePage}});
  const store::RangeOptions count{.revision = revision, .count_only = true};
  const Transaction::Read queue = transaction.read({queue_, count});
  const Transaction::Read alike = transaction.read({store::KeyRange::prefix(ticketPrefix(options_.pattern)), count});
  StoreResult<TxnResult> answer = co_await ask(&transaction);
  if (!answer) co_return tl::unexpected(answer.error());
  const int64_t tickets = transaction.result(*answer, queue).count;
  if (tickets < 1 || transaction.result(*answer, alike).count != tickets) {
    StoreResult<slots::QueueSnapshot> all = co_await look();
    co_return all;
  }
  StoreResult<slots::QueueSnapshot> line =
      co_await readSlots(std::move(transaction.result(*answer, names)),
                         std::move(transaction.result(*answer, reserved)), revision);
  if (!line) co_return tl::unexpected(line.error());
  line->older = {{options_.pattern.limit(), static_cast<size_t>(tickets - 1)}};
  line->ticket_revision = revision;
  line->revision = revision;
  co_return line;
}

// A slow answer is waited for: to ask anew makes etcd slower still.
Claim::Answer<TxnResult> Claim::ask(Transaction* transaction) {
  context_.counters.claim_requests.add();
  transaction->setTimeout(context_.round_trip.patience(5s, options_.lease / 4));
  const BootClock::time_point asked = context_.now();
  StoreResult<TxnResult> answer = co_await context_.store.txn(transaction->request());
  if (!answer) co_return answer;
  context_.round_trip.took(asked, context_.now());
  own_key_.sawToken(answer->revision);
  if (!transaction->fits(*answer)) co_return unfitting();
  co_return answer;
}

std::string Claim::preferredKey(int64_t preferred_id) const {
  return preferred_id > 0 && preferred_id <= options_.pattern.limit() ? options_.pattern.render(preferred_id)
                                                                      : std::string();
}

std::optional<slots::QueueSnapshot::OwnKey> Claim::readOwn(const RangeResult& found) const {
  if (found.kvs.empty()) return std::nullopt;
  const store::KeyValue& kv = found.kvs.front();
  const Result<NodeRecord> record = decodeRecord(kv.value);
  // A key without a lease belongs to no node: it was put by hand, and nothing would free it.
  if (!record || record->id != record_.id || kv.lease == 0) return std::nullopt;
  return slots::QueueSnapshot::OwnKey{.mod_revision = kv.mod_revision,
                                      .create_revision = kv.create_revision,
                                      .token = std::max(kv.create_revision, record->token),
                                      .lease = kv.lease,
                                      .abandoned = isAbandoned(kv)};
}

// A key with our UUID under a lease. What was put before a later claim of ours can be there only since the store was
// set back.
bool Claim::isAbandoned(const store::KeyValue& kv) const {
  if (kv.lease == last_lease_) return true;
  if (slot_.name == kv.key && kv.mod_revision < slot_.revision) return true;
  const std::optional<Predecessor>& predecessor = options_.predecessor;
  if (!predecessor || predecessor->cluster_id != lease_->cluster_id) return false;
  return kv.mod_revision < predecessor->revision ||
         std::ranges::find(predecessor->leases, kv.lease) != predecessor->leases.end();
}

Claim::Answer<slots::QueueSnapshot> Claim::look() {
  const int64_t seen = own_key_.highestToken();
  // However long the queue: a node that is not among the oldest `limit` has no slot yet, and one that is far behind
  // them need not know its place.
  const int64_t tickets = std::min(kLinePage, std::max<int64_t>(options_.pattern.limit(), 1000));
  Transaction transaction;
  const Transaction::Read names = transaction.read({slots_, {.limit = kLinePage, .keys_only = true}});
  const Transaction::Read waiting = transaction.read({reserved_, {.limit = kLinePage}});
  const Transaction::Read queue =
      transaction.read({queue_, {.limit = tickets, .keys_only = true, .sort_by_create_revision = true}});
  StoreResult<TxnResult> answer = co_await ask(&transaction);
  if (!answer) co_return tl::unexpected(answer.error());
  RangeResult taken = std::move(transaction.result(*answer, names));
  RangeResult reserved = std::move(transaction.result(*answer, waiting));
  RangeResult found = std::move(transaction.result(*answer, queue));
  StoreResult<slots::QueueSnapshot> line =
      co_await readLine(std::move(taken), std::move(reserved), std::move(found), answer->revision);
  if (line) line->set_back = line->revision < seen;
  co_return line;
}

// --- waiting ---

// Returns when it is our turn, when the ticket is gone, or when no slot is free any more if one was (not `full`); an
// error if the lease is lost.
Claim::Answer<slots::QueueSnapshot> Claim::waitForTurn(bool full) {
  own_key_.setWaitingLine(&waiting_);
  own_key_.settled(first_ticket_);
  Backoff backoff(context_.jitter, 100ms, 3s);
  while (!context_.lifetime.stopping()) {
    look_again_ = false;
    waiting_.beginLook();
    const BootClock::time_point asked = context_.now();
    StoreResult<slots::QueueSnapshot> line = co_await look();
    if (!line) {
      // The place in the queue is worth waiting for, as long as the lease lives.
      const StoreResult<bool> kept = co_await pauseBeforeNext(line.error(), asked, backoff);
      if (!kept) co_return tl::unexpected(kept.error());
      continue;
    }
    context_.trouble.succeeded(kClaiming);
    if (!line->older && !line->far_back) co_return std::move(*line);
    noteReserved(*line);
    follow(*line);
    // Whatever is lost on the way to us is noticed after that.
    const BootClock::time_point poll_at = context_.now() + context_.jitter.around(options_.lease, 0.25);
    while (!context_.lifetime.stopping() && !waiting_.mustLook() && !look_again_ && context_.now() < poll_at) {
      if (waiting_.isOurTurn() || (!full && waiting_.isFull()) || rebound_) co_return waiting_.take();
      if (!waiting_.isFull() && !bound_) noteWaiting();
      const StoreResult<bool> kept = co_await untilSomethingChanges(poll_at, full);
      if (!kept) co_return tl::unexpected(kept.error());
    }
  }
  co_return stopped();
}

void Claim::follow(const slots::QueueSnapshot& line) {
  ahead_ = line.ahead;
  ahead_seen_at_ = line.revision;
  ahead_changed_.set();
  waiting_.endLook(line);
}

Claim::Answer<bool> Claim::untilSomethingChanges(BootClock::time_point poll_at, bool full) {
  const StoreResult<bool> kept = co_await keepLeaseWhileWaiting();
  if (!kept) co_return tl::unexpected(kept.error());
  wake_.reset();
  // While the lease was kept, something may have come.
  if (waiting_.isOurTurn() || (!full && waiting_.isFull()) || waiting_.mustLook() || look_again_ || rebound_ ||
      context_.lifetime.stopping()) {
    co_return true;
  }
  const BootClock::time_point now = context_.now();
  const std::chrono::nanoseconds to_renewal = lease_->sent_at + lease_->ttl / 3 - now;
  co_await wake_.wait(
      std::clamp<std::chrono::nanoseconds>(poll_at - now, 0ns, std::max<std::chrono::nanoseconds>(to_renewal, 100ms)));
  co_return true;
}

// Before what failed is tried again: half as long as that took, at least, and not before the lease is kept. A process that
// stood still meanwhile waits no longer than its lease lets it. An error: it is lost.
Claim::Answer<bool> Claim::pauseBeforeNext(StoreError error, BootClock::time_point asked, Backoff& backoff) {
  context_.trouble.failed(kClaiming, error);
  const std::chrono::nanoseconds took = context_.now() - asked;
  const std::chrono::nanoseconds delay =
      std::max(delayAfter(error, backoff), std::min<std::chrono::nanoseconds>(took / 2, lease_->ttl / 4));
  StoreResult<bool> kept = co_await keepLeaseWhileWaiting();
  while (kept && !*kept && !context_.lifetime.stopping()) {
    const std::chrono::nanoseconds pause = backoff.next();
    co_await context_.lifetime.pause(pause);
    kept = co_await keepLeaseWhileWaiting();
  }
  if (kept) co_await context_.lifetime.pause(delay);
  co_return kept;
}

// False: etcd does not answer. An error: the lease is lost.
Claim::Answer<bool> Claim::keepLeaseWhileWaiting() {
  const std::chrono::nanoseconds ttl = lease_->ttl;
  if (context_.now() < lease_->sent_at + ttl / 3) co_return true;
  StoreResult<store::Lease> kept =
      co_await context_.store.leaseKeepAlive(lease_->id, std::clamp<std::chrono::nanoseconds>(ttl / 5, 200ms, 3s));
  if (!kept && kept.error().code == ErrorCode::kLeaseNotFound) co_return tl::unexpected(kept.error());
  if (kept) lease_ = *kept;
  co_return kept.has_value();
}

runtime::Task<void> Claim::watchAhead() {
  // The stream asks for a sign of life at half of this, and then sees whether the ticket is still the one to watch.
  constexpr std::chrono::nanoseconds kSilence = 10s;
  Backoff backoff(context_.jitter, 200ms, 5s);
  while (!context_.lifetime.stopping()) {
    ahead_changed_.reset();
    if (ahead_.empty()) {
      co_await ahead_changed_.wait(1h);
      continue;
    }
    const std::vector<std::string> tickets = ahead_;
    std::vector<store::WatchRange> ranges;
    ranges.reserve(tickets.size());
    for (const std::string& ticket : tickets) ranges.push_back({store::KeyRange::single(ticket), ahead_seen_at_ + 1});
    StoreResult<std::unique_ptr<store::WatchStream>> stream = co_await context_.store.watch(std::move(ranges));
    bool gone = false;
    bool alive = stream.has_value();
    while (alive && !gone && ahead_ == tickets && !context_.lifetime.stopping()) {
      const StoreResult<store::WatchBatch> batch = co_await (*stream)->next(kSilence);
      alive = batch.has_value();
      if (!alive) break;
      backoff.reset();
      gone = std::any_of(batch->events.begin(), batch->events.end(),
                         [](const store::WatchEvent& event) { return event.type == store::WatchEvent::Type::kDelete; });
    }
    if (gone && ahead_ == tickets) {
      ahead_.clear();
      look_again_ = true;
      wake_.set();
    } else if (!alive) {
      const std::chrono::nanoseconds delay = backoff.next();
      co_await context_.lifetime.pause(delay);
      if (ahead_ != tickets) continue;
      look_again_ = true;  // one may have gone meanwhile, and its revision may be compacted
      wake_.set();
    }
  }
}

// Until a lease that a key of ours is bound to has ended. False: it is renewed, by a process that is alive and has our
// UUID.
runtime::Task<bool> Claim::oldLeaseEnds() {
  constexpr int kRenewals = 2;  // one may be that of a new leader, which gives every lease its full time again
  context_.log.info(
      "{} is held under this node's UUID, and nothing proves that its holder has ended: "
      "waiting for the end of its lease",
      old_name_);
  std::optional<BootClock::time_point> latest_end;
  int renewals = 0;
  while (!context_.lifetime.stopping()) {
    const BootClock::time_point asked = context_.now();
    context_.counters.claim_requests.add();
    const StoreResult<std::chrono::seconds> left = co_await context_.store.leaseTimeToLive(old_lease_);
    std::chrono::nanoseconds delay = 1s;
    if (left) {
      context_.trouble.succeeded(kClaiming);
      const bool renewed = latest_end && asked + *left > *latest_end;
      if (renewed && ++renewals == kRenewals) co_return false;
      if (renewed || !latest_end) latest_end = context_.now() + *left + 1s;  // it was rounded down
      delay = std::clamp<std::chrono::nanoseconds>(*left / 4, 200ms, 2s);
    } else if (left.error().code == ErrorCode::kLeaseNotFound) {
      co_return true;
    } else {
      context_.trouble.failed(kClaiming, left.error());
    }
    co_await context_.lifetime.pause(delay);
  }
  co_return true;
}

// --- what is logged for the operator ---

void Claim::noteUnleased(const slots::QueueSnapshot& line, int64_t last_id) {
  constexpr int64_t kMaxNoted = 100;
  for (const int64_t id : line.unleased.lowest(kMaxNoted)) {
    if (id > last_id) break;
    if (unleased_noted_.size() >= kMaxNoted || !unleased_noted_.insert(id)) continue;
    context_.log.warning(
        "{} is held by a key without a lease: no node has it, and it stays taken until somebody deletes "
        "the key",
        options_.pattern.render(id));
  }
}

void Claim::noteFull(const slots::QueueSnapshot& line, WhenFull when_full) {
  constexpr int64_t kMaxNamed = 10;
  std::vector<std::string> unleased;
  for (const int64_t id : line.unleased.lowest(kMaxNamed)) unleased.push_back(options_.pattern.render(id));
  const int64_t count = line.unleased.size();
  refusal_ = fmt::format("Could not have more than {} nodes in your cluster.", options_.pattern.limit());
  if (count > 0) {
    refusal_ += fmt::format(" Held by keys without a lease, which no node has: {}{}", fmt::join(unleased, " "),
                            count > kMaxNamed ? fmt::format(" and {} more", count - kMaxNamed) : "");
  }
  if (std::exchange(full_noted_, true)) return;
  context_.counters.claims_refused.add();
  if (when_full != WhenFull::kWait) return;
  size_t before = 0;
  if (line.older) {
    for (const auto& tickets : *line.older) before += tickets.count;
  }
  context_.log.error(
      "{} This node serves without a name and waits for the next name that becomes free.{}", refusal_,
      before == 0 ? "" : fmt::format(" {} node{} before it.", before, before == 1 ? " waits" : "s wait"));
}

void Claim::noteReserved(const slots::QueueSnapshot& line) {
  constexpr size_t kMostNamed = 10;
  std::vector<int64_t> reserved = line.reserved.lowest(kMostNamed);
  if (reserved_noted_ == reserved) return;
  reserved_noted_ = std::move(reserved);
  if (reserved_noted_.empty()) return;
  std::vector<std::string> names;
  for (const int64_t id : reserved_noted_) names.push_back(options_.pattern.render(id));
  const int64_t more = line.reserved.size() - static_cast<int64_t>(names.size());
  context_.log.info("reserved for the nodes that had them: {}{}", fmt::join(names, " "),
                    more > 0 ? fmt::format(" and {} more", more) : "");
}

void Claim::noteWaiting() {
  if (ahead_.empty() || std::exchange(waiting_noted_, true)) return;
  std::vector<std::string_view> ahead;
  for (const std::string& ticket : ahead_) ahead.push_back(std::string_view(ticket).substr(queue_.begin.size()));
  context_.log.info("none of the free names is left for this node: others wait longer (limit/node: {})",
                    fmt::join(ahead, " "));
}

// Of the only slot that this node may take.
runtime::Task<void> Claim::noteHolder(std::string name) {
  if (std::exchange(waiting_noted_, true)) co_return;
  store::KeyRange slot = store::KeyRange::single(name);
  const StoreResult<RangeResult> found = co_await context_.store.range(std::move(slot), {});
  if (!found || found->kvs.empty()) co_return;
  const Result<NodeRecord> record = decodeRecord(found->kvs.front().value);
  std::vector<std::string> addresses;
  if (record) {
    for (const auto& ip : {record->ipv4, record->ipv6}) {
      if (ip) addresses.push_back(ip->toString());
    }
  }
  context_.log.warning(
      "{} is held by another node in the store that the cluster moves to: node {}, addresses {}. "
      "This node does not own it until that one lets go",
      name, record ? record->id : "unknown",
      addresses.empty() ? "unknown" : fmt::format("{}", fmt::join(addresses, " ")));
}

// --- taking a slot ---

// Above every token that this node knows of, of any holder.
int64_t Claim::leastToken(const slots::QueueSnapshot& line, bool back) const {
  return std::min(std::max({own_key_.highestToken(), floor_.token, back ? line.own->token : 0}) + 1, kMaxToken);
}

// What a claim that failed has read beside the line.
void Claim::learnFloor(const RangeResult& found) {
  floor_.token = floor_.revision = 0;
  if (found.kvs.empty()) return;
  const store::KeyValue& kv = found.kvs.front();
  floor_.revision = kv.mod_revision;
  // A value that was put there by hand is no token.
  if (const auto token = parseNumber<int64_t>(kv.value)) floor_.token = std::clamp<int64_t>(*token, 0, kMaxToken);
}

void Claim::remember(ClaimedSlot slot) {
  slot_ = std::move(slot);
  reservation_.claimed(slot_.name);
  raised_ = 0;
  own_key_.sawToken(slot_.token);
  own_key_.claimed(slot_.revision);
}

// Ticket against slot: one transaction, so that every reader of the queue finds us in the queue or in the slot, never
// in both.
Claim::Answer<Claim::Attempt> Claim::take(slots::SlotChoice choice, slots::QueueSnapshot line) {
  // Before the request: the watch may bring the key before the answer comes.
  own_key_.follow(choice.name);
  const bool back = choice.kind == slots::SlotChoice::Kind::kTakeBack;
  // A key that is made now gets a higher create_revision than all before, unless the store was set back.
  if (floor_.name != choice.name) floor_ = {.name = choice.name};
  const int64_t least = leastToken(line, back);
  const bool raised = line.set_back || line.revision < std::max(floor_.token, back ? line.own->token : 0);
  const int64_t said = back || raised ? least : 0;
  const std::string value = valueWith(said, choice.id);
  const std::string incarnation = Incarnation::draw(context_);
  const std::string floor_key = tokenFloorKey(choice.name);
  Transaction transaction;
  transaction.require({.key = choice.name,
                       .target = back ? Compare::Target::kModRevision : Compare::Target::kCreateRevision,
                       .number = back ? line.own->mod_revision : 0});
  const auto& kept = line.own_reservation;
  if (!back && !bound_) {
    transaction.require({.key = reservationKey(choice.name),
                         .target = Compare::Target::kModRevision,
                         .number = kept && kept->id == choice.id ? kept->mod_revision : 0});
  }
  transaction.require({.key = ticket_, .target = Compare::Target::kModRevision, .number = line.ticket_revision});
  transaction.require({.key = floor_key, .target = Compare::Target::kModRevision, .number = floor_.revision});
  transaction.put({choice.name, value, lease_->id});
  transaction.put({incarnationKey(record_.id), incarnation, lease_->id});
  transaction.erase(ticket_);
  for (const std::string& key : own_reservations_) {
    if (!reservation_.isWanted() || key != reservationKey(choice.name)) transaction.erase(key);
  }
  if (reservation_.isWanted()) transaction.put(reservation_.put(choice.name, record_.id));
  // As a rule this transaction's revision is no lower than what it says, so every later claim gets a higher one.
  if (raised || said > std::max(line.revision, own_key_.newestRevision()) + 1) {
    transaction.put({floor_key, std::to_string(said), 0});
  } else if (floor_.revision != 0) {
    transaction.erase(floor_key);
  }
  const Transaction::Read floor =
      transaction.read({store::KeyRange::single(floor_key), {}}, Transaction::Branch::kFailure);
  const BootClock::time_point sent = context_.now();
  StoreResult<TxnResult> answer = co_await ask(&transaction);
  if (!answer || !answer->succeeded) own_key_.answered();
  if (!answer && answer.error().ambiguous()) {
    StoreResult<Attempt> attempt = co_await readBack(std::move(choice), incarnation, answer.error());
    co_return attempt;
  }
  if (!answer) co_return tl::unexpected(answer.error());
  if (answer->succeeded) {
    const int64_t created = back ? line.own->create_revision : answer->revision;
    Incarnation::Written written{.value = incarnation, .revision = answer->revision, .as_of = sent};
    remember({choice.id, std::move(choice.name), std::max(created, said), created, said, answer->revision, value,
              std::move(written)});
    co_return Attempt{.claimed = true, .line = {}};
  }
  learnFloor(transaction.result(*answer, floor));
  context_.counters.claim_collisions.add();
  StoreResult<slots::QueueSnapshot> next = slots::QueueSnapshot();
  if (bound_) {
    next = co_await look();
  } else {
    next = co_await waitForTurn(false);
  }
  if (!next) co_return tl::unexpected(next.error());
  next->set_back = next->set_back || line.set_back;
  co_return Attempt{.claimed = false, .line = *std::move(next)};
}

// The answer to the claim was lost. If the slot shows our UUID under our lease, the claim was applied. If not, it may
// still be applied later, unless the ticket is put again, whose version it requires. Where that cannot be, the failure
// stands, and release() makes sure that the claim is not applied.
Claim::Answer<Claim::Attempt> Claim::readBack(slots::SlotChoice choice, std::string incarnation, StoreError unclear) {
  Backoff backoff(context_.jitter, 100ms, 3s);
  bool is_last = unclear.code == ErrorCode::kNoSpace;
  while (!context_.lifetime.stopping()) {
    context_.counters.claim_requests.add();
    const BootClock::time_point asked = context_.now();
    const int64_t seen = own_key_.highestToken();
    store::KeyRange slot = store::KeyRange::single(choice.name);
    StoreResult<RangeResult> answer = co_await context_.store.range(std::move(slot), {});
    if (answer) {
      // Then others have had the name meanwhile, perhaps, with a higher token.
      const bool was_set_back = answer->revision < seen || own_key_.wasSetBack();
      for (const store::KeyValue& kv : answer->kvs) {
        const Result<NodeRecord> record = decodeRecord(kv.value);
        if (!record || record->id != record_.id || kv.lease != lease_->id) continue;
        if (was_set_back) break;
        const int64_t token = std::max(kv.create_revision, record->token);
        Incarnation::Written written{.value = std::move(incarnation), .revision = kv.mod_revision, .as_of = {}};
        remember({choice.id, std::move(choice.name), token, kv.create_revision, record->token, kv.mod_revision,
                  kv.value, std::move(written)});
        co_return Attempt{.claimed = true, .line = {}};
      }
      if (is_last || was_set_back) co_return tl::unexpected(std::move(unclear));
      StoreResult<slots::QueueSnapshot> line = co_await enqueue(0, choice.name);
      if (line) co_return Attempt{.claimed = false, .line = *std::move(line)};
      is_last = true;  // it may have been applied meanwhile
      continue;
    }
    const StoreResult<bool> kept = co_await pauseBeforeNext(answer.error(), asked, backoff);
    if (!kept) co_return tl::unexpected(kept.error());
  }
  co_return stopped();
}

// If ours is among the tickets that were not read, it waits.
Claim::Answer<slots::QueueSnapshot> Claim::readLine(RangeResult taken, RangeResult reserved, RangeResult queue,
                                                    int64_t revision) {
  StoreResult<slots::QueueSnapshot> line = co_await readSlots(std::move(taken), std::move(reserved), revision);
  if (!line) co_return tl::unexpected(line.error());
  line->revision = revision;
  const bool all_can = findPlace(queue.kvs, &*line);
  if (!line->older && queue.more && (!all_can || line->own_reservation)) {
    // Those that were read need not get all that is free, however many they are.
    std::vector<store::KeyValue> tickets;
    auto collect = [&tickets](std::vector<store::KeyValue>&& page) {
      std::move(page.begin(), page.end(), std::back_inserter(tickets));
      return true;
    };
    const store::RangeOptions options{.revision = revision, .keys_only = true};
    const StoreResult<int64_t> read =
        co_await store::rangePaginated(context_.store, queue_, options, kLinePage, std::move(collect));
    if (!read) co_return tl::unexpected(read.error());
    std::ranges::sort(tickets, {}, &store::KeyValue::create_revision);
    findPlace(tickets, &*line);
    queue.more = false;
  }
  line->far_back = !line->older && queue.more;
  co_return line;
}

// Where our ticket is among these, which are by age; nowhere if it is not. False: some node can take less than ours.
bool Claim::findPlace(const std::vector<store::KeyValue>& tickets, slots::QueueSnapshot* line) const {
  const int64_t own = options_.pattern.limit();
  std::vector<slots::QueueSnapshot::Tickets> older;
  std::map<int64_t, std::string> youngest;  // by limit
  for (const store::KeyValue& ticket : tickets) {
    if (ticket.key == ticket_) {
      line->older = std::move(older);
      line->ticket_revision = ticket.mod_revision;
      for (auto& [limit, key] : youngest) line->ahead.push_back(std::move(key));
      break;
    }
    const int64_t its_own = limitOf(ticket.key, queue_.begin).value_or(own);
    const int64_t limit = std::clamp<int64_t>(its_own, 0, own);
    if (older.empty() || older.back().limit != limit) older.push_back({limit, 0});
    ++older.back().count;
    youngest[limit] = ticket.key;
  }
  return youngest.empty() || youngest.begin()->first == own;
}

// The keys of all slots, and the reservations: those of the first pages, and the others at the same revision.
Claim::Answer<slots::QueueSnapshot> Claim::readSlots(RangeResult first_page, RangeResult reserved, int64_t revision) {
  slots::QueueSnapshot line;
  const store::RangeOptions options{.revision = revision, .keys_only = true};
  const StoreResult<bool> names =
      co_await readPages(std::move(first_page), slots_, options, [this, &line](const std::vector<store::KeyValue>& page) {
        for (const store::KeyValue& kv : page) {
          const std::optional<int64_t> id = options_.pattern.recognise(kv.key);
          if (!id) continue;
          line.taken.insert(*id);
          if (kv.lease == 0) line.unleased.insert(*id);
        }
      });
  if (!names) co_return tl::unexpected(names.error());
  own_reservations_.clear();
  const StoreResult<bool> waiting = co_await readPages(
      std::move(reserved), reserved_, {.revision = revision}, [this, &line](const std::vector<store::KeyValue>& page) {
        for (const store::KeyValue& kv : page) addReserved(kv, &line);
      });
  if (!waiting) co_return tl::unexpected(waiting.error());
  co_return line;
}

Claim::Answer<bool> Claim::readPages(RangeResult first_page, store::KeyRange range, store::RangeOptions options,
                                     AddPage add) {
  add(first_page.kvs);
  if (!first_page.more || first_page.kvs.empty()) co_return true;
  store::KeyRange rest{first_page.kvs.back().key + '\0', std::move(range.end)};
  std::function<bool(std::vector<store::KeyValue> &&)> collect = [&add](std::vector<store::KeyValue>&& page) {
    add(page);
    return true;
  };
  const StoreResult<int64_t> read =
      co_await store::rangePaginated(context_.store, std::move(rest), options, kLinePage, std::move(collect));
  if (!read) co_return tl::unexpected(read.error());
  co_return true;
}

// A bound node takes its slot whoever has reserved it: in the store that decides it has it.
void Claim::addReserved(const store::KeyValue& kv, slots::QueueSnapshot* line) {
  const std::optional<int64_t> id = options_.pattern.recognise(reservedName(kv.key));
  line->reserving = !bound_;
  if (kv.value == record_.id) {
    if (own_reservations_.size() < kMostOwn) own_reservations_.push_back(kv.key);
    const bool is_better = !line->own_reservation || id == preferred_id_;
    if (id && is_better && !line->taken.contains(*id))
      line->own_reservation = {.id = *id, .mod_revision = kv.mod_revision};
    return;
  }
  if (!id || bound_ || !line->taken.insert(*id)) return;
  line->reserved.insert(*id);
}

Claim::Answer<bool> Claim::prepareReservation() {
  const std::string preferred = preferredKey(preferred_id_);
  const StoreResult<bool> prepared = co_await reservation_.prepare(preferred, record_.id);
  co_return prepared;
}

Claim::Answer<bool> Claim::refresh() {
  const int64_t said = tokenToSay();
  const std::string value = valueWith(said, slot_.id);
  const std::string key = slot_.name;
  const int64_t revision = slot_.revision;  // of the claim, which is another one later
  Transaction transaction;
  transaction.require({.key = key, .target = Compare::Target::kCreateRevision, .number = slot_.create_revision});
  transaction.require({.key = key, .target = Compare::Target::kLease, .number = lease_->id});
  transaction.put({key, value, lease_->id});
  if (said != slot_.said_token) transaction.put({tokenFloorKey(key), std::to_string(said), 0});
  StoreResult<TxnResult> answer = co_await context_.store.txn(transaction.request());
  if (!answer) co_return tl::unexpected(answer.error());
  // Meanwhile the name may have been lost, and another one claimed.
  if (answer->succeeded && slot_.name == key && slot_.revision == revision) {
    slot_.value = value;
    slot_.said_token = said;
    slot_.token = std::max(slot_.token, said);
    own_key_.sawToken(slot_.token);
  }
  co_return answer->succeeded;
}

runtime::Task<void> Claim::release() {
  constexpr int kAttemptsWhileStopping = 2;
  Backoff backoff(context_.jitter, 100ms, 3s);
  claimed_.reset();
  for (int attempts = 1; lease_; ++attempts) {
    const StoreResult<void> revoked = co_await context_.store.leaseRevoke(lease_->id);
    lives_on_ = !revoked && revoked.error().code != ErrorCode::kLeaseNotFound;
    if (!lives_on_) break;
    context_.trouble.failed("giving a lease back", revoked.error());
    if (context_.lifetime.stopping() && attempts >= kAttemptsWhileStopping) break;
    // etcd does answer, and refuses (permission revoked): a lease that is not kept alive is gone after its time. Twice,
    // because a new leader gives every lease its full time again. While nobody answers, any number of leaders may come
    // and go, and there is nothing to claim from either.
    const bool refused = revoked.error().sent && !revoked.error().ambiguous();
    if (refused && context_.now() > lease_->sent_at + 2 * lease_->ttl) break;
    const std::chrono::nanoseconds delay = backoff.next();
    co_await context_.lifetime.pause(delay);
  }
  if (lease_) last_lease_ = lease_->id;
  lease_.reset();
}

std::chrono::nanoseconds Claim::delayAfter(const StoreError& error, Backoff& backoff) {
  // Not connected: that costs etcd nothing, and when it is back the name comes soon.
  if (!error.sent) return std::min(backoff.next(), context_.jitter.around(1s, 0.5));
  switch (error.code) {
    case ErrorCode::kNoSpace:  // an operator has to act; reads, and so our answers, go on
    case ErrorCode::kPermissionDenied:
    case ErrorCode::kUnauthenticated:
    case ErrorCode::kStaleToken:
      return context_.jitter.around(10s, 0.5);
    default:
      return backoff.next();
  }
}

}  // namespace idetcd::naming
