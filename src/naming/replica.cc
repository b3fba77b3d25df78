#include "naming/replica.h"

#include <fmt/ranges.h>

#include "base/text.h"
#include "naming/keyspace.h"
#include "naming/name_pages.h"
#include "naming/record_codec.h"

namespace idetcd::naming {

namespace {

// REQUIRES: the key is no name.
Rejection rejectionOfKey(const store::KeyValue& kv) {
  return kv.key.size() > kMaxKeyBytes ? Rejection::kKeyTooLong : Rejection::kKey;
}

using Change = records::RecordStore::Change;

Change putInto(records::RecordStore& store, const dns::Name& name, const NodeRecord& record,
               const store::KeyValue& kv) {
  const int64_t token = std::max(kv.create_revision, record.token);
  return store.put(name, {record.ipv4, record.ipv6}, kv.mod_revision,
                   records::memberData(record.id, token, record.services, record.networks));
}

}  // namespace

void Replica::apply(const std::vector<store::WatchEvent>& events) {
  const size_t before = store_.size();
  size_t removed = 0;
  for (const store::WatchEvent& event : events) {
    counters_.events.add();
    if (event.kv.mod_revision <= complete_to_) continue;
    unread_.erase(event.kv.key);
    if (event.type == store::WatchEvent::Type::kPut) {
      if (in_snapshot_ && !isPath(event.kv.key)) put_meanwhile_.insert_or_assign(event.kv.key, event.kv.mod_revision);
      put(event.kv);
    } else {
      own_key_.remove(event.kv.key, event.kv.mod_revision);
      put_meanwhile_.erase(event.kv.key);
      rejected_.erase(event.kv.key);
      if (remove(event.kv.key, event.kv.mod_revision)) ++removed;
    }
  }
  if (options_.generation != nullptr) options_.generation->endBatch();
  noteMassDeletion(removed, before);
}

void Replica::beginSnapshot(History history) {
  in_snapshot_ = true;
  newest_in_snapshot_ = {};
  difference_ = {};
  oldest_newer_ = std::numeric_limits<int64_t>::max();
  withdrawn_.clear();
  put_meanwhile_.clear();
  if (history == History::kOther) rejected_.clear();
  if (history != History::kSame) complete_to_ = 0;
  own_key_.beginSnapshot(history == History::kOther);  // it has learned nothing from a file
  if (options_.generation != nullptr) options_.generation->beginSnapshot(history == History::kOther);
  using Revisions = records::SourceHistory::Revisions;
  store_.beginSnapshot(history == History::kSame ? Revisions::kGoOn : Revisions::kRestarted);
}

void Replica::addToSnapshot(const std::vector<store::KeyValue>& page) {
  adding_to_snapshot_ = true;
  for (const store::KeyValue& kv : page) {
    if (const auto newer = withdrawn_.find(kv.key); newer != withdrawn_.end() && newer->second > kv.mod_revision)
      continue;
    put_meanwhile_.erase(kv.key);
    unread_.erase(kv.key);
    const EventEffect outcome = put(kv);
    if (outcome != EventEffect::kForeign) compare(kv, outcome);
  }
  adding_to_snapshot_ = false;
}

std::vector<store::KeyValue> Replica::addKeysToSnapshot(std::vector<store::KeyValue>&& page) {
  std::vector<store::KeyValue> wanted;
  adding_to_snapshot_ = true;
  for (store::KeyValue& kv : page) {
    if (isPath(kv.key)) continue;
    put_meanwhile_.erase(kv.key);
    const Result<dns::Name> name = decodeKey(kv.key);
    if (!name) {
      reject(kv, rejectionOfKey(kv), name.error().message);
      continue;
    }
    if (newest_in_snapshot_.first < kv.mod_revision) newest_in_snapshot_ = {kv.mod_revision, kv.key};
    const int64_t stored = store_.see(*name);
    if (stored > kv.mod_revision) oldest_newer_ = std::min(oldest_newer_, stored);
    const bool own_is_known = own_key_.confirm(kv.key, kv.mod_revision);
    if (own_is_known && !lacks(kv)) continue;
    unread_.insert_or_assign(kv.key, kv.mod_revision);
    wanted.push_back(std::move(kv));
  }
  adding_to_snapshot_ = false;
  return wanted;
}

bool Replica::needs(const store::KeyValue& kv) {
  const bool needed = lacks(kv);
  if (!needed) unread_.erase(kv.key);
  return needed;
}

bool Replica::lacks(const store::KeyValue& kv) {
  if (!own_key_.confirm(kv.key, kv.mod_revision)) return true;
  if (const auto newer = withdrawn_.find(kv.key); newer != withdrawn_.end() && newer->second >= kv.mod_revision)
    return false;
  if (const auto bad = rejected_.find(kv.key); bad != rejected_.end() && bad->second >= kv.mod_revision) return false;
  const Result<dns::Name> name = decodeKey(kv.key);
  return name && store_.revisionOf(*name) < kv.mod_revision;
}

bool Replica::agrees(const store::KeyValue& kv) {
  const Result<dns::Name> name = decodeKey(kv.key);
  if (!name || (rejected_.contains(kv.key) && rejected_[kv.key] == kv.mod_revision)) return true;
  if (store_.revisionOf(*name) != kv.mod_revision) return false;
  if (kv.value.empty() || in_snapshot_) return true;  // to compare the value counts as having seen the name
  const Result<NodeRecord> record = decodeRecord(kv.value);
  return record && putInto(store_, *name, *record, kv) == Change::kUnchanged;
}

void Replica::compare(const store::KeyValue& kv, EventEffect outcome) {
  if (outcome == EventEffect::kContradiction) difference_.other_history = true;
  if (outcome == EventEffect::kOlder) oldest_newer_ = std::min(oldest_newer_, store_.revisionOf(*decodeKey(kv.key)));
  if (outcome != EventEffect::kChanged) return;
  ++difference_.added_or_changed;
  if (difference_.names.size() < kMaxNamesInLog) difference_.names.push_back(kv.key);
}

Replica::Difference Replica::endSnapshot(int64_t revision) {
  const size_t before = store_.size();
  withdrawUnread(revision);
  const std::vector<std::string> removed = store_.endSnapshot(revision);
  own_key_.endSnapshot(revision);
  noteMassDeletion(removed.size(), before);
  difference_.removed += removed.size();
  difference_.lacks_changes = std::any_of(put_meanwhile_.begin(), put_meanwhile_.end(),
                                          [revision](const auto& put) { return put.second <= revision; });
  difference_.other_history = difference_.other_history || oldest_newer_ <= revision;
  if (!difference_.lacks_changes) complete_to_ = revision;
  newest_name_ = std::move(newest_in_snapshot_);
  changes_ += removed.size();
  for (const std::string& name : removed) {
    if (options_.generation != nullptr) options_.generation->vanished(name, revision);
    if (difference_.names.size() < kMaxNamesInLog) difference_.names.push_back(name);
  }
  if (difference_.rejected == 1) log_.warning("etcd key {}: no record", difference_.why_rejected);
  if (difference_.rejected > 1)
    log_.warning("{} keys in etcd are no records, such as {}", difference_.rejected, difference_.why_rejected);
  if (options_.generation != nullptr) options_.generation->endSnapshot();
  abandonSnapshot();
  return std::move(difference_);
}

// Of a key that had another revision in the snapshot, and was gone when its value was asked for, the table has something
// older than both.
void Replica::withdrawUnread(int64_t snapshot) {
  for (const auto& [key, revision] : std::exchange(unread_, {})) {
    own_key_.remove(key, revision);
    if (options_.generation != nullptr) options_.generation->vanished(key, snapshot);
    if (!remove(key, revision)) continue;
    ++difference_.removed;
    if (difference_.names.size() < kMaxNamesInLog) difference_.names.push_back(key);
  }
}

void Replica::abandonSnapshot() {
  in_snapshot_ = false;
  unread_.clear();
  withdrawn_.clear();
  put_meanwhile_.clear();
}

// While this node says that a name is its own, the table has its record.
Replica::EventEffect Replica::put(const store::KeyValue& kv) {
  const bool may_come = own_key_.mayCome(kv.key);
  if (!may_come) own_key_.put(kv);
  const EventEffect effect = publish(kv);
  if (may_come) own_key_.put(kv);
  return effect;
}

Replica::EventEffect Replica::publish(const store::KeyValue& kv) {
  if (isPath(kv.key)) {
    if (!isBeatKey(kv.key) && !std::exchange(paths_logged_, true))
      log_.info("etcd holds keys of others too, such as \"{}\": what has a '/' is no name", printable(kv.key));
    return EventEffect::kForeign;
  }
  const Result<dns::Name> name = decodeKey(kv.key);
  if (!name) {
    reject(kv, rejectionOfKey(kv), name.error().message);
    return EventEffect::kRejected;
  }
  const Result<NodeRecord> record = decodeRecord(kv.value);
  if (!record) {
    reject(kv, kv.value.size() > kMaxValueBytes ? Rejection::kValueTooLarge : Rejection::kValue,
           record.error().message);
    if (remove(kv.key, kv.mod_revision)) log_.warning("{} is withdrawn: its key says nothing valid any more", kv.key);
    return EventEffect::kRejected;
  }
  rejected_.erase(kv.key);
  if (!record->id.empty()) own_key_.sawToken(record->token);
  if (options_.shared_address != nullptr) options_.shared_address->put(kv, *record);
  if (!hasRoomFor(*name)) return EventEffect::kRejected;
  withdrawn_.erase(kv.key);
  for (Newest* newest : {&newest_name_, &newest_in_snapshot_}) {
    if (newest->first < kv.mod_revision) *newest = {kv.mod_revision, kv.key};
  }
  const Change change = putInto(store_, *name, *record, kv);
  const bool is_in_table = change != Change::kOlder && change != Change::kContradiction;
  if (options_.generation != nullptr && is_in_table) options_.generation->put(kv, !record->id.empty() && kv.lease != 0);
  switch (change) {
    case Change::kUnchanged:
      return EventEffect::kUnchanged;
    case Change::kOlder:
      return EventEffect::kOlder;
    case Change::kContradiction:
      return EventEffect::kContradiction;
    case Change::kAdded:
    case Change::kReplaced:
      break;
  }
  ++changes_;
  return EventEffect::kChanged;
}

// A name that is there already always has.
bool Replica::hasRoomFor(const dns::Name& name) {
  if (store_.size() < options_.max_names || store_.holds(name)) return true;
  counters_.names_refused.add();
  if (!std::exchange(full_logged_, true))
    log_.error("etcd holds more than {} names: those beyond are not served", options_.max_names);
  return false;
}

bool Replica::remove(std::string_view key, int64_t mod_revision) {
  const Result<dns::Name> name = decodeKey(key);
  if (!name) return false;
  if (options_.shared_address != nullptr) options_.shared_address->remove(key);
  if (in_snapshot_) withdrawn_.insert_or_assign(std::string(key), mod_revision);
  if (!store_.remove(*name, mod_revision)) return false;
  if (options_.generation != nullptr) options_.generation->remove(key, mod_revision);
  ++changes_;
  return true;
}

void Replica::reject(const store::KeyValue& kv, Rejection rejection, std::string_view why) {
  const auto known = rejected_.find(kv.key);
  const bool known_before = known != rejected_.end();
  if (known_before && known->second == kv.mod_revision) return;
  counters_.rejected.add(rejection);
  warnOfLimit(kv, rejection);
  if (!known_before && rejected_.size() >= kMaxRememberedRejections) return;
  rejected_.insert_or_assign(kv.key, kv.mod_revision);
  if (known_before) return;  // a client may write an invalid value every second
  if (!adding_to_snapshot_) return logRejection(kv, why);
  if (difference_.rejected++ == 0)
    difference_.why_rejected =
        fmt::format("\"{}\" (revision {}): {}", printable(kv.key), kv.mod_revision, printable(why));
}

// Strangers may write many: a few are named, the others counted.
void Replica::logRejection(const store::KeyValue& kv, std::string_view why) {
  const BootClock::time_point now = clock_.now();
  if (rejections_logged_ == 0 || now - rejections_since_ > kRejectionInterval) {
    rejections_since_ = now;
    rejections_logged_ = 0;
  }
  if (rejections_logged_ >= kMaxRejectionsInLog) {
    ++rejections_unlogged_;
    return;
  }
  ++rejections_logged_;
  const size_t unlogged = std::exchange(rejections_unlogged_, 0);
  log_.warning("etcd key \"{}\" (revision {}) is no record: {}{}", printable(kv.key), kv.mod_revision, printable(why),
               unlogged == 0 ? "" : fmt::format("; and {} others were none", unlogged));
}

// Beside the line that each rejected key gets, as long as they are few, until it is valid or gone.
void Replica::warnOfLimit(const store::KeyValue& kv, Rejection rejection) {
  if (rejection == Rejection::kKeyTooLong && !std::exchange(long_key_logged_, true))
    log_.warning("etcd holds a key of {} bytes; names have at most {}: such keys are skipped", kv.key.size(),
                 kMaxKeyBytes);
  if (rejection == Rejection::kValueTooLarge && !std::exchange(large_value_logged_, true))
    log_.warning("etcd holds a value of {} bytes; records have at most {}: such values are skipped", kv.value.size(),
                 kMaxValueBytes);
}

void Replica::noteMassDeletion(size_t removed, size_t before) {
  constexpr size_t kFew = 3;  // a node or two may always go
  if (removed < kFew || removed * 2 < before) return;
  counters_.mass_deletions.add();
  log_.warning("mass deletion: {} of {} names vanished from etcd at once", removed, before);
}

}  // namespace idetcd::naming
