// Makes entries (entry.h). One that is used again, with begin(), allocates nothing but the entries. Writer only.
#pragma once

#include "records/entry.h"
#include "records/entry_arena.h"
#include "records/rrset.h"

namespace idetcd::records {

class EntryBuilder {
 public:
  // Of all records of a name together: leaves room for the question, OPT and what else is in a message of 65,535 bytes.
  static constexpr size_t kMaxRecordBytes = 60000;

  EntryBuilder() = default;
  // `owner`: folded wire form; borrowed.
  EntryBuilder(std::span<const uint8_t> owner, int64_t mod_revision) { begin(owner, mod_revision, Source::kNone); }
  // Forgets what was added. `source`: where the records that follow come from.
  void begin(std::span<const uint8_t> owner, int64_t mod_revision, Source source);

  // Appends a record of class IN whose owner is the entry's name, as it is. Records of one type that are added one
  // after another are one RRset. REQUIRES: its type is that of the last record, or new; all of them together, with
  // their heads, fit an entry (65535 bytes).
  EntryBuilder& add(dns::RrType type, uint32_t ttl_seconds, std::span<const uint8_t> rdata);

  // Adds to the RRset of this type: what it has already is left out, and the lowest TTL holds for all of it (RFC 2181
  // §5.2). What does not fit kMaxRecordBytes is left out; so is an RRset of a 256th type. Takes time by the square of
  // the records of one type.
  void merge(const Rrset& rrset);
  // The RRsets of another entry, or of another builder.
  void mergeAll(std::span<const uint8_t> rrsets);

  std::span<const uint8_t> rrsets() const { return rrsets_; }  // with their heads, as entry.h draws them
  Entry* build(EntryArena& arena, uint32_t snapshot_mark) const;

 private:
  void mergeRecord(dns::RrType type, uint32_t ttl_seconds, Rdata rdata);
  size_t find(dns::RrType type) const;
  bool hasRecord(size_t head, uint32_t* ttl_seconds, Rdata rdata);

  std::span<const uint8_t> owner_;
  int64_t mod_revision_ = 0;
  Source source_ = Source::kNone;
  uint8_t rrset_count_ = 0;
  size_t last_rrset_ = 0;  // where its head is, if there is one
  std::vector<uint8_t> rrsets_;
};

}  // namespace idetcd::records
