// One name's RRsets, ready to be copied behind a question. Immutable once published; readers on any thread.
//
//   Entry header (16 bytes) | owner name, folded wire form | RRset | RRset | …
//   RRset: type (2) count (2) size (2), host byte order | records in wire form, owner C0 0C (the question's name)
//
// A name with A takes 16 + 23 + 6 + 16 = 61 bytes for `worker123456.tf.local.`: one cache line.
#pragma once

#include "dns/record.h"
#include "records/rrset.h"

namespace idetcd::records {

// Byte equality of [a, a+size) and [b, b+size); for the short, almost always equal names that a tag match leaves.
[[gnu::always_inline]] inline bool equalBytes(const uint8_t* a, const uint8_t* b, size_t size) {
  const auto load = [](const uint8_t* p) {
    uint64_t word;
    std::memcpy(&word, p, sizeof(word));
    return word;
  };
  const auto differ = [&](size_t i) { return (load(a + i) ^ load(b + i)) | (load(a + i + 8) ^ load(b + i + 8)); };
  if (size - 16 <= 16) return (differ(0) | differ(size - 16)) == 0;  // 16 to 32: most names
  if (size < 16) return std::memcmp(a, b, size) == 0;
  for (size_t i = 0; i + 16 < size; i += 16) {
    if (differ(i) != 0) return false;
  }
  return differ(size - 16) == 0;  // the last sixteen, overlapping
}

// Calls visit(type, ttl_seconds, rdata) for each record of RRsets with their heads, in order.
template <typename Visit>
void visitRecords(std::span<const uint8_t> rrsets, Visit visit) {
  while (!rrsets.empty()) {
    uint16_t head[3];
    std::memcpy(head, rrsets.data(), sizeof(head));
    std::span<const uint8_t> wire = rrsets.subspan(sizeof(head), head[2]);
    rrsets = rrsets.subspan(sizeof(head) + head[2]);
    while (!wire.empty()) {
      const size_t size = dns::load16(wire.data() + dns::kRecordHeadSize - 2);
      visit(static_cast<dns::RrType>(head[0]), dns::load32(wire.data() + dns::kTtlOffset),
            Rdata(wire.subspan(dns::kRecordHeadSize, size)));
      wire = wire.subspan(dns::kRecordHeadSize + size);
    }
  }
}

class Entry {
 public:
  struct Rrset {
    uint16_t type = 0;
    uint16_t count = 0;
    std::span<const uint8_t> wire;
  };

  std::span<const uint8_t> name() const { return {body(), name_size_}; }
  [[gnu::always_inline]] bool isNamed(std::span<const uint8_t> folded) const {
    return folded.size() == name_size_ && equalBytes(body(), folded.data(), name_size_);
  }
  // Calls visit(Rrset) for each until it returns true; returns whether one did.
  template <typename Visit>
  bool visitRrsets(Visit visit) const {
    const uint8_t* p = body() + name_size_;
    for (size_t i = 0; i < rrset_count_; ++i) {
      uint16_t head[3];
      std::memcpy(head, p, sizeof(head));
      p += sizeof(head);
      if (visit(Rrset{head[0], head[1], {p, head[2]}})) return true;
      p += head[2];
    }
    return false;
  }
  // Calls visit(type, ttl_seconds, rdata) for each record.
  template <typename Visit>
  void visitRecords(Visit visit) const {
    records::visitRecords(rrsetBytes(), visit);
  }
  // An RRset with count 0 if there is none of this type.
  Rrset find(uint16_t type) const {
    const auto load = [](const uint8_t* p) {
      uint16_t value;
      std::memcpy(&value, p, sizeof(value));
      return value;
    };
    const uint8_t* p = body() + name_size_;
    for (size_t i = 0; i < rrset_count_; ++i) {
      const uint16_t size = load(p + 4);
      if (load(p) == type) return {type, load(p + 2), {p + 6, size}};
      p += 6 + size;
    }
    return {};
  }

  // The RRsets with their heads, as drawn above.
  std::span<const uint8_t> rrsetBytes() const {
    const uint8_t* const begin = body() + name_size_;
    const uint8_t* end = begin;
    visitRrsets([&end](const Rrset& rrset) {
      end = rrset.wire.data() + rrset.wire.size();
      return false;
    });
    return {begin, end};
  }

  int64_t modRevision() const { return mod_revision_; }
  Source source() const { return static_cast<Source>(source_); }
  // Some source speaks of the name, though it may say that there is no data.
  bool isHeld() const { return source() != Source::kNone; }

 private:
  friend class EntryBuilder;
  friend class EntryArena;
  friend class RecordStore;
  friend class SourceHistory;
  Entry() = default;

  const uint8_t* body() const { return reinterpret_cast<const uint8_t*>(this + 1); }
  uint8_t* body() { return reinterpret_cast<uint8_t*>(this + 1); }

  static constexpr size_t kGranule = 16;
  // Bytes of the whole entry, rounded up to granules.
  size_t roundedSize() const { return (size_t{granules_less_one_} + 1) * kGranule; }
  void setSize(size_t size) { granules_less_one_ = ((size - 1) / kGranule) & 0xfff; }

  int64_t mod_revision_;    // etcd's; 0: etcd says nothing of the name
  uint32_t snapshot_mark_;  // writer only: the last snapshot that saw it. Changes after publication; no reader looks
  uint16_t granules_less_one_ : 12;
  uint16_t source_ : 4;
  uint8_t name_size_;
  uint8_t rrset_count_;
};
static_assert(sizeof(Entry) == 16);

class EntryArena;

// Makes entries. One that is used again, with begin(), allocates nothing but the entries. Writer only.
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
