#include "records/entry_builder.h"

#include <algorithm>
#include <cassert>
#include <limits>

namespace idetcd::records {

EntryBuilder& EntryBuilder::add(dns::RrType type, uint32_t ttl_seconds, std::span<const uint8_t> rdata) {
  constexpr size_t kRecordHead = 12;
  const uint16_t head[3] = {dns::code(type), 1, static_cast<uint16_t>(kRecordHead + rdata.size())};
  const size_t start = rrsets_.size();
  rrsets_.resize(start + sizeof(head) + kRecordHead + rdata.size());
  uint8_t* p = rrsets_.data() + start;
  std::memcpy(p, head, sizeof(head));
  p += sizeof(head);
  dns::store16(p, 0xc00c);
  dns::store16(p + 2, dns::code(type));
  dns::store16(p + 4, dns::code(dns::RrClass::kIn));
  dns::store32(p + 6, ttl_seconds);
  dns::store16(p + 10, static_cast<uint16_t>(rdata.size()));
  std::copy(rdata.begin(), rdata.end(), p + kRecordHead);
  ++rrset_count_;
  return *this;
}

Entry* EntryBuilder::build(EntryArena& arena, uint32_t snapshot_mark) const {
  const size_t size = sizeof(Entry) + owner_.size() + rrsets_.size();
  assert(size <= std::numeric_limits<uint16_t>::max());
  Entry* entry = arena.allocate(size);
  entry->mod_revision_ = mod_revision_;
  entry->snapshot_mark_ = snapshot_mark;
  entry->size_ = static_cast<uint16_t>(size);
  entry->name_size_ = static_cast<uint8_t>(owner_.size());
  entry->rrset_count_ = rrset_count_;
  std::copy(owner_.begin(), owner_.end(), entry->body());
  std::copy(rrsets_.begin(), rrsets_.end(), entry->body() + owner_.size());
  return entry;
}

}  // namespace idetcd::records
