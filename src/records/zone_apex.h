// The records of a zone besides its names: SOA and NS (RFC 1035 §3.3.13, RFC 2308 §3). Immutable; any thread.
//
// Every name in them is written as a prefix and a pointer to the zone's name in the question, so one template serves
// each question: of 54 bytes three pointers and the serial are patched.
#pragma once

#include "dns/name.h"
#include "dns/record.h"

namespace idetcd::records {

class ZoneApex {
 public:
  ZoneApex(const dns::Name& zone, uint32_t ttl_seconds);

  struct Soa {
    std::array<uint8_t, 54> wire;
    uint8_t size;
    std::span<const uint8_t> span() const { return {wire.data(), size}; }
  };
  // The SOA record of the zone whose name begins at `offset` of the message. REQUIRES: offset < 0x4000.
  Soa soa(size_t offset, uint32_t serial) const {
    assert(offset < 0x4000);
    Soa soa = soa_;
    const uint16_t pointer = dns::pointerTo(offset);
    dns::store16(soa.wire.data(), pointer);
    dns::store16(soa.wire.data() + mname_pointer_, pointer);
    dns::store16(soa.wire.data() + rname_pointer_, pointer);
    dns::store32(soa.wire.data() + rname_pointer_ + 2, serial);
    return soa;
  }

  // The NS record, for a question for the apex itself; its target begins at kNsTarget.
  std::span<const uint8_t> ns() const { return {ns_.data(), ns_size_}; }
  static constexpr size_t kNsTarget = dns::kRecordHeadSize;

  // The zone's name server, ns.dns.<zone>; the zone itself if that would be too long.
  const dns::Name& nameServer() const { return name_server_; }

 private:
  dns::Name name_server_;
  Soa soa_{};
  uint8_t mname_pointer_ = 0;
  uint8_t rname_pointer_ = 0;
  std::array<uint8_t, 21> ns_{};
  uint8_t ns_size_ = 0;
};

}  // namespace idetcd::records
