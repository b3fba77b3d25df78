#include "zones/transfer_writer.h"

#include "dns/record_writer.h"

namespace idetcd::zones {

namespace {

constexpr size_t kLastPointer = 0x3fff;
constexpr size_t kFixedSize = 10;  // of a record, behind its owner

}  // namespace

TransferWriter::TransferWriter(const dns::Query& query, uint16_t flags, std::unique_ptr<ZoneCopy> zone)
    : zone_(std::move(zone)),
      origin_(dns::Name::fromWire(query.name())),
      head_(query.message, query.message + query.question_end),
      with_opt_(query.has_edns),
      dnssec_ok_(query.dnssec_ok),
      record_(zone_->soa()) {
  dns::store16(&head_[2], static_cast<uint16_t>(flags | dns::kFlagQr | dns::kFlagAa | (query.flags & dns::kFlagRd)));
  dns::store64(&head_[4], uint64_t{1} << 48);
}

size_t TransferWriter::next(std::span<uint8_t> room) {
  if (step_ == Step::kDone) return 0;
  room_ = room;
  size_ = 0;
  owner_.clear();
  owner_offset_ = 0;
  put(head_);
  const size_t limit = std::min(kSize, room.size()) - (with_opt_ ? dns::kOptSize : 0);
  size_t count = 0;
  while (step_ != Step::kDone && count < std::numeric_limits<uint16_t>::max()) {
    const size_t most = record_.owner.size() + kFixedSize + record_.rdata.size();
    if (count > 0 && size_ + most > limit) break;
    putRecord(record_);
    ++count;
    advance();
  }
  dns::store16(&room_[6], static_cast<uint16_t>(count));
  if (std::exchange(with_opt_, false)) {
    dns::storeOpt(&room_[size_], 0, dnssec_ok_);
    dns::store16(&room_[10], 1);
    size_ += dns::kOptSize;
  }
  records_ += count;
  bytes_ += size_;
  return size_;
}

void TransferWriter::advance() {
  if (step_ == Step::kLastSoa) {
    step_ = Step::kDone;
    return;
  }
  step_ = Step::kRecords;
  if (zone_->next(record_)) return;
  step_ = Step::kLastSoa;
  record_ = zone_->soa();
}

void TransferWriter::put(std::span<const uint8_t> bytes) {
  assert(bytes.size() <= room_.size() - size_);
  if (!bytes.empty()) std::memcpy(&room_[size_], bytes.data(), bytes.size());
  size_ += bytes.size();
}

void TransferWriter::put16(uint16_t value) {
  dns::store16(&room_[size_], value);
  size_ += 2;
}

// What is in the zone ends with a pointer to the question.
void TransferWriter::putName(std::span<const uint8_t> name) {
  if (origin_.isRoot() || !dns::isNameWithin(name, origin_)) return put(name);
  put(name.first(name.size() - origin_.size()));
  put16(dns::kQuestionPointer);
}

void TransferWriter::putOwner(std::span<const uint8_t> owner) {
  if (owner_offset_ != 0 && std::ranges::equal(owner, owner_)) return put16(dns::pointerTo(owner_offset_));
  owner_.assign(owner.begin(), owner.end());
  owner_offset_ = size_ <= kLastPointer ? size_ : 0;
  putName(owner);
}

void TransferWriter::putRecord(const ZoneCopy::Record& record) {
  putOwner(record.owner);
  put16(record.type);
  put16(dns::code(dns::RrClass::kIn));
  dns::store32(&room_[size_], record.ttl_seconds);
  size_ += 4;
  const size_t start = size_ + 2;
  put16(static_cast<uint16_t>(record.rdata.size()));
  const dns::RdataLayout* const layout = dns::layoutOf(record.type);
  if (layout == nullptr || !layout->compress) return put(record.rdata);
  std::span<const uint8_t> rdata = record.rdata;
  put(rdata.first(layout->before));
  rdata = rdata.subspan(layout->before);
  for (int i = 0; i < layout->names; ++i) {
    const size_t size = dns::uncompressedNameSize(rdata);
    assert(size > 0);
    putName(rdata.first(size));
    rdata = rdata.subspan(size);
  }
  put(rdata);
  dns::store16(&room_[start - 2], static_cast<uint16_t>(size_ - start));
}

}  // namespace idetcd::zones
