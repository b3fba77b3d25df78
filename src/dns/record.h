// Writing the parts of a message: header and question, records, the options of EDNS. Any thread; no allocation, no
// checks: the caller knows that there is room.
//
//   +--------------+------+-------+-------+----------+-------
//   | C0 0C  owner | type | class |  TTL  | RDLENGTH | RDATA
//   +--------------+------+-------+-------+----------+-------
//   0              2      4       6       10         12
//
// The owner is a pointer to a name that stands in the message already: of answers, mostly the question's.
#pragma once

#include "dns/name.h"
#include "dns/wire.h"

namespace idetcd::dns {

inline constexpr size_t kRecordHeadSize = 12;
inline constexpr size_t kTtlOffset = 6;

// A compression pointer to `offset` (RFC 1035 §4.1.4). REQUIRES: offset < 0x4000.
constexpr uint16_t pointerTo(size_t offset) {
  assert(offset < 0x4000);
  return static_cast<uint16_t>(0xc000 | offset);
}
inline constexpr uint16_t kQuestionPointer = pointerTo(kHeaderSize);

// Each writes at `to` and returns the place behind what it wrote.
inline uint8_t* put16(uint8_t* to, uint16_t value) {
  store16(to, value);
  return to + 2;
}
inline uint8_t* put32(uint8_t* to, uint32_t value) {
  store32(to, value);
  return to + 4;
}
inline uint8_t* putBytes(uint8_t* to, std::span<const uint8_t> bytes) {
  return std::copy(bytes.begin(), bytes.end(), to);
}
inline uint8_t* putBytes(uint8_t* to, std::string_view bytes) { return std::copy(bytes.begin(), bytes.end(), to); }

// All that stands in front of the RDATA.
inline uint8_t* putRecordHead(uint8_t* to, uint16_t owner, RrType type, uint32_t ttl_seconds, size_t rdata_size,
                              RrClass rr_class = RrClass::kIn) {
  to = put16(to, owner);
  to = put16(to, code(type));
  to = put16(to, code(rr_class));
  to = put32(to, ttl_seconds);
  return put16(to, static_cast<uint16_t>(rdata_size));
}

// The header of a query with one question, ID 0 and these flags, and the question. Returns their size.
inline constexpr size_t kMaxQuestionSize = kHeaderSize + kMaxNameLength + 4;
inline size_t writeQuestion(uint8_t* message, uint16_t flags, std::span<const uint8_t> name, uint16_t qtype,
                            uint16_t qclass) {
  uint8_t* to = put16(put16(message, 0), flags);
  store64(to, uint64_t{1} << 48);
  to = putBytes(to + 8, name);
  return static_cast<size_t>(put16(put16(to, qtype), qclass) - message);
}

// An OPT record without options:  00 | 00 29 | udp payload | ext-rcode version | DO 0 | rdlength
inline void storeOpt(uint8_t* opt, uint8_t extended_rcode, bool dnssec_ok) {
  store16(opt, 0);
  opt[2] = code(RrType::kOpt);
  store64(opt + 3, uint64_t{kDefaultUdpPayload} << 48 | uint64_t{extended_rcode} << 40 |
                       (dnssec_ok ? uint64_t{0x8000} << 16 : 0));
}

inline constexpr size_t kOptionHeadSize = 4;  // code and length
// Head of an option of `size` bytes behind the options of `opt`, counted there. Returns where its data goes.
inline uint8_t* addOption(uint8_t* opt, EdnsOption option, size_t size) {
  const uint16_t before = load16(opt + kOptSize - 2);
  store16(opt + kOptSize - 2, static_cast<uint16_t>(before + kOptionHeadSize + size));
  return put16(put16(opt + kOptSize + before, code(option)), static_cast<uint16_t>(size));
}

// The SOA of a zone that no server runs: what denies names that this server knows for itself (RFC 6303 §3, and RFC 2308
// §3, by which a denial has one). Any thread.
//
// `@ SOA @ nobody.invalid. 1 3600 1200 604800 <ttl>`, @ being the name at `apex` of the message.
class SyntheticSoa {
 public:
  SyntheticSoa(size_t apex, uint32_t ttl_seconds) {
    const uint16_t owner = pointerTo(apex);
    uint8_t* p = putRecordHead(bytes_.data(), owner, RrType::kSoa, ttl_seconds, kSize - kRecordHeadSize);
    p = put16(p, owner);
    p = putBytes(p, kMailbox);
    for (const uint32_t number : {1u, 3600u, 1200u, 604800u, ttl_seconds}) p = put32(p, number);
  }
  std::span<const uint8_t> span() const { return bytes_; }

 private:
  static constexpr std::string_view kMailbox{"\x06nobody\x07invalid\0", 16};
  static constexpr size_t kSize = kRecordHeadSize + 2 + kMailbox.size() + 20;
  std::array<uint8_t, kSize> bytes_;
};

}  // namespace idetcd::dns
