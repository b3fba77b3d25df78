// Makes entries (entry.h). Writer only.
#pragma once

#include <span>
#include <vector>

#include "records/entry.h"
#include "records/entry_arena.h"

namespace idetcd::records {

class EntryBuilder {
 public:
  // `owner`: folded wire form.
  EntryBuilder(std::span<const uint8_t> owner, int64_t mod_revision) : owner_(owner), mod_revision_(mod_revision) {}

  // `rdata`: of one record of class IN whose owner is the entry's name. Records of one type that are added one after
  // another are one RRset. REQUIRES: all of them together, with their heads, fit an entry (65535 octets).
  EntryBuilder& add(dns::RrType type, uint32_t ttl_seconds, std::span<const uint8_t> rdata);

  Entry* build(EntryArena& arena, uint32_t snapshot_mark) const;

 private:
  std::span<const uint8_t> owner_;
  int64_t mod_revision_;
  uint8_t rrset_count_ = 0;
  size_t last_rrset_ = 0;  // where its head is, if there is one
  std::vector<uint8_t> rrsets_;
};

}  // namespace idetcd::records
