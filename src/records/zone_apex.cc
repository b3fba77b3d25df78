#include "records/zone_apex.h"

namespace idetcd::records {

using dns::kQuestionPointer;
using dns::put16;
using dns::put32;
using dns::putBytes;
using dns::putRecordHead;

namespace {

// In octal: a hexadecimal escape would swallow the 'd' of "dns".
constexpr std::string_view kNameServer = "\2ns\3dns";
constexpr std::string_view kMailbox = "\12hostmaster";
static_assert(kNameServer.size() == 7 && kMailbox.size() == 11);

// Refresh, retry and expire speak to secondaries, which this zone has none of: every server reads the same etcd.
constexpr uint32_t kRefreshSeconds = 7200;
constexpr uint32_t kRetrySeconds = 1800;
constexpr uint32_t kExpireSeconds = 86400;

}  // namespace

ZoneApex::ZoneApex(const dns::Name& zone, uint32_t ttl_seconds) : name_server_(zone) {
  const bool room = zone.size() + kMailbox.size() <= dns::kMaxNameLength;
  const std::string_view name_server = room ? kNameServer : std::string_view();
  const std::string_view mailbox = room ? kMailbox : std::string_view();
  if (room) {
    std::array<uint8_t, dns::kMaxNameLength> wire;
    uint8_t* end = putBytes(wire.data(), kNameServer);
    end = putBytes(end, zone.wire());
    name_server_ = dns::Name::fromWire({wire.data(), end});
  }

  uint8_t* const soa = soa_.wire.data();
  uint8_t* p = putRecordHead(soa, kQuestionPointer, dns::RrType::kSoa, ttl_seconds,
                             name_server.size() + 2 + mailbox.size() + 2 + 20);
  p = putBytes(p, name_server);
  mname_pointer_ = static_cast<uint8_t>(p - soa);
  p = put16(p, kQuestionPointer);
  p = putBytes(p, mailbox);
  rname_pointer_ = static_cast<uint8_t>(p - soa);
  p = put16(p, kQuestionPointer);
  p = put32(p, 0);  // the serial
  p = put32(p, kRefreshSeconds);
  p = put32(p, kRetrySeconds);
  p = put32(p, kExpireSeconds);
  p = put32(p, ttl_seconds);  // of negative answers (RFC 2308 §4)
  soa_.size = static_cast<uint8_t>(p - soa);

  p = putRecordHead(ns_.data(), kQuestionPointer, dns::RrType::kNs, ttl_seconds, name_server.size() + 2);
  p = putBytes(p, name_server);
  p = put16(p, kQuestionPointer);
  ns_size_ = static_cast<uint8_t>(p - ns_.data());
}

}  // namespace idetcd::records
