#include "cluster/claim.h"

#include <algorithm>
#include <utility>

#include "cluster/keyspace.h"

namespace idetcd::cluster {
namespace {

using etcd::Compare;
using etcd::ErrorCode;
using etcd::EtcdError;
using etcd::EtcdResult;
using etcd::RangeOp;
using etcd::RangeResult;
using etcd::TxnRequest;
using etcd::TxnResult;
using namespace std::chrono_literals;

constexpr std::string_view kDoing = "claiming a name";

// Keys alone, of at most 255 octets and some integers: a page stays well under gRPC's 4 MB.
constexpr int64_t kLinePage = 10'000;

etcd::KeyRange slotRange(const NamePattern& pattern) {
  if (pattern.literalPrefix().empty()) return watchedRange();
  return etcd::KeyRange::prefix(pattern.literalPrefix());
}

tl::unexpected<EtcdError> unfitting() {
  return tl::unexpected(EtcdError{ErrorCode::kOther, "etcd's answer does not fit the transaction"});
}

tl::unexpected<EtcdError> stopped() { return tl::unexpected(EtcdError{ErrorCode::kCancelled, "stopping"}); }

}  // namespace

Claim::Claim(Context& context, Options options, OwnKey& own_key)
    : context_(context),
      options_(std::move(options)),
      own_key_(own_key),
      slots_(slotRange(options_.pattern)),
      queue_(etcd::KeyRange::prefix(queuePrefix(options_.pattern.text()))) {
  setRecord(options_.record);
}

void Claim::setRecord(NodeRecord record) {
  record_ = std::move(record);
  value_ = encodeRecord(record_);
  ticket_ = queuePrefix(options_.pattern.text()) + record_.id;
}

etcd::Task<Claim::Outcome> Claim::run(int64_t preferred_id) {
  Backoff backoff(context_.jitter, 100ms, 3s);
  while (!context_.lifetime.stopping()) {
    const EtcdResult<Outcome> outcome = co_await attempt(preferred_id);
    if (outcome) context_.trouble.succeeded(kDoing);
    if (outcome && *outcome == Outcome::kClaimed) {
      context_.counters.claims.add();
      co_return Outcome::kClaimed;
    }
    co_await release();
    if (outcome) {
      context_.counters.claims_refused.add();
      co_return Outcome::kFull;
    }
    context_.trouble.failed(kDoing, outcome.error());
    const std::chrono::nanoseconds delay = delayAfter(outcome.error(), backoff);
    co_await context_.lifetime.pause(delay);
  }
  co_return Outcome::kStopped;
}

// One lease: from its grant to a slot, to "full", or to a failure that a new lease has to start over from.
Claim::Answer<Claim::Outcome> Claim::attempt(int64_t preferred_id) {
  const EtcdResult<bool> granted = co_await grant();
  if (!granted) co_return tl::unexpected(granted.error());
  EtcdResult<Line> line = co_await enqueue(preferred_id);
  // Who waits is beyond the slots, and maybe one of many: what he waits for is that all slots are taken, which is soon,
  // or that the lease of somebody ahead ends, which is not.
  Backoff patience(context_.jitter, 100ms, std::max<std::chrono::nanoseconds>(1s, lease_->ttl / 4));
  while (line && !context_.lifetime.stopping()) {
    SlotChoice choice = chooseSlot(options_.pattern, options_.limit, *line, preferred_id);
    switch (choice.kind) {
      case SlotChoice::Kind::kFull:
        co_return Outcome::kFull;
      case SlotChoice::Kind::kUnqueued:
        line = co_await enqueue(preferred_id);
        break;
      case SlotChoice::Kind::kWait: {
        const std::chrono::nanoseconds delay = patience.next();
        co_await context_.lifetime.pause(delay);
        const EtcdResult<bool> kept = co_await keepLeaseWhileWaiting();
        if (!kept) co_return tl::unexpected(kept.error());
        line = co_await look();
        break;
      }
      case SlotChoice::Kind::kTake:
      case SlotChoice::Kind::kTakeBack: {
        EtcdResult<Attempt> taken = co_await take(std::move(choice), *std::move(line));
        if (!taken) co_return tl::unexpected(taken.error());
        if (taken->claimed) co_return Outcome::kClaimed;
        context_.counters.claim_collisions.add();
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
  EtcdResult<etcd::Lease> granted = co_await context_.client.leaseGrant(options_.lease);
  if (!granted) co_return tl::unexpected(granted.error());
  lease_ = *granted;
  co_return true;
}

// Puts our ticket and reads where it stands, at the same revision.
Claim::Answer<Line> Claim::enqueue(int64_t preferred_id) {
  const std::string preferred = preferredKey(preferred_id);
  TxnRequest request;
  request.success.emplace_back(etcd::PutOp{ticket_, value_, lease_->id});
  request.success.emplace_back(RangeOp{slots_, {.limit = kLinePage, .keys_only = true}});
  request.success.emplace_back(RangeOp{queue_, {.count_only = true}});
  request.success.emplace_back(RangeOp{etcd::KeyRange::single(ticket_), {.keys_only = true}});
  if (!preferred.empty()) request.success.emplace_back(RangeOp{etcd::KeyRange::single(preferred), {}});
  context_.counters.claim_requests.add();
  EtcdResult<TxnResult> answer = co_await context_.client.txn(std::move(request));
  if (!answer) co_return tl::unexpected(answer.error());
  EtcdResult<Line> line = co_await readEnqueued(std::move(answer->results), answer->revision);
  co_return line;
}

Claim::Answer<Line> Claim::readEnqueued(std::vector<etcd::OpResult> results, int64_t revision) {
  for (size_t i = 1; i < results.size(); ++i) {
    if (!std::holds_alternative<RangeResult>(results[i])) co_return unfitting();
  }
  if (results.size() < 4) co_return unfitting();
  const int64_t tickets = std::get<RangeResult>(results[2]).count;
  const std::vector<etcd::KeyValue>& own_ticket = std::get<RangeResult>(results[3]).kvs;
  // A ticket that was there before (its answer was lost) is not the youngest: its rank has to be counted.
  if (own_ticket.empty() || own_ticket.front().create_revision != revision || tickets < 1) {
    EtcdResult<Line> line = co_await look();
    if (line && results.size() > 4) line->own = readOwn(std::get<RangeResult>(results[4]));
    co_return line;
  }
  RangeResult taken = std::get<RangeResult>(std::move(results[1]));
  EtcdResult<Line> line = co_await readSlots(std::move(taken), revision);
  if (!line) co_return tl::unexpected(line.error());
  line->rank = static_cast<size_t>(tickets - 1);
  line->ticket_revision = revision;
  if (results.size() > 4) line->own = readOwn(std::get<RangeResult>(results[4]));
  co_return line;
}

std::string Claim::preferredKey(int64_t preferred_id) const {
  return preferred_id > 0 && preferred_id <= options_.limit ? options_.pattern.render(preferred_id) : std::string();
}

std::optional<Line::OwnKey> Claim::readOwn(const RangeResult& found) const {
  if (found.kvs.empty()) return std::nullopt;
  const etcd::KeyValue& kv = found.kvs.front();
  const Result<NodeRecord> record = decodeRecord(kv.value);
  if (!record || record->id != record_.id) return std::nullopt;
  return Line::OwnKey{kv.mod_revision, kv.create_revision};
}

Claim::Answer<Line> Claim::look() {
  TxnRequest request;
  request.success = lineReads();
  context_.counters.claim_requests.add();
  EtcdResult<TxnResult> answer = co_await context_.client.txn(std::move(request));
  if (!answer) co_return tl::unexpected(answer.error());
  EtcdResult<Line> line = co_await readLine(std::move(answer->results), 0, answer->revision);
  co_return line;
}

Claim::Answer<bool> Claim::keepLeaseWhileWaiting() {
  const std::chrono::nanoseconds ttl = lease_->ttl;
  if (BootClock::now() < lease_->sent_at + ttl / 3) co_return true;
  EtcdResult<etcd::Lease> kept = co_await context_.client.leaseKeepAlive(lease_->id, ttl);
  if (!kept) co_return tl::unexpected(kept.error());
  lease_ = *kept;
  co_return true;
}

// Ticket against slot: one transaction, so that every line anybody reads shows us in the queue or in the slot, never
// both.
Claim::Answer<Claim::Attempt> Claim::take(SlotChoice choice, Line line) {
  // Before the request: the watch may bring the key before the answer comes.
  own_key_.follow(choice.name);
  const std::string value = value_;
  const bool back = choice.kind == SlotChoice::Kind::kTakeBack;
  TxnRequest request;
  request.compares.push_back({.key = choice.name,
                              .target = back ? Compare::Target::kModRevision : Compare::Target::kCreateRevision,
                              .number = back ? line.own->mod_revision : 0,
                              .value = {}});
  request.compares.push_back(
      {.key = ticket_, .target = Compare::Target::kCreateRevision, .number = line.ticket_revision, .value = {}});
  request.success.emplace_back(etcd::PutOp{choice.name, value, lease_->id});
  request.success.emplace_back(etcd::DeleteOp{etcd::KeyRange::single(ticket_)});
  request.failure = lineReads();
  context_.counters.claim_requests.add();
  EtcdResult<TxnResult> answer = co_await context_.client.txn(std::move(request));
  if (!answer && answer.error().ambiguous()) {
    EtcdResult<Attempt> attempt = co_await readBack(std::move(choice), answer.error());
    co_return attempt;
  }
  if (!answer) co_return tl::unexpected(answer.error());
  if (answer->succeeded) {
    const int64_t token = back ? line.own->create_revision : answer->revision;
    slot_ = {choice.id, std::move(choice.name), token, answer->revision, value};
    co_return Attempt{.claimed = true, .line = {}};
  }
  EtcdResult<Line> next = co_await readLine(std::move(answer->results), 0, answer->revision);
  if (!next) co_return tl::unexpected(next.error());
  co_return Attempt{.claimed = false, .line = *std::move(next)};
}

// The answer to the claim was lost. If the slot shows our UUID under our lease, the claim was applied. If not, it may
// still be applied later: the failure stands, and release() makes sure that it is not.
Claim::Answer<Claim::Attempt> Claim::readBack(SlotChoice choice, EtcdError unclear) {
  Backoff backoff(context_.jitter, 100ms, 3s);
  while (!context_.lifetime.stopping()) {
    context_.counters.claim_requests.add();
    etcd::KeyRange slot = etcd::KeyRange::single(choice.name);
    EtcdResult<RangeResult> answer = co_await context_.client.range(std::move(slot), {});
    if (answer) {
      for (const etcd::KeyValue& kv : answer->kvs) {
        const Result<NodeRecord> record = decodeRecord(kv.value);
        if (!record || record->id != record_.id || kv.lease != lease_->id) continue;
        slot_ = {choice.id, std::move(choice.name), kv.create_revision, kv.mod_revision, kv.value};
        co_return Attempt{.claimed = true, .line = {}};
      }
      co_return tl::unexpected(std::move(unclear));
    }
    context_.trouble.failed(kDoing, answer.error());
    const std::chrono::nanoseconds delay = backoff.next();
    co_await context_.lifetime.pause(delay);
  }
  co_return stopped();
}

std::vector<etcd::Op> Claim::lineReads() const {
  std::vector<etcd::Op> reads;
  reads.emplace_back(RangeOp{slots_, {.limit = kLinePage, .keys_only = true}});
  // However long the queue: whoever is not among the oldest `limit` has no slot yet.
  const int64_t tickets = std::min(kLinePage, options_.limit);
  reads.emplace_back(RangeOp{queue_, {.limit = tickets, .keys_only = true, .sort_by_create_revision = true}});
  return reads;
}

// The answers to lineReads(), from results[first] on. If ours is among the tickets that were not read, it waits.
Claim::Answer<Line> Claim::readLine(std::vector<etcd::OpResult> results, size_t first, int64_t revision) {
  if (results.size() < first + 2 || !std::holds_alternative<RangeResult>(results[first]) ||
      !std::holds_alternative<RangeResult>(results[first + 1])) {
    co_return unfitting();
  }
  RangeResult taken = std::get<RangeResult>(std::move(results[first]));
  const RangeResult& queue = std::get<RangeResult>(results[first + 1]);
  EtcdResult<Line> line = co_await readSlots(std::move(taken), revision);
  if (!line) co_return tl::unexpected(line.error());
  for (size_t i = 0; i < queue.kvs.size(); ++i) {
    if (queue.kvs[i].key != ticket_) continue;
    line->rank = i;
    line->ticket_revision = queue.kvs[i].create_revision;
  }
  line->far_back = !line->rank && queue.more;
  co_return line;
}

// The keys of all slots: those of the first page, and the others at the same revision.
Claim::Answer<Line> Claim::readSlots(RangeResult first_page, int64_t revision) {
  Line line;
  const std::string last = first_page.kvs.empty() ? std::string() : first_page.kvs.back().key;
  for (etcd::KeyValue& kv : first_page.kvs) line.keys.insert(std::move(kv.key));
  if (!first_page.more || last.empty()) co_return line;

  etcd::KeyRange rest{last + '\0', slots_.end};
  etcd::RangeOptions options{.revision = revision, .keys_only = true};
  auto collect = [&line](std::vector<etcd::KeyValue>&& page) {
    for (etcd::KeyValue& kv : page) line.keys.insert(std::move(kv.key));
    return true;
  };
  EtcdResult<int64_t> read =
      co_await etcd::rangePaginated(context_.client, std::move(rest), options, kLinePage, std::move(collect));
  if (!read) co_return tl::unexpected(read.error());
  co_return line;
}

Claim::Answer<bool> Claim::refresh() {
  const std::string value = value_;
  const std::string key = slot_.name;
  const int64_t token = slot_.token;
  TxnRequest request;
  request.compares.push_back({.key = key, .target = Compare::Target::kCreateRevision, .number = token, .value = {}});
  request.compares.push_back({.key = key, .target = Compare::Target::kLease, .number = lease_->id, .value = {}});
  request.success.emplace_back(etcd::PutOp{key, value, lease_->id});
  EtcdResult<TxnResult> answer = co_await context_.client.txn(std::move(request));
  if (!answer) co_return tl::unexpected(answer.error());
  // Meanwhile the name may have been lost, and another one claimed.
  if (answer->succeeded && slot_.name == key && slot_.token == token) slot_.value = value;
  co_return answer->succeeded;
}

etcd::Task<void> Claim::release() {
  constexpr int kAttemptsWhileStopping = 2;
  Backoff backoff(context_.jitter, 100ms, 3s);
  for (int attempts = 1; lease_; ++attempts) {
    const EtcdResult<void> revoked = co_await context_.client.leaseRevoke(lease_->id);
    if (revoked || revoked.error().code == ErrorCode::kLeaseNotFound) break;
    context_.trouble.failed("giving a lease back", revoked.error());
    if (context_.lifetime.stopping() && attempts >= kAttemptsWhileStopping) break;
    // etcd does answer, and refuses (permission revoked): a lease that nobody keeps alive is gone after its time.
    // Twice, because a new leader gives every lease its full time again.
    if (!revoked.error().ambiguous() && BootClock::now() > lease_->sent_at + 2 * lease_->ttl) break;
    const std::chrono::nanoseconds delay = backoff.next();
    co_await context_.lifetime.pause(delay);
  }
  lease_.reset();
}

std::chrono::nanoseconds Claim::delayAfter(const EtcdError& error, Backoff& backoff) {
  switch (error.code) {
    case ErrorCode::kNoSpace:  // somebody has to act; meanwhile reads, and so our answers, go on
    case ErrorCode::kPermissionDenied:
    case ErrorCode::kUnauthenticated:
      return context_.jitter.around(10s, 0.5);
    default:
      return backoff.next();
  }
}

}  // namespace idetcd::cluster
