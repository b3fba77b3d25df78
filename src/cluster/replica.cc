#include "cluster/replica.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cluster/record_codec.h"

namespace idetcd::cluster {
namespace {

// Keys and error texts come from strangers: no control characters and no endless lines in the log.
std::string printable(std::string_view text) {
  constexpr size_t kMaxShown = 100;
  std::string shown;
  for (const char c : text.substr(0, kMaxShown)) {
    const auto octet = static_cast<unsigned char>(c);
    if (octet >= 0x20 && octet < 0x7f) {
      shown += c;
    } else {
      shown += fmt::format("\\{:03}", static_cast<unsigned>(octet));
    }
  }
  if (text.size() > kMaxShown) shown += "…";
  return shown;
}

}  // namespace

void Replica::apply(const std::vector<etcd::WatchEvent>& events) {
  const size_t before = store_.size();
  size_t removed = 0;
  for (const etcd::WatchEvent& event : events) {
    counters_.events.add();
    if (event.type == etcd::WatchEvent::Type::kPut) {
      own_key_.put(event.kv);
      put(event.kv);
    } else {
      own_key_.remove(event.kv.key, event.kv.mod_revision);
      rejected_.erase(event.kv.key);
      if (remove(event.kv.key, event.kv.mod_revision)) ++removed;
    }
  }
  noteMassDeletion(removed, before);
}

void Replica::beginSnapshot(bool revisions_restarted) {
  in_snapshot_ = true;
  difference_ = {};
  withdrawn_.clear();
  if (revisions_restarted) rejected_.clear();
  own_key_.beginSnapshot(revisions_restarted);
  store_.beginSnapshot(revisions_restarted);
}

void Replica::addToSnapshot(const std::vector<etcd::KeyValue>& page) {
  for (const etcd::KeyValue& kv : page) {
    if (const auto newer = withdrawn_.find(kv.key); newer != withdrawn_.end() && newer->second > kv.mod_revision)
      continue;
    own_key_.put(kv);
    if (put(kv) != Outcome::kChanged) continue;
    ++difference_.added_or_changed;
    if (difference_.names.size() < kMaxNamesInLog) difference_.names.push_back(kv.key);
  }
}

Replica::Difference Replica::endSnapshot(int64_t revision) {
  const size_t before = store_.size();
  const records::RecordStore::Removed removed = store_.endSnapshot(revision, kMaxNamesInLog);
  own_key_.endSnapshot(revision);
  noteMassDeletion(removed.count, before);
  difference_.removed = removed.count;
  for (const std::string& name : removed.names) {
    if (difference_.names.size() < kMaxNamesInLog) difference_.names.push_back(name);
  }
  abandonSnapshot();
  return std::move(difference_);
}

void Replica::abandonSnapshot() {
  in_snapshot_ = false;
  withdrawn_.clear();
}

Replica::Outcome Replica::put(const etcd::KeyValue& kv) {
  const Result<dns::Name> name = decodeKey(kv.key);
  if (!name) {
    reject(kv, name.error().message);
    return Outcome::kRejected;
  }
  const Result<NodeRecord> record = decodeRecord(kv.value);
  if (!record) {
    reject(kv, record.error().message);
    if (remove(kv.key, kv.mod_revision)) log_.warning("{} is withdrawn: its key says nothing valid any more", kv.key);
    return Outcome::kRejected;
  }
  rejected_.erase(kv.key);
  withdrawn_.erase(kv.key);
  const auto change = store_.put(*name, {record->ipv4, record->ipv6}, kv.mod_revision);
  return change == records::RecordStore::Change::kUnchanged ? Outcome::kUnchanged : Outcome::kChanged;
}

bool Replica::remove(std::string_view key, int64_t mod_revision) {
  const Result<dns::Name> name = decodeKey(key);
  if (!name) return false;
  if (in_snapshot_) withdrawn_.insert_or_assign(std::string(key), mod_revision);
  return store_.remove(*name, mod_revision);
}

void Replica::reject(const etcd::KeyValue& kv, std::string_view why) {
  const auto known = rejected_.find(kv.key);
  if (known != rejected_.end() && known->second == kv.mod_revision) return;
  counters_.rejected.add();
  if (known == rejected_.end() && rejected_.size() >= kMaxRememberedRejections) {
    if (!rejections_full_)
      log_.warning("more than {} keys are no records: no more of them are named", rejected_.size());
    rejections_full_ = true;
    return;
  }
  rejected_.insert_or_assign(kv.key, kv.mod_revision);
  log_.warning("etcd key \"{}\" (revision {}) is no record: {}", printable(kv.key), kv.mod_revision, printable(why));
}

void Replica::noteMassDeletion(size_t removed, size_t before) {
  constexpr size_t kFew = 3;  // a node or two may always go
  if (removed < kFew || removed * 2 < before) return;
  counters_.mass_deletions.add();
  log_.warning("mass deletion: {} of {} names vanished from etcd at once", removed, before);
}

}  // namespace idetcd::cluster
