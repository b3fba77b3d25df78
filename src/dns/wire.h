// The layout of the DNS wire format and unaligned big-endian access to it. Any thread.
//
//   0                   1                   2                   3
//   +---------+---------+---------+---------+   offset 0  ID
//   |        ID         |      flags        |          2  QR opcode AA TC RD | RA Z AD CD rcode
//   +---------+---------+---------+---------+          4  QDCOUNT
//   |      QDCOUNT      |      ANCOUNT      |          6  ANCOUNT
//   +---------+---------+---------+---------+          8  NSCOUNT
//   |      NSCOUNT      |      ARCOUNT      |         10  ARCOUNT
//   +---------+---------+---------+---------+         12  question: QNAME QTYPE QCLASS
#pragma once

#include <bit>

#include "dns/types.h"

namespace idetcd::dns {

inline constexpr size_t kHeaderSize = 12;
inline constexpr size_t kMaxMessageSize = 65535;
inline constexpr size_t kLengthPrefix = 2;  // in front of a message over a stream: its size (RFC 1035 §4.2.2)
inline constexpr size_t kMinUdpPayload = 512;       // RFC 1035 §4.2.1, RFC 6891 §6.2.3
inline constexpr size_t kDefaultUdpPayload = 1232;  // fits one IPv6 packet on any path (DNS flag day 2020)
inline constexpr size_t kOptSize = 11;              // an OPT record without options

enum Flag : uint16_t {
  kFlagQr = 0x8000,
  kOpcodeMask = 0x7800,
  kFlagAa = 0x0400,
  kFlagTc = 0x0200,
  kFlagRd = 0x0100,
  kFlagRa = 0x0080,
  kFlagAd = 0x0020,
  kFlagCd = 0x0010,
  kRcodeMask = 0x000f,
};

inline uint16_t load16(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof(v));
  return std::endian::native == std::endian::little ? __builtin_bswap16(v) : v;
}
inline uint32_t load32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof(v));
  return std::endian::native == std::endian::little ? __builtin_bswap32(v) : v;
}
inline uint64_t load64(const uint8_t* p) {
  uint64_t v;
  std::memcpy(&v, p, sizeof(v));
  return std::endian::native == std::endian::little ? __builtin_bswap64(v) : v;
}
inline void store16(uint8_t* p, uint16_t v) {
  if constexpr (std::endian::native == std::endian::little) v = __builtin_bswap16(v);
  std::memcpy(p, &v, sizeof(v));
}
inline void store32(uint8_t* p, uint32_t v) {
  if constexpr (std::endian::native == std::endian::little) v = __builtin_bswap32(v);
  std::memcpy(p, &v, sizeof(v));
}
inline void store64(uint8_t* p, uint64_t v) {
  if constexpr (std::endian::native == std::endian::little) v = __builtin_bswap64(v);
  std::memcpy(p, &v, sizeof(v));
}

}  // namespace idetcd::dns
