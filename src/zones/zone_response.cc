#include "zones/zone_response.h"

namespace idetcd::zones {

namespace {

constexpr size_t kMaxPointer = 0x3fff;

// The bytes of the name at the beginning of RDATA that was checked when the zone was read.
size_t nameSize(std::span<const uint8_t> rdata) {
  const size_t size = dns::uncompressedNameSize(rdata);
  assert(size > 0);
  return size;
}

}  // namespace

ZoneResponse::ZoneResponse(const dns::Query& query, size_t limit)
    : query_(query), message_(query.message), response_(query, limit), base_(response_.position()) {
  remember(query.name(), query.qname_size, dns::kHeaderSize, 0);
}

void ZoneResponse::append(Section section, std::span<const uint8_t> bytes, uint16_t count) {
  const size_t before = response_.position();
  section == Section::kAnswer ? response_.addAnswer(bytes, count) : response_.addAuthority(bytes, count);
  is_full_ |= response_.position() - before != bytes.size();
}

bool ZoneResponse::isWhole(std::span<const uint8_t> owner) const {
  return owner.size() == query_.qname_size && std::ranges::equal(owner, query_.name());
}

void ZoneResponse::add(Section section, std::span<const uint8_t> owner, const records::Entry::Rrset& rrset,
                       uint32_t ttl_seconds) {
  const dns::RdataLayout* const layout = dns::layoutOf(rrset.type);
  const bool compresses = layout != nullptr && layout->compress;
  if (!compresses && ttl_seconds == std::numeric_limits<uint32_t>::max() && isWhole(owner)) {
    append(section, rrset.wire, rrset.count);
    return;
  }
  visitRecords(rrset, [&](uint32_t ttl, std::span<const uint8_t> rdata) {
    addRecord(section, owner, rrset.type, std::min(ttl, ttl_seconds), rdata);
  });
}

void ZoneResponse::addSignatures(Section section, std::span<const uint8_t> owner,
                                 const records::Entry::Rrset& signatures, uint16_t type, uint32_t ttl_seconds) {
  visitRecords(signatures, [&](uint32_t ttl, std::span<const uint8_t> rdata) {
    if (dns::load16(rdata.data()) == type)
      addRecord(section, owner, signatures.type, std::min(ttl, ttl_seconds), rdata);
  });
}

void ZoneResponse::addRecord(Section section, std::span<const uint8_t> owner, uint16_t type, uint32_t ttl_seconds,
                             std::span<const uint8_t> rdata) {
  if (is_full_) return;
  base_ = response_.position();
  size_ = 0;
  putHead(owner, type, ttl_seconds, rdata.size());
  const dns::RdataLayout* const layout = dns::layoutOf(type);
  if (layout == nullptr || !layout->compress) {
    append(section, std::span(buffer_).first(size_), 1);
    append(section, rdata, 0);
    return;
  }
  const size_t start = size_;
  putRdata(*layout, rdata);
  dns::store16(&buffer_[start - 2], static_cast<uint16_t>(size_ - start));
  append(section, std::span(buffer_).first(size_), 1);
}

bool ZoneResponse::addAdditional(std::span<const uint8_t> owner, const records::Entry::Rrset& rrset,
                                 const records::Entry::Rrset& signatures) {
  if (is_full_) return true;
  const size_t known = known_count_;
  base_ = response_.position();
  size_ = 0;
  bool fits = true;
  uint16_t count = 0;
  const auto putOne = [&](uint16_t type, uint32_t ttl, std::span<const uint8_t> rdata) {
    fits = fits && putAdditional(owner, type, ttl, rdata);
    ++count;
  };
  visitRecords(rrset, [&](uint32_t ttl, std::span<const uint8_t> rdata) { putOne(rrset.type, ttl, rdata); });
  visitRecords(signatures, [&](uint32_t ttl, std::span<const uint8_t> rdata) {
    if (dns::load16(rdata.data()) == rrset.type) putOne(signatures.type, ttl, rdata);
  });
  fits = fits && response_.addAdditional(std::span(buffer_).first(size_), count);
  if (!fits) known_count_ = known;
  return fits;
}

bool ZoneResponse::addAdditional(std::span<const uint8_t> owner, uint16_t type, uint32_t ttl_seconds,
                                 std::span<const uint8_t> rdata) {
  if (is_full_) return true;
  const size_t known = known_count_;
  base_ = response_.position();
  size_ = 0;
  const bool fits = putAdditional(owner, type, ttl_seconds, rdata) &&
                    response_.addAdditional(std::span(buffer_).first(size_), 1);
  if (!fits) known_count_ = known;
  return fits;
}

bool ZoneResponse::putAdditional(std::span<const uint8_t> owner, uint16_t type, uint32_t ttl_seconds,
                                 std::span<const uint8_t> rdata) {
  if (size_ + dns::kMaxNameLength + dns::kRecordHeadSize + rdata.size() > buffer_.size()) return false;
  putHead(owner, type, ttl_seconds, rdata.size());
  put(rdata);
  return true;
}

void ZoneResponse::put(std::span<const uint8_t> bytes) {
  assert(bytes.size() <= buffer_.size() - size_);
  std::memcpy(&buffer_[size_], bytes.data(), bytes.size());
  size_ += bytes.size();
}

void ZoneResponse::put16(uint16_t value) {
  dns::store16(&buffer_[size_], value);
  size_ += 2;
}

void ZoneResponse::putHead(std::span<const uint8_t> owner, uint16_t type, uint32_t ttl_seconds, size_t rdata_size) {
  putName(owner, true);
  put16(type);
  put16(dns::code(dns::RrClass::kIn));
  put16(static_cast<uint16_t>(ttl_seconds >> 16));
  put16(static_cast<uint16_t>(ttl_seconds));
  put16(static_cast<uint16_t>(rdata_size));
}

void ZoneResponse::putRdata(const dns::RdataLayout& layout, std::span<const uint8_t> rdata) {
  put(rdata.first(layout.before));
  rdata = rdata.subspan(layout.before);
  for (int i = 0; i < layout.names; ++i) {
    const size_t size = nameSize(rdata);
    putName(rdata.first(size), layout.compress);
    rdata = rdata.subspan(size);
  }
  put(rdata);
}

void ZoneResponse::putName(std::span<const uint8_t> name, bool compress) {
  size_t pos = 0;
  const Known* target = nullptr;
  for (; compress && name[pos] != 0; pos += name[pos] + 1u) {
    const auto rest = name.subspan(pos);
    const auto end = known_.begin() + static_cast<ptrdiff_t>(known_count_);
    const auto found = std::find_if(known_.begin(), end, [&](const Known& known) {
      return known.size == rest.size() && known.jumps < kMaxJumps && isNameAt(known.offset, rest);
    });
    if (found == end) continue;
    target = &*found;
    break;
  }
  const size_t literal = target != nullptr ? pos : name.size();
  const uint16_t pointer = target != nullptr ? dns::pointerTo(target->offset) : 0;
  const int jumps = target != nullptr ? target->jumps + 1 : 0;
  remember(name, literal, base_ + size_, static_cast<uint8_t>(jumps));
  put(name.first(literal));
  if (pointer != 0) put16(pointer);
}

// Follows pointers, which lead backwards.
bool ZoneResponse::isNameAt(size_t offset, std::span<const uint8_t> name) const {
  size_t at = offset;
  for (size_t pos = 0; pos < name.size();) {
    size_t length = byteAt(at);
    while (length >= dns::kPointerLabel) {
      at = (length & 0x3f) << 8 | byteAt(at + 1);
      length = byteAt(at);
    }
    if (length != name[pos]) return false;
    for (size_t i = 1; i <= length; ++i) {
      if (dns::toLower(byteAt(at + i)) != dns::toLower(name[pos + i])) return false;
    }
    at += length + 1;
    pos += length + 1;
  }
  return true;
}

// The labels before `size` of a name that is written at `offset`.
void ZoneResponse::remember(std::span<const uint8_t> name, size_t size, size_t offset, uint8_t jumps) {
  for (size_t pos = 0; pos < size && name[pos] != 0; pos += name[pos] + 1u) {
    if (offset + pos > kMaxPointer || known_count_ == known_.size()) return;
    known_[known_count_++] = {static_cast<uint16_t>(offset + pos), static_cast<uint8_t>(name.size() - pos), jumps};
  }
}

void orderAddresses(const dns::Query& query, size_t size, const dns::AddressOrder& order) {
  const bool is_v4 = query.qtype == dns::code(dns::RrType::kA);
  if (!is_v4 && query.qtype != dns::code(dns::RrType::kAaaa)) return;
  const size_t record_size = dns::kRecordHeadSize + (is_v4 ? 4 : 16);
  size_t end = query.question_end;
  for (unsigned left = dns::load16(query.message + 6); left > 0 && size - end >= record_size; --left) {
    const uint8_t* const record = query.message + end;
    if (dns::load16(record) != dns::kQuestionPointer || dns::load16(record + 2) != query.qtype) break;
    end += record_size;
  }
  const size_t records = (end - query.question_end) / record_size;
  if (records < 2) return;
  dns::orderAddresses({query.message + query.question_end, end - query.question_end}, record_size, order);
}

}  // namespace idetcd::zones
