// Writing a record into a message. Any thread; no allocation, no checks: the caller knows that there is room.
//
//   +--------------+------+-------+-------+----------+-------
//   | C0 0C  owner | type | class |  TTL  | RDLENGTH | RDATA
//   +--------------+------+-------+-------+----------+-------
//   0              2      4       6       10         12
//
// The owner is a pointer to a name that stands in the message already: of answers, mostly the question's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "dns/wire.h"

namespace idetcd::dns {

inline constexpr size_t kRecordHeadSize = 12;

// A compression pointer to `offset` (RFC 1035 §4.1.4). REQUIRES: offset < 0x4000.
constexpr uint16_t pointerTo(size_t offset) { return static_cast<uint16_t>(0xc000 | offset); }
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
inline uint8_t* putOctets(uint8_t* to, std::span<const uint8_t> octets) {
  return std::copy(octets.begin(), octets.end(), to);
}
inline uint8_t* putOctets(uint8_t* to, std::string_view octets) { return std::copy(octets.begin(), octets.end(), to); }

// All that stands in front of the RDATA.
inline uint8_t* putRecordHead(uint8_t* to, uint16_t owner, RrType type, uint32_t ttl_seconds, size_t rdata_size,
                              RrClass rr_class = RrClass::kIn) {
  to = put16(to, owner);
  to = put16(to, code(type));
  to = put16(to, code(rr_class));
  to = put32(to, ttl_seconds);
  return put16(to, static_cast<uint16_t>(rdata_size));
}

}  // namespace idetcd::dns
