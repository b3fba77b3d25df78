#include "records/entry_builder.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>

#include "dns/record.h"

namespace idetcd::records {

namespace {

// type, count and size, as entry.h draws them
using RrsetHead = std::array<uint16_t, 3>;

}  // namespace

EntryBuilder& EntryBuilder::add(dns::RrType type, uint32_t ttl_seconds, std::span<const uint8_t> rdata) {
  RrsetHead head{dns::code(type), 0, 0};
  if (rrset_count_ > 0) std::memcpy(head.data(), rrsets_.data() + last_rrset_, sizeof(head));
  if (rrset_count_ == 0 || head[0] != dns::code(type)) {
    head = {dns::code(type), 0, 0};
    last_rrset_ = rrsets_.size();
    rrsets_.resize(last_rrset_ + sizeof(head));
    ++rrset_count_;
  }
  ++head[1];
  head[2] = static_cast<uint16_t>(head[2] + dns::kRecordHeadSize + rdata.size());
  std::memcpy(rrsets_.data() + last_rrset_, head.data(), sizeof(head));

  const size_t start = rrsets_.size();
  rrsets_.resize(start + dns::kRecordHeadSize + rdata.size());
  uint8_t* const record = rrsets_.data() + start;
  dns::putOctets(dns::putRecordHead(record, dns::kQuestionPointer, type, ttl_seconds, rdata.size()), rdata);
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
