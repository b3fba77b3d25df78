#include "simulation/etcd_model.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace idetcd::simulation {
namespace {

constexpr size_t kMaxTxnOperations = 128;
constexpr std::chrono::seconds kMaxTtl{9'000'000'000};

tl::unexpected<StoreError> fail(ErrorCode code, std::string text) {
  return tl::unexpected(StoreError{code, std::move(text)});
}

tl::unexpected<StoreError> leaseNotFound() {
  return fail(ErrorCode::kLeaseNotFound, "etcdserver: requested lease not found");
}

StoreError noSpace() { return {ErrorCode::kNoSpace, "etcdserver: mvcc: database space exceeded"}; }
StoreError emptyKey() { return {ErrorCode::kOther, "etcdserver: key is not provided"}; }
StoreError duplicateKey() { return {ErrorCode::kOther, "etcdserver: duplicate key given in txn request"}; }

bool isEndless(const KeyRange& range) { return range.end == std::string_view("\0", 1); }

bool isPut(const WatchEvent& event) { return event.type == WatchEvent::Type::kPut; }

const std::string& keyOf(const Op& op) {
  if (const auto* put = std::get_if<PutOp>(&op)) return put->key;
  if (const auto* removal = std::get_if<DeleteOp>(&op)) return removal->range.begin;
  return std::get<RangeOp>(op).range.begin;
}

bool hasPut(const std::vector<Op>& branch) {
  return std::any_of(branch.begin(), branch.end(), [](const Op& op) { return std::holds_alternative<PutOp>(op); });
}

// No key is put twice, and none put and deleted. (Where a range without an end is deleted, etcd 3.4 finds some of these
// and misses others; nobody asks for that.)
bool hasDuplicates(const std::vector<Op>& branch) {
  std::set<std::string_view> put;
  for (const Op& op : branch) {
    const auto* found = std::get_if<PutOp>(&op);
    if (found != nullptr && !put.insert(found->key).second) return true;
  }
  return std::any_of(branch.begin(), branch.end(), [&](const Op& op) {
    const auto* removal = std::get_if<DeleteOp>(&op);
    return removal != nullptr &&
           std::any_of(put.begin(), put.end(), [&](std::string_view key) { return contains(removal->range, key); });
  });
}

// What etcd refuses before it looks at any key.
std::optional<StoreError> malformed(const TxnRequest& request) {
  if (std::max({request.compares.size(), request.success.size(), request.failure.size()}) > kMaxTxnOperations)
    return StoreError{ErrorCode::kOther, "etcdserver: too many operations in txn request"};
  for (const Compare& compare : request.compares) {
    if (compare.key.empty()) return emptyKey();
  }
  for (const auto* branch : {&request.success, &request.failure}) {
    for (const Op& op : *branch) {
      if (keyOf(op).empty()) return emptyKey();
    }
  }
  if (hasDuplicates(request.success) || hasDuplicates(request.failure)) return duplicateKey();
  return std::nullopt;
}

}  // namespace

bool contains(const KeyRange& range, std::string_view key) {
  if (range.end.empty()) return key == range.begin;
  return key >= range.begin && (isEndless(range) || key < range.end);
}

// --- keys ---

const KeyValue* EtcdModel::findAt(const Changes& changes, int64_t revision) const {
  for (auto change = changes.rbegin(); change != changes.rend(); ++change) {
    const WatchEvent& event = history_[*change];
    if (event.kv.mod_revision <= revision) return isPut(event) ? &event.kv : nullptr;
  }
  return nullptr;
}

const KeyValue* EtcdModel::find(std::string_view key, int64_t revision) const {
  const auto found = keys_.find(key);
  return found == keys_.end() ? nullptr : findAt(found->second, revision);
}

std::optional<StoreError> EtcdModel::unreadable(int64_t wanted, int64_t applied) const {
  if (wanted > applied)
    return StoreError{ErrorCode::kOther, "etcdserver: mvcc: required revision is a future revision"};
  if (wanted > 0 && wanted < compacted_)
    return StoreError{ErrorCode::kCompacted, "etcdserver: mvcc: required revision has been compacted"};
  return std::nullopt;
}

bool EtcdModel::hasChangedSince(const KeyRange& range, int64_t revision) const {
  for (auto change = history_.rbegin(); change != history_.rend() && change->kv.mod_revision > revision; ++change) {
    if (contains(range, change->kv.key)) return true;
  }
  return false;
}

// How many keys that are there now come before this one.
size_t EtcdModel::presentBefore(std::string_view key) const {
  const auto before = [this](size_t change, std::string_view wanted) { return history_[change].kv.key < wanted; };
  return static_cast<size_t>(std::lower_bound(present_.begin(), present_.end(), key, before) - present_.begin());
}

std::span<const size_t> EtcdModel::presentIn(const KeyRange& range) const {
  const size_t begin = presentBefore(range.begin);
  const auto from = std::span(present_).subspan(begin);
  if (isEndless(range)) return from;
  if (!range.end.empty()) return from.first(std::max(begin, presentBefore(range.end)) - begin);
  return from.first(!from.empty() && history_[from.front()].kv.key == range.begin ? 1 : 0);
}

std::vector<const KeyValue*> EtcdModel::presentAt(const KeyRange& range, int64_t revision) const {
  std::vector<const KeyValue*> found;
  for (auto key = keys_.lower_bound(range.begin); key != keys_.end() && contains(range, key->first); ++key) {
    if (const KeyValue* kv = findAt(key->second, revision)) found.push_back(kv);
  }
  return found;
}

RangeResult EtcdModel::read(const KeyRange& range, const RangeOptions& options, int64_t at,
                            const WantsValue& wants_value) const {
  RangeResult result;
  result.cluster_id = options_.cluster_id;
  std::vector<const KeyValue*> found;
  if (!hasChangedSince(range, at)) {
    const std::span<const size_t> present = presentIn(range);
    result.count = std::ssize(present);
    const bool looks_at_all = options.sort_by_create_revision || options.min_mod_revision > 0 || options.limit == 0;
    const size_t most = options.count_only ? 0 : looks_at_all ? present.size() : static_cast<size_t>(options.limit) + 1;
    for (const size_t change : present.first(std::min(most, present.size()))) found.push_back(&history_[change].kv);
  } else {
    found = presentAt(range, at);
    result.count = std::ssize(found);
    if (options.count_only) found.clear();
  }
  std::erase_if(found, [&](const KeyValue* kv) { return kv->mod_revision < options.min_mod_revision; });
  if (options.sort_by_create_revision) {
    std::stable_sort(found.begin(), found.end(),
                     [](const KeyValue* a, const KeyValue* b) { return a->create_revision < b->create_revision; });
  }
  const auto limit = static_cast<size_t>(options.limit);
  result.more = limit > 0 && found.size() > limit;
  if (result.more) found.resize(limit);
  result.kvs.reserve(found.size());
  for (const KeyValue* kv : found) {
    if (!options.keys_only && (!wants_value || wants_value(*kv))) {
      result.kvs.push_back(*kv);
    } else {
      const std::string_view value = options.keys_only ? "" : kNoValue;
      result.kvs.push_back(
          {kv->key, std::string(value), kv->create_revision, kv->mod_revision, kv->version, kv->lease});
    }
  }
  return result;
}

StoreResult<RangeResult> EtcdModel::range(const KeyRange& range, const RangeOptions& options, int64_t applied,
                                          const WantsValue& wants_value) const {
  if (range.begin.empty()) return tl::unexpected(emptyKey());
  applied = std::min(applied, revision_);
  if (auto error = unreadable(options.revision, applied)) return tl::unexpected(*std::move(error));
  if (options.cluster_id != 0 && options.cluster_id != options_.cluster_id)
    return fail(ErrorCode::kOtherCluster, "the cluster is another one");
  RangeResult result = read(range, options, options.revision > 0 ? options.revision : applied, wants_value);
  result.revision = applied;
  return result;
}

bool EtcdModel::holds(const Compare& compare, int64_t revision) const {
  const KeyValue* kv = find(compare.key, revision);
  if (kv == nullptr) return compare.target != Compare::Target::kValue && (compare.number == 0) != compare.differs;
  bool equal = false;
  switch (compare.target) {
    case Compare::Target::kCreateRevision:
      equal = kv->create_revision == compare.number;
      break;
    case Compare::Target::kModRevision:
      equal = kv->mod_revision == compare.number;
      break;
    case Compare::Target::kLease:
      equal = kv->lease == compare.number;
      break;
    case Compare::Target::kValue:
      equal = kv->value == compare.value;
      break;
  }
  return equal != compare.differs;
}

// Why none of the branch may be done. etcd looks at all puts first.
std::optional<StoreError> EtcdModel::refusal(const std::vector<Op>& branch) const {
  for (const Op& op : branch) {
    if (const auto* put = std::get_if<PutOp>(&op); put != nullptr && put->lease != 0 && !leases_.contains(put->lease))
      return leaseNotFound().value();
  }
  for (const Op& op : branch) {
    if (const auto* range = std::get_if<RangeOp>(&op)) {
      if (auto error = unreadable(range->options.revision, revision_)) return error;
    }
  }
  return std::nullopt;
}

EtcdModel::Space EtcdModel::takeSpace() {
  if (!no_space_) return Space::kEnough;
  if (last_ones_ == 0) return Space::kNone;
  --last_ones_;
  return Space::kLast;
}

StoreResult<TxnResult> EtcdModel::txn(const TxnRequest& request) {
  if (auto error = malformed(request)) return tl::unexpected(*std::move(error));
  const bool stores = hasPut(request.success) || hasPut(request.failure);
  const Space space = stores ? takeSpace() : Space::kEnough;
  if (space == Space::kNone) return tl::unexpected(noSpace());
  TxnResult result;
  result.succeeded = std::all_of(request.compares.begin(), request.compares.end(),
                                 [this](const Compare& compare) { return holds(compare); });
  const std::vector<Op>& branch = result.succeeded ? request.success : request.failure;
  if (auto error = refusal(branch)) return tl::unexpected(*std::move(error));

  const int64_t next = revision_ + 1;
  const size_t changes_before = history_.size();
  for (const Op& op : branch) {
    if (const auto* write = std::get_if<PutOp>(&op)) {
      put(*write, next);
      result.results.emplace_back(store::PutResult{});
    } else if (const auto* removal = std::get_if<DeleteOp>(&op)) {
      result.results.emplace_back(store::DeleteResult{remove(removal->range, next)});
    } else {
      const auto& [range, options] = std::get<RangeOp>(op);
      result.results.emplace_back(read(range, options, options.revision > 0 ? options.revision : next));
    }
  }
  if (history_.size() > changes_before) revision_ = next;
  if (space == Space::kLast) return tl::unexpected(noSpace());
  result.revision = revision_;
  result.cluster_id = options_.cluster_id;
  for (store::OpResult& op : result.results) {
    if (auto* found = std::get_if<RangeResult>(&op)) found->revision = revision_;
  }
  return result;
}

StoreResult<TxnResult> EtcdModel::readTxn(const TxnRequest& request, int64_t applied) const {
  if (auto error = malformed(request)) return tl::unexpected(*std::move(error));
  applied = std::min(applied, revision_);
  TxnResult result;
  result.succeeded = std::all_of(request.compares.begin(), request.compares.end(),
                                 [&](const Compare& compare) { return holds(compare, applied); });
  for (const Op& op : result.succeeded ? request.success : request.failure) {
    const auto& [range, options] = std::get<RangeOp>(op);
    if (auto error = unreadable(options.revision, applied)) return tl::unexpected(*std::move(error));
    RangeResult found = read(range, options, options.revision > 0 ? options.revision : applied);
    found.revision = applied;
    result.results.emplace_back(std::move(found));
  }
  result.revision = applied;
  result.cluster_id = options_.cluster_id;
  return result;
}

void EtcdModel::put(const PutOp& op, int64_t revision) {
  KeyValue kv{op.key, op.value, revision, revision, 1, op.lease};
  if (const KeyValue* old = find(op.key)) {
    kv.create_revision = old->create_revision;
    kv.version = old->version + 1;
    detach(*old);
  }
  if (op.lease != 0) leases_.at(op.lease).keys.insert(op.key);
  append({WatchEvent::Type::kPut, std::move(kv)});
}

int64_t EtcdModel::remove(const KeyRange& range, int64_t revision) {
  std::vector<KeyValue> found = read(range, {.keys_only = true}, revision).kvs;
  for (KeyValue& kv : found) {
    detach(kv);
    append({WatchEvent::Type::kDelete, {std::move(kv.key), {}, 0, revision, 0, 0}});
  }
  return static_cast<int64_t>(found.size());
}

void EtcdModel::detach(const KeyValue& kv) {
  if (const auto lease = leases_.find(kv.lease); lease != leases_.end()) lease->second.keys.erase(kv.key);
}

void EtcdModel::append(WatchEvent event) {
  keys_[event.kv.key].push_back(history_.size());
  notePresence(event);
  history_.push_back(std::move(event));
}

// Of a change that is going to be the last one in the history.
void EtcdModel::notePresence(const WatchEvent& event) {
  const auto at = present_.begin() + static_cast<std::ptrdiff_t>(presentBefore(event.kv.key));
  const bool was_present = at != present_.end() && history_[*at].kv.key == event.kv.key;
  if (was_present && isPut(event)) *at = history_.size();
  if (was_present && !isPut(event)) present_.erase(at);
  if (!was_present && isPut(event)) present_.insert(at, history_.size());
}

StoreResult<void> EtcdModel::compact(int64_t revision) {
  if (revision <= compacted_)
    return fail(ErrorCode::kCompacted, "etcdserver: mvcc: required revision has been compacted");
  if (revision > revision_) return fail(ErrorCode::kOther, "etcdserver: mvcc: required revision is a future revision");
  compacted_ = revision;
  return {};
}

size_t EtcdModel::historyFrom(int64_t revision) const {
  const auto before = [](const WatchEvent& event, int64_t wanted) { return event.kv.mod_revision < wanted; };
  return static_cast<size_t>(std::lower_bound(history_.begin(), history_.end(), revision, before) - history_.begin());
}

// --- leases ---

StoreResult<store::Lease> EtcdModel::leaseGrant(int64_t id, std::chrono::seconds ttl, Time now) {
  if (ttl > kMaxTtl) return fail(ErrorCode::kOther, "etcdserver: too large lease TTL");
  const Space space = takeSpace();
  if (space == Space::kNone) return tl::unexpected(noSpace());
  if (leases_.contains(id)) return fail(ErrorCode::kOther, "etcdserver: lease already exists");
  ttl = std::max(ttl, options_.min_ttl);
  leases_[id] = {ttl, now + ttl, {}};
  if (space == Space::kLast) return tl::unexpected(noSpace());
  return store::Lease{id, ttl, now, options_.cluster_id};
}

std::optional<StoreResult<store::Lease>> EtcdModel::leaseKeepAlive(int64_t id, Time now) {
  const auto found = leases_.find(id);
  // etcd answers with a TTL of 0, of which etcd::Client makes this.
  if (found == leases_.end()) return fail(ErrorCode::kLeaseNotFound, "the lease has expired or was revoked");
  if (found->second.end <= now) return std::nullopt;
  found->second.end = now + found->second.ttl;
  return store::Lease{id, found->second.ttl, now, options_.cluster_id};
}

StoreResult<std::chrono::seconds> EtcdModel::leaseTimeToLive(int64_t id, Time now) const {
  const auto found = leases_.find(id);
  if (found == leases_.end()) return fail(ErrorCode::kLeaseNotFound, "the lease has expired or was revoked");
  return std::chrono::duration_cast<std::chrono::seconds>(found->second.end - now);
}

StoreResult<void> EtcdModel::leaseRevoke(int64_t id) {
  const auto found = leases_.find(id);
  if (found == leases_.end()) return leaseNotFound();
  end(found);
  return {};
}

void EtcdModel::end(std::map<int64_t, LeaseState>::iterator lease) {
  const std::set<std::string> keys = std::move(lease->second.keys);
  leases_.erase(lease);
  if (keys.empty()) return;
  ++revision_;
  for (const std::string& key : keys) append({WatchEvent::Type::kDelete, {key, {}, 0, revision_, 0, 0}});
}

size_t EtcdModel::revokeExpired(Time now) {
  size_t count = 0;
  for (auto lease = leases_.begin(); lease != leases_.end();) {
    const auto next = std::next(lease);
    if (lease->second.end <= now) {
      end(lease);
      ++count;
    }
    lease = next;
  }
  return count;
}

std::optional<EtcdModel::Time> EtcdModel::nextExpiry() const {
  std::optional<Time> first;
  for (const auto& [id, lease] : leases_) {
    if (!first || lease.end < *first) first = lease.end;
  }
  return first;
}

std::map<int64_t, EtcdModel::Time> EtcdModel::leaseEnds() const {
  std::map<int64_t, Time> ends;
  for (const auto& [id, lease] : leases_) ends[id] = lease.end;
  return ends;
}

void EtcdModel::changeLeader(Time now) {
  for (auto& [id, lease] : leases_) lease.end = now + lease.ttl + options_.election_timeout;
}

EtcdModel EtcdModel::restored(const EtcdModel& backup, uint64_t cluster_id, Time now) {
  EtcdModel made = backup;
  made.options_.cluster_id = cluster_id;
  made.setNoSpace(false);
  made.changeLeader(now);
  return made;
}

// --- WatchModel ---

WatchModel::WatchModel(const EtcdModel& model, std::vector<store::WatchRange> ranges, int64_t applied,
                       bool from_applied)
    : model_(model), created_revision_(std::min(applied, model.revision())), cluster_id_(model.clusterId()) {
  for (store::WatchRange& wanted : ranges) {
    int64_t start = wanted.start_revision == 0 ? created_revision_ + 1 : wanted.start_revision;
    if (from_applied) start = std::min(start, created_revision_ + 1);
    parts_.push_back({std::move(wanted.range), start, start, model.historyFrom(start)});
    // What is up to date when it begins is not looked for in the store.
    compacted_ = compacted_ || (start <= created_revision_ && start < model.compactedRevision());
  }
}

bool WatchModel::hasNews(int64_t applied) const {
  const std::vector<WatchEvent>& history = model_.history();
  return compacted_ || std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) {
           return part.next < history.size() && history[part.next].kv.mod_revision <= applied;
         });
}

StoreResult<std::vector<WatchBatch>> WatchModel::collect(int64_t applied, size_t max_events) {
  if (compacted_) {
    return fail(ErrorCode::kCompacted,
                "the store is compacted up to revision " + std::to_string(model_.compactedRevision()));
  }
  applied = std::min(applied, model_.revision());
  const std::vector<WatchEvent>& history = model_.history();
  std::vector<WatchBatch> batches;
  for (size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    WatchBatch batch{.revision = applied, .cluster_id = cluster_id_, .range = i, .events = {}, .resume_revision = 0};
    bool cut = false;
    for (; part.next < history.size() && history[part.next].kv.mod_revision <= applied; ++part.next) {
      const WatchEvent& event = history[part.next];
      if (event.kv.mod_revision < part.start_revision || !contains(part.range, event.kv.key)) continue;
      cut = max_events > 0 && batch.events.size() == max_events;
      if (cut) break;
      batch.events.push_back(event);
    }
    if (batch.events.empty()) continue;
    const int64_t newest = batch.events.back().kv.mod_revision;
    part.resume_revision = cut && history[part.next].kv.mod_revision == newest ? newest : newest + 1;
    batch.resume_revision = part.resume_revision;
    batches.push_back(std::move(batch));
  }
  return batches;
}

WatchBatch WatchModel::progress(int64_t applied) const {
  return {.revision = std::min(applied, model_.revision()),
          .cluster_id = cluster_id_,
          .range = 0,
          .events = {},
          .resume_revision = parts_.front().resume_revision};
}

}  // namespace idetcd::simulation
