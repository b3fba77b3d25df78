#include "records/zone_apex.h"

#include <algorithm>
#include <string_view>

namespace idetcd::records {

namespace {

// In octal: a hexadecimal escape would swallow the 'd' of "dns".
constexpr std::string_view kNameServer = "\2ns\3dns";
constexpr std::string_view kMailbox = "\12hostmaster";
static_assert(kNameServer.size() == 7 && kMailbox.size() == 11);
constexpr uint16_t kQuestionPointer = 0xc00c;

// Refresh, retry and expire speak to secondaries, which this zone has none of: every server reads the same etcd.
constexpr uint32_t kRefreshSeconds = 7200;
constexpr uint32_t kRetrySeconds = 1800;
constexpr uint32_t kExpireSeconds = 86400;

uint8_t* put(uint8_t* p, std::string_view octets) { return std::copy(octets.begin(), octets.end(), p); }
uint8_t* put16(uint8_t* p, uint16_t value) {
  dns::store16(p, value);
  return p + 2;
}
uint8_t* put32(uint8_t* p, uint32_t value) {
  dns::store32(p, value);
  return p + 4;
}

uint8_t* putRecordHead(uint8_t* p, dns::RrType type, uint32_t ttl_seconds, size_t rdata_size) {
  p = put16(p, kQuestionPointer);
  p = put16(p, dns::code(type));
  p = put16(p, dns::code(dns::RrClass::kIn));
  p = put32(p, ttl_seconds);
  return put16(p, static_cast<uint16_t>(rdata_size));
}

}  // namespace

ZoneApex::ZoneApex(const dns::Name& zone, uint32_t ttl_seconds) : name_server_(zone) {
  const bool room = zone.size() + kMailbox.size() <= dns::kMaxNameLength;
  const std::string_view name_server = room ? kNameServer : std::string_view();
  const std::string_view mailbox = room ? kMailbox : std::string_view();
  if (room) {
    std::array<uint8_t, dns::kMaxNameLength> wire;
    uint8_t* end = put(wire.data(), kNameServer);
    end = std::copy(zone.wire().begin(), zone.wire().end(), end);
    name_server_ = dns::Name::fromWire({wire.data(), end});
  }

  uint8_t* const soa = soa_.wire.data();
  uint8_t* p = putRecordHead(soa, dns::RrType::kSoa, ttl_seconds, name_server.size() + 2 + mailbox.size() + 2 + 20);
  p = put(p, name_server);
  mname_pointer_ = static_cast<uint8_t>(p - soa);
  p = put16(p, kQuestionPointer);
  p = put(p, mailbox);
  rname_pointer_ = static_cast<uint8_t>(p - soa);
  p = put16(p, kQuestionPointer);
  p = put32(p, 0);  // the serial
  p = put32(p, kRefreshSeconds);
  p = put32(p, kRetrySeconds);
  p = put32(p, kExpireSeconds);
  p = put32(p, ttl_seconds);  // of negative answers (RFC 2308 §4)
  soa_.size = static_cast<uint8_t>(p - soa);

  p = putRecordHead(ns_.data(), dns::RrType::kNs, ttl_seconds, name_server.size() + 2);
  p = put(p, name_server);
  p = put16(p, kQuestionPointer);
  ns_size_ = static_cast<uint8_t>(p - ns_.data());
}

}  // namespace idetcd::records
