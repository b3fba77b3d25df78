#include "simulation/network.h"

#include <algorithm>

#include <fmt/format.h>

#include "simulation/timeline.h"

namespace idetcd::simulation {
namespace {

using store::StoreError;
using namespace std::chrono_literals;

constexpr Duration kLatest = 20s;  // for a message that is late
// Longer than a call waits, and soon enough to meet what its sender does next.
constexpr Duration kEarliestLostClaim = 5s;
constexpr Duration kLatestLostClaim = 12s;

StoreError refused() { return {ErrorCode::kUnavailable, std::string(Timeline::kUnconnected), false}; }
StoreError broken() { return {ErrorCode::kUnavailable, "the connection broke"}; }

bool isClaim(const Request& request) {
  const auto* txn = std::get_if<store::TxnRequest>(&request);
  return txn != nullptr && std::any_of(txn->success.begin(), txn->success.end(),
                                       [](const store::Op& op) { return std::holds_alternative<store::DeleteOp>(op); });
}

bool readsManyKeys(const Request& request) {
  const auto* read = std::get_if<RangeRequest>(&request);
  return read != nullptr && !read->range.end.empty();
}

// --- for the timeline ---

std::string describe(const store::Op& op) {
  if (const auto* put = std::get_if<store::PutOp>(&op))
    return fmt::format("put {}{}", put->key, put->lease == 0 ? "" : fmt::format(" under {:x}", put->lease));
  if (const auto* removal = std::get_if<store::DeleteOp>(&op)) return "delete " + removal->range.begin;
  return "read " + std::get<store::RangeOp>(op).range.begin;
}

std::string describe(const Request& request) {
  if (const auto* read = std::get_if<RangeRequest>(&request)) return "read " + read->range.begin;
  if (std::holds_alternative<LeaseGrantRequest>(request)) return "grant a lease";
  if (const auto* renewal = std::get_if<LeaseKeepAliveRequest>(&request)) return fmt::format("renew {:x}", renewal->id);
  if (const auto* query = std::get_if<LeaseTimeToLiveRequest>(&request)) return fmt::format("time of {:x}", query->id);
  if (const auto* revoked = std::get_if<LeaseRevokeRequest>(&request)) return fmt::format("revoke {:x}", revoked->id);
  const auto& txn = std::get<store::TxnRequest>(request);
  std::string text = "txn";
  for (const store::Compare& compare : txn.compares) {
    text += fmt::format(" if {} is {}", compare.key, compare.differs ? "not " : "");
    text += compare.target == store::Compare::Target::kValue ? compare.value : std::to_string(compare.number);
  }
  for (const store::Op& op : txn.success) text += ", " + describe(op);
  return text;
}

std::string describe(const Answer& answer) {
  if (!answer) return answer.error().message;
  if (const auto* range = std::get_if<store::RangeResult>(&*answer))
    return fmt::format("{} keys at revision {}", range->kvs.size(), range->revision);
  if (const auto* txn = std::get_if<store::TxnResult>(&*answer))
    return fmt::format("{} at revision {}", txn->succeeded ? "done" : "not done", txn->revision);
  if (const auto* lease = std::get_if<store::Lease>(&*answer)) return fmt::format("lease {:x}", lease->id);
  return "done";
}

std::string describe(const store::WatchBatch& batch) {
  std::string text = batch.events.empty() ? "progress" : "events";
  for (const store::WatchEvent& event : batch.events) {
    const bool put = event.type == store::WatchEvent::Type::kPut;
    text += fmt::format(" {} {} at {};", put ? "put" : "delete", event.kv.key, event.kv.mod_revision);
  }
  return text + fmt::format(" revision {}", batch.revision);
}

}  // namespace

// A UUID is looked for as a whole: that is quicker than to look for its field, whose quotation mark is everywhere.
void ValueFilter::apply(store::KeyValue* kv) const {
  constexpr std::string_view kId = R"("id":")";
  if (uuid.empty() || kv->key.starts_with('/') || kv->value.empty()) return;
  if (kv->value.find(uuid) != std::string::npos) return;
  const size_t id = keeps_ids ? kv->value.find(kId) : std::string::npos;
  const bool keeps_id = id != std::string::npos;
  kv->value = keeps_id ? fmt::format("{{{}}}", kv->value.substr(id, kId.size() + uuid.size() + 1)) : "{}";
}

void ValueFilter::apply(store::RangeResult* range) const {
  for (store::KeyValue& kv : range->kvs) apply(&kv);
}

void ValueFilter::apply(store::WatchBatch* batch) const {
  for (store::WatchEvent& event : batch->events) apply(&event.kv);
}

// What is read alone has no more than was asked for, unless IDs are kept: askForLess().
void ValueFilter::apply(Answer* answer) const {
  if (uuid.empty() || !*answer) return;
  if (auto* range = std::get_if<store::RangeResult>(&**answer)) return keeps_ids ? apply(range) : void();
  auto* txn = std::get_if<store::TxnResult>(&**answer);
  if (txn == nullptr) return;
  for (store::OpResult& result : txn->results) {
    if (auto* range = std::get_if<store::RangeResult>(&result)) apply(range);
  }
}

ProcessNetwork::ProcessNetwork(VirtualTime& time, Random& random, SimulatedEtcd& etcd, std::vector<Link>& links)
    : time_(time), random_(random), etcd_(etcd), links_(links) {}

ProcessNetwork::~ProcessNetwork() { close(); }

void ProcessNetwork::close() {
  *alive_ = false;
  for (const auto& [stream, watch] : watches_) etcd_.cancelWatch(watch.number);
  watches_.clear();
}

bool ProcessNetwork::note(uint64_t number, size_t kind) {
  if (twin_ != nullptr) twin_->expected_.push_back({number, kind});
  if (!on_difference_) return false;
  if (expected_.empty() || !(expected_.front() == Twin{number, kind})) {
    on_difference_();
  } else {
    expected_.pop_front();
  }
  return true;
}

Duration ProcessNetwork::delayOver(Link& link) {
  if (random_.chance(link.late)) return random_.between(link.most_delay, kLatest);
  return random_.between(link.least_delay, link.most_delay);
}

// `what` happens at the other end, unless the path is cut when it gets there and nothing holds it back.
void ProcessNetwork::pass(Path& path, Duration delay, std::function<void()> what) {
  time_.after(delay, [&path, what = std::move(what), held = random_.chance(500)] {
    if (!path.cut) return what();
    if (held) path.held.push_back(what);
  });
}

// Ten thousand nodes read ten thousand names: a value that is not copied need not be looked at either.
void ProcessNetwork::askForLess(Request* request) const {
  auto* read = std::get_if<RangeRequest>(request);
  if (read == nullptr || filter_.uuid.empty() || filter_.keeps_ids) return;
  read->wants_value = [leases = leases_](const store::KeyValue& kv) {
    return leases->contains(kv.lease) || kv.key.starts_with('/') || kv.value.empty();
  };
}

void ProcessNetwork::send(uint64_t call, size_t member, Request request) {
  if (note(call, request.index()) || !*alive_) return;
  if (trace_) trace_(fmt::format("#{} to member {}: {}", call, member, describe(request)));
  on_send_(request);
  askForLess(&request);
  Link& link = links_[member];
  const bool claim = isClaim(request);
  const bool revocation = std::holds_alternative<LeaseRevokeRequest>(request);
  const bool lost = random_.chance(link.lost) || (revocation && random_.chance(link.claims_lost));
  if (lost && random_.chance(500)) return;  // it times out
  const bool late = claim && random_.chance(link.claims_lost);
  const bool answer_lost = claim && random_.chance(link.claims_lost);
  Duration delay = late ? random_.between(kEarliestLostClaim, kLatestLostClaim) : delayOver(link);
  if (readsManyKeys(request)) delay += random_.between(Duration(0), link.most_page_delay);
  pass(link.to_member, delay,
       [this, alive = alive_, etcd = &etcd_, call, member, lost, answer_lost, request = std::move(request)] {
         if (!*alive) {  // what was sent is dealt with, whatever has become of the sender
           if (!lost && etcd->listens(member)) etcd->handle(member, request, [](const Answer&) {});
           return;
         }
         if (!etcd->listens(member)) return reply(call, member, tl::unexpected(refused()));
         if (lost) return reply(call, member, tl::unexpected(broken()));
         etcd->handle(member, request, [this, alive, call, member, answer_lost](Answer answer) {
           if (*alive) reply(call, member, std::move(answer), answer_lost);
         });
       });
}

void ProcessNetwork::reply(uint64_t call, size_t member, Answer answer, bool lost) {
  Link& link = links_[member];
  if (random_.chance(link.lost) || lost) {
    if (random_.chance(500)) return;
    answer = tl::unexpected(broken());
  }
  filter_.apply(&answer);
  const auto* const lease = answer ? std::get_if<store::Lease>(&*answer) : nullptr;
  if (lease != nullptr) leases_->insert(lease->id);
  // Shared: what delivers it is copied on the way.
  const auto shared = std::make_shared<Answer>(std::move(answer));
  pass(link.from_member, delayOver(link), [this, alive = alive_, call, shared] {
    if (!*alive) return;
    if (trace_) trace_(fmt::format("#{} answered: {}", call, describe(*shared)));
    deliver_([call, shared, twin = twin_ != nullptr](SimulatedStore& store) {
      store.answer(call, twin ? *shared : std::move(*shared));
    });
  });
}

// --- watches ---

void ProcessNetwork::openWatch(uint64_t stream, size_t member, std::vector<store::WatchRange> ranges) {
  constexpr size_t kKind = 100;
  if (note(stream, kKind) || !*alive_) return;
  if (trace_) {
    trace_(fmt::format("#{} to member {}: watch {} from {}", stream, member, ranges.front().range.begin,
                       ranges.front().start_revision));
  }
  Link& link = links_[member];
  watches_[stream] = {.member = member, .number = 0, .next_delivery = time_.now()};
  const auto open = [this, alive = alive_, stream, member, ranges = std::move(ranges)] {
    if (!*alive || !watches_.contains(stream)) return;
    if (!etcd_.listens(member)) {
      return tell(
          stream, member, [stream](SimulatedStore& store) { store.watchEnded(stream, refused()); }, "refused");
    }
    SimulatedEtcd::WatchSink sink;
    sink.created = [this, alive, stream, member](int64_t revision, uint64_t cluster_id) {
      if (*alive)
        tell(
            stream, member, [=](SimulatedStore& store) { store.watchCreated(stream, revision, cluster_id); },
            trace_ ? fmt::format("created at {}", revision) : std::string());
    };
    sink.batch = [this, alive, stream, member](store::WatchBatch batch) {
      if (!*alive) return;
      filter_.apply(&batch);
      const std::string text = trace_ ? describe(batch) : std::string();
      const auto shared = std::make_shared<const store::WatchBatch>(std::move(batch));
      tell(
          stream, member, [stream, shared](SimulatedStore& store) { store.watchBatch(stream, *shared); }, text);
    };
    sink.ended = [this, alive, stream, member](const StoreError& error) {
      if (!*alive) return;
      tell(
          stream, member, [stream, error](SimulatedStore& store) { store.watchEnded(stream, error); }, error.message);
    };
    watches_[stream].number = etcd_.openWatch(member, ranges, std::move(sink));
  };
  pass(link.to_member, delayOver(link), open);
}

// In order. A path that is cut holds back all that follows, until it is mended.
void ProcessNetwork::tell(uint64_t stream, size_t member, std::function<void(SimulatedStore&)> what, std::string text) {
  const auto watch = watches_.find(stream);
  if (watch == watches_.end()) return;
  Link& link = links_[member];
  const Time time =
      std::max(watch->second.next_delivery, time_.now() + random_.between(link.least_delay, link.most_delay));
  watch->second.next_delivery = time;
  auto arrive = [this, alive = alive_, stream, what = std::move(what), text = std::move(text)] {
    if (!*alive || !watches_.contains(stream)) return;
    if (trace_) trace_(fmt::format("#{} watch: {}", stream, text));
    deliver_(what);
  };
  time_.at(time, [&path = link.from_member, arrive = std::move(arrive)] {
    if (path.cut || !path.held.empty()) {
      path.held.push_back(arrive);
    } else {
      arrive();
    }
  });
}

void ProcessNetwork::askProgress(uint64_t stream) {
  constexpr size_t kKind = 101;
  if (note(stream, kKind) || !*alive_) return;
  const auto watch = watches_.find(stream);
  if (watch == watches_.end()) return;
  Link& link = links_[watch->second.member];
  pass(link.to_member, delayOver(link), [this, alive = alive_, stream] {
    if (!*alive) return;
    const auto asked = watches_.find(stream);
    if (asked != watches_.end()) etcd_.askProgress(asked->second.number);
  });
}

void ProcessNetwork::cancelWatch(uint64_t stream) {
  constexpr size_t kKind = 102;
  if (note(stream, kKind) || !*alive_) return;
  const auto watch = watches_.find(stream);
  if (watch == watches_.end()) return;
  etcd_.cancelWatch(watch->second.number);
  watches_.erase(watch);
}

}  // namespace idetcd::simulation
