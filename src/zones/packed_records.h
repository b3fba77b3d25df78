// Records of a zone, one behind the other:
//
//   size of the owner (1) | owner | type (2) | TTL (4) | size of RDATA (2) | RDATA
//
// One thread while it is filled; then any.
#pragma once

#include "zones/zone_copy.h"

namespace idetcd::zones {

class PackedRecords {
 public:
  void put(const ZoneCopy::Record& record) {
    const size_t start = bytes_.size();
    bytes_.resize(start + sizeOf(record));
    uint8_t* to = &bytes_[start];
    *to++ = static_cast<uint8_t>(record.owner.size());
    to = dns::putBytes(to, record.owner);
    to = dns::put32(dns::put16(to, record.type), record.ttl_seconds);
    dns::putBytes(dns::put16(to, static_cast<uint16_t>(record.rdata.size())), record.rdata);
  }
  // Forgets what is behind the first `size` bytes.
  void cut(size_t size) { bytes_.resize(size); }
  size_t size() const { return bytes_.size(); }

  // The record at `offset`, which moves behind it; borrowed for as long as this is not changed. False: there are no more.
  bool read(size_t& offset, ZoneCopy::Record& record) const {
    if (offset == bytes_.size()) return false;
    const std::span<const uint8_t> rest = std::span(bytes_).subspan(offset);
    const size_t owner = rest[0];
    const uint8_t* const fixed = &rest[1 + owner];
    record = {rest.subspan(1, owner), dns::load16(fixed), dns::load32(fixed + 2),
              rest.subspan(1 + owner + kFixed, dns::load16(fixed + 6))};
    offset += sizeOf(record);
    return true;
  }

  static size_t sizeOf(const ZoneCopy::Record& record) { return 1 + record.owner.size() + kFixed + record.rdata.size(); }

 private:
  static constexpr size_t kFixed = 8;
  std::vector<uint8_t> bytes_;
};

}  // namespace idetcd::zones
