#include "simulation/simulated_etcd.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace idetcd::simulation {
namespace {

using store::StoreError;
using store::StoreResult;
using namespace std::chrono_literals;

constexpr Duration kElection = 1000ms;         // election-timeout, by default
constexpr Duration kLongestElection = 2500ms;  // until a new leader is known to all
constexpr Duration kExpiryInterval = 500ms;    // in which the leader looks for leases that have ended
constexpr Duration kUsualLag = 3ms;

StoreError noLeader() { return {ErrorCode::kUnavailable, "etcdserver: no leader"}; }
StoreError timedOut() { return {ErrorCode::kUnavailable, "etcdserver: request timed out"}; }
StoreError broken() { return {ErrorCode::kUnavailable, "the connection broke"}; }

template <typename T>
Answer toAnswer(StoreResult<T> result) {
  if (!result) return tl::unexpected(std::move(result.error()));
  if constexpr (std::is_void_v<T>) {
    return Response{};
  } else {
    return Response{*std::move(result)};
  }
}

// --- sizes, for Traffic ---

constexpr size_t kMessageBytes = 45;   // the frames, and etcd's header
constexpr size_t kKeyValueBytes = 22;  // its revisions, lease and tags
constexpr size_t kEventBytes = 4;

size_t sizeOf(const store::KeyValue& kv) { return kv.key.size() + kv.value.size() + kKeyValueBytes; }

size_t sizeOf(const store::RangeResult& range) {
  size_t size = 4;
  for (const store::KeyValue& kv : range.kvs) size += sizeOf(kv);
  return size;
}

size_t sizeOf(const store::TxnResult& txn) {
  size_t size = 0;
  for (const store::OpResult& op : txn.results) {
    const auto* range = std::get_if<store::RangeResult>(&op);
    size += range == nullptr ? 10 : 10 + sizeOf(*range);
  }
  return size;
}

// Not inlined: gcc 12 takes the moved answer for uninitialized there.
[[gnu::noinline]] size_t sizeOf(const Answer& answer) {
  if (!answer) return kMessageBytes + answer.error().message.size();
  if (const auto* range = std::get_if<store::RangeResult>(&*answer)) return kMessageBytes + sizeOf(*range);
  if (const auto* txn = std::get_if<store::TxnResult>(&*answer)) return kMessageBytes + sizeOf(*txn);
  return kMessageBytes + (std::holds_alternative<store::Lease>(*answer) ? 12 : 0);
}

size_t sizeOf(const store::WatchBatch& batch) {
  size_t size = kMessageBytes;
  for (const store::WatchEvent& event : batch.events) size += kEventBytes + sizeOf(event.kv);
  return size;
}

bool writes(const std::vector<store::Op>& branch) {
  return std::any_of(branch.begin(), branch.end(),
                     [](const store::Op& op) { return !std::holds_alternative<store::RangeOp>(op); });
}

bool isReadOnly(const store::TxnRequest& txn) { return !writes(txn.success) && !writes(txn.failure); }

}  // namespace

SimulatedEtcd::SimulatedEtcd(VirtualTime& time, Random& random, size_t members, std::function<void()> on_change)
    : time_(time), random_(random), on_change_(std::move(on_change)), members_(members) {
  lookForExpired();
}

bool SimulatedEtcd::isAvailable() const {
  const auto voting = static_cast<size_t>(
      std::count_if(members_.begin(), members_.end(), [](const Member& member) { return member.votes(); }));
  return up_ && has_leader_ && voting * 2 > members_.size();
}

bool SimulatedEtcd::canSpare() const {
  const auto voting = static_cast<size_t>(
      std::count_if(members_.begin(), members_.end(), [](const Member& member) { return member.votes(); }));
  return (voting - 1) * 2 > members_.size();
}

// --- requests ---

SimulatedEtcd::Reply SimulatedEtcd::counted(const Request& request, Reply reply) {
  ++traffic_.requests[request.index()];
  return [this, reply = std::move(reply)](Answer answer) {
    traffic_.bytes += sizeOf(answer);
    reply(std::move(answer));
  };
}

void SimulatedEtcd::handle(size_t index, Request request, Reply reply) {
  Member& member = members_[index];
  if (!listens(index)) return;
  reply = counted(request, std::move(reply));
  if (service_time_ > Duration(0)) {
    busy_until_ = std::max(busy_until_, time_.now()) + service_time_;
    return time_.at(busy_until_, [this, index, request = std::move(request), reply = std::move(reply), life = life_] {
      if (life == life_ && listens(index)) dispatch(index, request, reply);
    });
  }
  if (member.is(Fault::kPaused)) {
    member.inbox.push_back(
        [this, index, request = std::move(request), reply = std::move(reply)] { dispatch(index, request, reply); });
    return;
  }
  dispatch(index, request, reply);
}

void SimulatedEtcd::dispatch(size_t index, const Request& request, const Reply& reply) {
  Member& member = members_[index];
  if (member.is(Fault::kIsolated)) {
    const Duration since = time_.now() - member.isolated_since;
    const auto* renewal = std::get_if<LeaseKeepAliveRequest>(&request);
    // A leader learns with the end of its term that it leads nobody; until then it renews leases by itself.
    if (renewal != nullptr && member.led && since < kElection) {
      EtcdModel own = model_;
      if (auto renewed = own.leaseKeepAlive(renewal->id, time_.now())) reply(toAnswer(*std::move(renewed)));
      return;
    }
    if (since > kElection) reply(tl::unexpected(noLeader()));
    return;
  }
  if (!isAvailable()) return answerWithoutQuorum(index, request, reply);
  process(index, request, reply);
}

// No leader is known just now: some requests fail at once, some after they were applied all the same, some are dealt
// with when there is one, and of some nobody hears again.
void SimulatedEtcd::answerWithoutQuorum(size_t index, Request request, Reply reply) {
  switch (random_.below(4)) {
    case 0:
      return reply(tl::unexpected(noLeader()));
    case 1:
      reply(tl::unexpected(timedOut()));
      reply = [](const Answer&) {};
      [[fallthrough]];
    case 2:
      held_.push_back([this, index, request = std::move(request), reply = std::move(reply)] {
        if (!members_[index].is(Fault::kKilled)) process(index, request, reply);
      });
      return;
    default:
      return;
  }
}

void SimulatedEtcd::process(size_t index, const Request& request, const Reply& reply) {
  if (const auto* range = std::get_if<RangeRequest>(&request)) {
    if (range->options.serializable || members_[index].is(Fault::kStale)) return reply(read(index, *range));
    return whenApplied(index, [this, index, range = *range, reply] { reply(read(index, range)); });
  }
  if (const auto* renewal = std::get_if<LeaseKeepAliveRequest>(&request)) return keepAlive(index, renewal->id, reply);
  if (const auto* query = std::get_if<LeaseTimeToLiveRequest>(&request))
    return reply(toAnswer(model_.leaseTimeToLive(query->id, time_.now())));
  write(index, request, reply);
}

// What its reader does not want is sent all the same, as far as Traffic knows.
Answer SimulatedEtcd::read(size_t index, const RangeRequest& request) {
  EtcdModel::WantsValue wants;
  if (request.wants_value) {
    wants = [this, &request](const store::KeyValue& kv) {
      const bool wanted = request.wants_value(kv);
      if (!wanted) traffic_.bytes += kv.value.size() - EtcdModel::kNoValue.size();
      return wanted;
    };
  }
  return toAnswer(model_.range(request.range, request.options, members_[index].applied, wants));
}

// The leader answers, whoever was asked.
void SimulatedEtcd::keepAlive(size_t index, int64_t id, const Reply& reply) {
  auto renewed = model_.leaseKeepAlive(id, time_.now());
  if (renewed) return reply(toAnswer(*std::move(renewed)));
  if (on_renewed_ended_) {
    on_renewed_ended_(id);
    return reply(Response{store::Lease{id, model_.leaseTtl(id), time_.now(), model_.clusterId()}});
  }
  time_.after(kExpiryInterval / 5, [this, index, id, reply, life = life_] {
    if (life == life_ && !members_[index].is(Fault::kKilled) && isAvailable()) keepAlive(index, id, reply);
  });
}

void SimulatedEtcd::write(size_t index, const Request& request, const Reply& reply) {
  Answer answer;
  const int64_t before = model_.revision();
  if (const auto* txn = std::get_if<store::TxnRequest>(&request)) {
    if (isReadOnly(*txn)) {
      if (members_[index].is(Fault::kStale)) return reply(toAnswer(model_.readTxn(*txn, members_[index].applied)));
      // It is read where and when the member has applied what the quorum had; by then it may be more.
      return whenApplied(index, [this, txn = *txn, reply] { reply(toAnswer(model_.txn(txn))); });
    }
    answer = toAnswer(model_.txn(*txn));
  } else if (const auto* grant = std::get_if<LeaseGrantRequest>(&request)) {
    const auto id = static_cast<int64_t>(random_.next() >> 1 | 1);
    answer = toAnswer(model_.leaseGrant(id, grant->ttl, time_.now()));
  } else {
    answer = toAnswer(model_.leaseRevoke(std::get<LeaseRevokeRequest>(request).id));
  }
  ++entries_;
  ++traffic_.writes;
  whenApplied(index, [answer = std::move(answer), reply] { reply(answer); });
  commit();
  if (model_.revision() != before) on_change_();
}

void SimulatedEtcd::whenApplied(size_t index, std::function<void()> what) {
  Member& member = members_[index];
  if (member.entries >= entries_ && !member.is(Fault::kFrozen) && !member.is(Fault::kStale)) return what();
  member.waiting.emplace_back(entries_, std::move(what));
}

// --- applying ---

void SimulatedEtcd::commit() {
  for (size_t i = 0; i < members_.size(); ++i) {
    if (service_time_ > Duration(0) && std::exchange(members_[i].will_apply, true)) continue;
    const Duration delay = members_[i].lag + random_.between(Duration(0), kUsualLag);
    if (service_time_ > Duration(0)) {
      time_.after(delay, [this, i] {
        members_[i].will_apply = false;
        advance(i, entries_, model_.revision());
      });
      continue;
    }
    time_.after(delay, [this, i, entries = entries_, revision = model_.revision(), life = life_] {
      if (life == life_) advance(i, entries, revision);
    });
  }
}

void SimulatedEtcd::advance(size_t index, uint64_t entries, int64_t revision) {
  Member& member = members_[index];
  if (!member.votes()) return;  // it catches up later
  member.entries = std::max(member.entries, entries);
  member.applied = std::max(member.applied, revision);
  while (!member.waiting.empty() && member.waiting.front().first <= member.entries) {
    const auto what = std::move(member.waiting.front().second);
    member.waiting.pop_front();
    what();
  }
  for (auto watch = watches_.begin(); watch != watches_.end();) {
    Watch& told = (watch++)->second;  // it may end
    if (told.member == index) tell(told);
  }
}

void SimulatedEtcd::catchUp(size_t index) {
  time_.after(random_.between(Duration(0), 300ms), [this, index, life = life_] {
    if (life == life_) advance(index, entries_, model_.revision());
  });
}

void SimulatedEtcd::tell(Watch& watch) {
  const int64_t applied = members_[watch.member].applied;
  if (watch.deaf || !watch.state.hasNews(applied)) return;
  // Now and then a response comes in fragments so large that the client hands them on one by one.
  const size_t most = random_.chance(20) ? 1 + random_.below(3) : 0;
  auto batches = watch.state.collect(applied, most);
  if (!batches) {
    watch.deaf = true;
    return watch.sink.ended(batches.error());
  }
  for (store::WatchBatch& batch : *batches) {
    traffic_.events += batch.events.size();
    traffic_.bytes += sizeOf(batch);
    watch.sink.batch(std::move(batch));
  }
  if (most > 0 && watch.state.hasNews(applied)) tell(watch);
}

// --- watches ---

uint64_t SimulatedEtcd::openWatch(size_t index, std::vector<store::WatchRange> ranges, WatchSink sink) {
  const uint64_t number = ++watch_numbers_;
  ++traffic_.requests[Traffic::kWatches];
  Member& member = members_[index];
  auto open = [this, index, number, ranges = std::move(ranges), sink = std::move(sink)] {
    Member& opened_at = members_[index];
    const bool leaderless = opened_at.is(Fault::kIsolated) && time_.now() - opened_at.isolated_since > kElection;
    if (leaderless) return sink.ended(noLeader());
    Watch& watch =
        watches_.emplace(number, Watch{index, WatchModel(model_, ranges, opened_at.applied, old_events_), sink})
            .first->second;
    traffic_.bytes += kMessageBytes;
    sink.created(watch.state.createdRevision(), watch.state.clusterId());
    tell(watch);
  };
  if (!listens(index)) {
    sink.ended(broken());
  } else if (member.is(Fault::kPaused)) {
    member.inbox.push_back(std::move(open));
  } else {
    open();
  }
  return number;
}

void SimulatedEtcd::askProgress(uint64_t number) {
  const auto found = watches_.find(number);
  if (found == watches_.end()) return;
  ++traffic_.requests[Traffic::kProgress];
  Member& member = members_[found->second.member];
  const auto answer = [this, number] {
    const auto watch = watches_.find(number);
    if (watch == watches_.end()) return;
    traffic_.bytes += kMessageBytes;
    watch->second.sink.batch(watch->second.state.progress(members_[watch->second.member].applied));
  };
  if (member.is(Fault::kPaused)) {
    member.inbox.push_back(answer);
  } else {
    answer();
  }
}

void SimulatedEtcd::cancelWatch(uint64_t number) { watches_.erase(number); }

void SimulatedEtcd::endWatches(size_t index, const StoreError& error) {
  for (auto watch = watches_.begin(); watch != watches_.end();) {
    if (watch->second.member != index) {
      ++watch;
      continue;
    }
    const WatchSink sink = std::move(watch->second.sink);
    watch = watches_.erase(watch);
    sink.ended(error);
  }
}

void SimulatedEtcd::breakWatches(size_t index, const StoreError& error) { endWatches(index, error); }

void SimulatedEtcd::deafen(size_t index) {
  for (auto& [number, watch] : watches_) watch.deaf = watch.deaf || watch.member == index;
}

bool SimulatedEtcd::hasDeafWatches() const {
  return std::any_of(watches_.begin(), watches_.end(), [](const auto& watch) { return watch.second.deaf; });
}

// --- leases ---

void SimulatedEtcd::lookForExpired() {
  time_.after(kExpiryInterval, [this] {
    const auto first = model_.nextExpiry();
    if (isAvailable() && first && *first <= time_.now()) {
      const int64_t before = model_.revision();
      model_.revokeExpired(time_.now());
      ++entries_;
      commit();
      if (model_.revision() != before) on_change_();
    }
    lookForExpired();
  });
}

// --- faults ---

void SimulatedEtcd::begin(size_t index, Fault fault) {
  Member& member = members_[index];
  const bool led = has_leader_ && leader_ == index;
  member.faults |= 1U << static_cast<unsigned>(fault);
  if (fault == Fault::kIsolated) {
    member.isolated_since = time_.now();
    member.led = led;
    time_.after(random_.between(kElection, 2 * kElection), [this, index, since = time_.now(), life = life_] {
      const Member& alone = members_[index];
      if (life == life_ && alone.is(Fault::kIsolated) && alone.isolated_since == since) endWatches(index, noLeader());
    });
  }
  if (fault == Fault::kKilled) {
    member.waiting.clear();
    member.inbox.clear();
    endWatches(index, broken());
  }
  if (led) changeLeader();
}

void SimulatedEtcd::end(size_t index, Fault fault) {
  Member& member = members_[index];
  member.faults &= ~(1U << static_cast<unsigned>(fault));
  if (fault == Fault::kPaused) {
    for (auto& what : std::exchange(member.inbox, {})) what();
  }
  catchUp(index);
}

void SimulatedEtcd::changeLeader() {
  has_leader_ = false;
  time_.after(random_.between(kElection / 5, kLongestElection), [this, election = ++elections_, life = life_] {
    if (election != elections_ || life != life_) return;
    std::vector<size_t> voters;
    for (size_t i = 0; i < members_.size(); ++i) {
      if (members_[i].votes()) voters.push_back(i);
    }
    if (voters.size() * 2 <= members_.size()) return changeLeader();
    leader_ = random_.oneOf(voters);
    has_leader_ = true;
    model_.changeLeader(time_.now());
    for (auto& what : std::exchange(held_, {})) what();
  });
}

void SimulatedEtcd::revoke(int64_t lease) {
  const int64_t before = model_.revision();
  if (!model_.leaseRevoke(lease)) return;
  ++entries_;
  commit();
  if (model_.revision() != before) on_change_();
}

void SimulatedEtcd::compact(int64_t revision) { (void)model_.compact(revision); }

StoreResult<store::TxnResult> SimulatedEtcd::operate(const store::TxnRequest& request) {
  const int64_t before = model_.revision();
  StoreResult<store::TxnResult> result = model_.txn(request);
  ++entries_;
  commit();
  if (model_.revision() != before) on_change_();
  return result;
}

int64_t SimulatedEtcd::operatorLease(std::chrono::seconds ttl) {
  const auto lease = model_.leaseGrant(static_cast<int64_t>(random_.next() >> 1 | 1), ttl, time_.now());
  return lease ? lease->id : 0;
}

void SimulatedEtcd::stop() {
  up_ = false;
  ++life_;
  held_.clear();
  for (size_t i = 0; i < members_.size(); ++i) {
    members_[i].waiting.clear();
    members_[i].inbox.clear();
    endWatches(i, broken());
  }
}

void SimulatedEtcd::startFrom(const EtcdModel& backup, uint64_t cluster_id) {
  model_ = EtcdModel::restored(backup, cluster_id, time_.now());
  ++entries_;
  for (Member& member : members_) {
    const Duration lag = member.lag;
    member = Member();
    member.lag = lag;
    member.applied = model_.revision();
    member.entries = entries_;
  }
  has_leader_ = true;
  leader_ = random_.below(members_.size());
  up_ = true;
}

}  // namespace idetcd::simulation
