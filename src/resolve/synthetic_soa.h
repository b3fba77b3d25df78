// The SOA of a zone that no server runs: what denies names that this server knows for itself (RFC 6303 §3, and RFC 2308
// §3, by which a denial has one). Any thread.
#pragma once

#include "dns/record.h"

namespace idetcd::resolve {

// `@ SOA @ nobody.invalid. 1 3600 1200 604800 <ttl>`, @ being the name at `apex` of the message.
class SyntheticSoa {
 public:
  SyntheticSoa(size_t apex, uint32_t ttl_seconds) {
    const uint16_t owner = dns::pointerTo(apex);
    uint8_t* p = dns::putRecordHead(bytes_.data(), owner, dns::RrType::kSoa, ttl_seconds, kSize - dns::kRecordHeadSize);
    p = dns::put16(p, owner);
    p = dns::putBytes(p, kMailbox);
    for (const uint32_t number : {1u, 3600u, 1200u, 604800u, ttl_seconds}) p = dns::put32(p, number);
  }
  std::span<const uint8_t> span() const { return bytes_; }

 private:
  static constexpr std::string_view kMailbox{"\x06nobody\x07invalid\0", 16};
  static constexpr size_t kSize = dns::kRecordHeadSize + 2 + kMailbox.size() + 20;
  std::array<uint8_t, kSize> bytes_;
};

}  // namespace idetcd::resolve
