// One name's RRsets, ready to be copied behind a question. Immutable once published; readers on any thread.
//
//   Entry header (16 octets) | owner name, folded wire form | RRset | RRset | …
//   RRset: type (2) count (2) size (2), host byte order | records in wire form, owner C0 0C (the question's name)
//
// A name with A takes 16 + 23 + 6 + 16 = 61 octets for `worker123456.tf.local.`: one cache line.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "dns/wire.h"

namespace idetcd::records {

// Octet equality of [a, a+size) and [b, b+size); for the short, almost always equal names that a tag match leaves.
inline bool equalOctets(const uint8_t* a, const uint8_t* b, size_t size) {
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

class Entry {
 public:
  struct Rrset {
    uint16_t type = 0;
    uint16_t count = 0;
    std::span<const uint8_t> wire;
  };

  std::span<const uint8_t> name() const { return {body(), name_size_}; }
  bool isNamed(std::span<const uint8_t> folded) const {
    return folded.size() == name_size_ && equalOctets(body(), folded.data(), name_size_);
  }
  size_t rrsetCount() const { return rrset_count_; }
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

  int64_t modRevision() const { return mod_revision_; }

 private:
  friend class EntryBuilder;
  friend class EntryArena;
  friend class RecordStore;
  Entry() = default;

  const uint8_t* body() const { return reinterpret_cast<const uint8_t*>(this + 1); }
  uint8_t* body() { return reinterpret_cast<uint8_t*>(this + 1); }

  int64_t mod_revision_;    // etcd's; 0: not from etcd
  uint32_t snapshot_mark_;  // writer only: the last snapshot that saw it. Changes after publication; no reader looks
  uint16_t size_;           // octets of the whole entry
  uint8_t name_size_;
  uint8_t rrset_count_;
};
static_assert(sizeof(Entry) == 16);

}  // namespace idetcd::records
