#include "records/entry.h"

#include "records/entry_arena.h"

namespace idetcd::records {

namespace {

// type, count and size, as entry.h draws them
using RrsetHead = std::array<uint16_t, 3>;

constexpr size_t kMaxRrsets = 255;

RrsetHead headAt(const std::vector<uint8_t>& rrsets, size_t offset) {
  RrsetHead head;
  std::memcpy(head.data(), rrsets.data() + offset, sizeof(head));
  return head;
}

void setHeadAt(std::vector<uint8_t>& rrsets, size_t offset, const RrsetHead& head) {
  std::memcpy(rrsets.data() + offset, head.data(), sizeof(head));
}

}  // namespace

void EntryBuilder::begin(std::span<const uint8_t> owner, int64_t mod_revision, Source source) {
  owner_ = owner;
  mod_revision_ = mod_revision;
  source_ = source;
  rrset_count_ = 0;
  last_rrset_ = 0;
  rrsets_.clear();
}

EntryBuilder& EntryBuilder::add(dns::RrType type, uint32_t ttl_seconds, std::span<const uint8_t> rdata) {
  RrsetHead head{dns::code(type), 0, 0};
  if (rrset_count_ > 0) std::memcpy(head.data(), rrsets_.data() + last_rrset_, sizeof(head));
  if (rrset_count_ == 0 || head[0] != dns::code(type)) {
    assert(find(type) == rrsets_.size());
    head = {dns::code(type), 0, 0};
    last_rrset_ = rrsets_.size();
    rrsets_.resize(last_rrset_ + sizeof(head));
    ++rrset_count_;
  }
  ++head[1];
  head[2] = static_cast<uint16_t>(head[2] + dns::kRecordHeadSize + rdata.size());
  std::memcpy(rrsets_.data() + last_rrset_, head.data(), sizeof(head));

  const size_t start = rrsets_.size();
  assert(start + dns::kRecordHeadSize + rdata.size() <= std::numeric_limits<uint16_t>::max());
  rrsets_.resize(start + dns::kRecordHeadSize + rdata.size());
  uint8_t* const record = rrsets_.data() + start;
  dns::putBytes(dns::putRecordHead(record, dns::kQuestionPointer, type, ttl_seconds, rdata.size()), rdata);
  return *this;
}

void EntryBuilder::merge(const Rrset& rrset) {
  for (const Rdata& rdata : rrset.rdata) mergeRecord(rrset.type, rrset.ttl_seconds, rdata);
}

void EntryBuilder::mergeAll(std::span<const uint8_t> rrsets) {
  visitRecords(rrsets,
               [this](dns::RrType type, uint32_t ttl_seconds, Rdata rdata) { mergeRecord(type, ttl_seconds, rdata); });
}

void EntryBuilder::mergeRecord(dns::RrType type, uint32_t ttl_seconds, Rdata rdata) {
  const size_t head = find(type);
  if (head < rrsets_.size() && hasRecord(head, &ttl_seconds, rdata)) return;
  const size_t record_size = dns::kRecordHeadSize + rdata.size();
  const bool is_new = head == rrsets_.size();
  if (rrsets_.size() + (is_new ? sizeof(RrsetHead) : 0) + record_size > kMaxRecordBytes) return;
  if (is_new) {
    if (rrset_count_ == kMaxRrsets) return;
    add(type, ttl_seconds, rdata);
    return;
  }
  RrsetHead changed = headAt(rrsets_, head);
  std::array<uint8_t, dns::kRecordHeadSize> record;
  dns::putRecordHead(record.data(), dns::kQuestionPointer, type, ttl_seconds, rdata.size());
  const auto end = rrsets_.begin() + static_cast<std::ptrdiff_t>(head + sizeof(RrsetHead) + changed[2]);
  rrsets_.insert(rrsets_.insert(end, rdata.begin(), rdata.end()), record.begin(), record.end());
  ++changed[1];
  changed[2] = static_cast<uint16_t>(changed[2] + record_size);
  setHeadAt(rrsets_, head, changed);
  if (head < last_rrset_) last_rrset_ += record_size;
}

// Where the head of the RRset of this type is; the end if there is none.
size_t EntryBuilder::find(dns::RrType type) const {
  size_t at = 0;
  while (at < rrsets_.size() && headAt(rrsets_, at)[0] != dns::code(type)) {
    at += sizeof(RrsetHead) + headAt(rrsets_, at)[2];
  }
  return at;
}

// Whether it is in this RRset. The lower TTL, of the RRset or of the record, holds for both.
bool EntryBuilder::hasRecord(size_t head, uint32_t* ttl_seconds, Rdata rdata) {
  const size_t begin = head + sizeof(RrsetHead);
  const size_t end = begin + headAt(rrsets_, head)[2];
  bool found = false;
  for (size_t at = begin; at < end;) {
    uint8_t* const record = rrsets_.data() + at;
    const size_t size = dns::load16(record + dns::kRecordHeadSize - 2);
    *ttl_seconds = std::min(*ttl_seconds, dns::load32(record + dns::kTtlOffset));
    dns::store32(record + dns::kTtlOffset, *ttl_seconds);
    found = found || std::ranges::equal(std::span(record + dns::kRecordHeadSize, size), rdata);
    at += dns::kRecordHeadSize + size;
  }
  return found;
}

Entry* EntryBuilder::build(EntryArena& arena, uint32_t snapshot_mark) const {
  const size_t size = sizeof(Entry) + owner_.size() + rrsets_.size();
  assert(size <= std::numeric_limits<uint16_t>::max());
  Entry* entry = arena.allocate(size);
  entry->mod_revision_ = mod_revision_;
  entry->snapshot_mark_ = snapshot_mark;
  entry->setSize(size);
  entry->source_ = static_cast<uint16_t>(source_) & 0xf;
  entry->name_size_ = static_cast<uint8_t>(owner_.size());
  entry->rrset_count_ = rrset_count_;
  std::copy(owner_.begin(), owner_.end(), entry->body());
  std::copy(rrsets_.begin(), rrsets_.end(), entry->body() + owner_.size());
  return entry;
}

}  // namespace idetcd::records
