// The numbers of the DNS wire format and unaligned big-endian access to it. Any thread.
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
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace idetcd::dns {

inline constexpr size_t kHeaderSize = 12;
inline constexpr size_t kMaxMessageSize = 65535;
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

enum class Opcode : uint8_t { kQuery = 0, kIQuery = 1, kStatus = 2, kNotify = 4, kUpdate = 5 };

// The low four bits go into the header, the rest into OPT (RFC 6891 §6.1.3).
enum class Rcode : uint16_t {
  kNoError = 0,
  kFormErr = 1,
  kServFail = 2,
  kNxDomain = 3,
  kNotImp = 4,
  kRefused = 5,
  kNotAuth = 9,
  kBadVers = 16,
};

enum class RrType : uint16_t {
  kA = 1,
  kNs = 2,
  kCname = 5,
  kSoa = 6,
  kPtr = 12,
  kHinfo = 13,
  kMx = 15,
  kTxt = 16,
  kAaaa = 28,
  kSrv = 33,
  kOpt = 41,
  kDs = 43,
  kTkey = 249,
  kTsig = 250,
  kIxfr = 251,
  kAxfr = 252,
  kMailB = 253,
  kMailA = 254,
  kAny = 255,
};

enum class RrClass : uint16_t { kIn = 1, kCh = 3, kHs = 4, kNone = 254, kAny = 255 };

// Extended DNS Error codes (RFC 8914 §4).
enum class EdeCode : uint16_t {
  kStaleAnswer = 3,
  kNotReady = 14,
  kBlocked = 15,
  kFiltered = 17,
  kStaleNxdomainAnswer = 19,
  kNotAuthoritative = 20,
  kNoReachableAuthority = 22,
  kNetworkError = 23,
  kSynthesized = 29,
};

enum class EdnsOption : uint16_t { kNsid = 3, kCookie = 10, kPadding = 12, kEde = 15 };

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
template <typename E>
constexpr uint16_t code(E value) {
  return static_cast<uint16_t>(value);
}

}  // namespace idetcd::dns
