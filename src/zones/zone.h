// The contents of a zone: its names, each an entry with RRsets in wire form, ready to be copied behind a question. Immutable;
// any thread; no allocation.
//
// An entry's marks stand where a cluster's entries have etcd's revision.
#pragma once

#include "base/hash.h"
#include "dns/name.h"
#include "records/epoch.h"
#include "records/record_table.h"
#include "zones/denial.h"

namespace idetcd::zones {

class ZoneJournal;

class Zone {
 public:
  using Marks = int64_t;
  enum Mark : uint8_t {
    kCut = 1,     // a delegation: it has NS, and is not the apex
    kDname = 2,   // names below are somewhere else
    kHidden = 4,  // below a delegation or a DNAME: glue, or nothing
  };

  Zone(const dns::Name& origin, HashSeed seed) : origin_(origin), table_(epochs_, seed) {}

  const dns::Name& origin() const { return origin_; }
  const records::RecordTable& table() const { return table_; }
  // Of the names of NSEC3 records; null: there are none.
  const records::RecordTable* nsec3Table() const { return nsec3_.get(); }
  const records::Entry* find(std::span<const uint8_t> name) const {
    return table_.find(hashBytes(name.data(), name.size(), table_.seed()), name);
  }
  static Marks marksOf(const records::Entry& entry) { return entry.modRevision(); }
  static bool has(const records::Entry& entry, Mark mark) { return (marksOf(entry) & mark) != 0; }

  const records::Entry& apex() const { return *apex_; }
  uint32_t serial() const { return serial_; }
  // How long it may be remembered that something is not there (RFC 2308 §5).
  uint32_t negativeTtl() const { return negative_ttl_; }
  const Denial& denial() const { return denial_; }

  size_t names() const { return table_.size(); }  // with those that only have others below them
  size_t recordCount() const { return record_count_; }
  size_t outOfZoneCount() const { return out_of_zone_count_; }
  size_t bytes() const { return table_.bytes(); }

  // The changes that have led to it; null: none are kept.
  const std::shared_ptr<const ZoneJournal>& journal() const { return journal_; }
  // REQUIRES: it is not shared yet.
  void setJournal(std::shared_ptr<const ZoneJournal> journal) { journal_ = std::move(journal); }

 private:
  friend class ZoneBuilder;

  const dns::Name origin_;
  records::EpochDomain epochs_;  // without readers while the table is built, and without writers afterwards
  records::RecordTable table_;
  std::unique_ptr<records::RecordTable> nsec3_;  // of names that no query finds
  Denial denial_;
  const records::Entry* apex_ = nullptr;
  uint32_t serial_ = 0;
  uint32_t negative_ttl_ = 0;
  size_t record_count_ = 0;
  size_t out_of_zone_count_ = 0;
  std::shared_ptr<const ZoneJournal> journal_;
};

}  // namespace idetcd::zones
