// The names that every bench asks for, and their addresses: worker1.tf.local. to workerN.tf.local.; 10.x.y.z and
// fd00::x:y:z, where x.y.z is the number. So an answer can be checked without a table of what is expected.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/ip_address.h"

namespace idetcd::bench {

inline constexpr uint32_t kMaxNames = (1u << 24) - 1;
inline constexpr char kZone[] = "tf.local.";
inline constexpr uint8_t kZoneWire[] = {2, 't', 'f', 5, 'l', 'o', 'c', 'a', 'l', 0};

inline std::string numberedName(uint32_t number) { return "worker" + std::to_string(number) + '.' + kZone; }

// Writes `<label>.tf.local.` in wire form; returns its size. REQUIRES: room for 1 + size + sizeof(kZoneWire) bytes.
inline size_t writeName(const char* label, size_t size, uint8_t* to) {
  to[0] = static_cast<uint8_t>(size);
  std::memcpy(to + 1, label, size);
  std::memcpy(to + 1 + size, kZoneWire, sizeof(kZoneWire));
  return 1 + size + sizeof(kZoneWire);
}

inline size_t writeNumberedName(uint32_t number, uint8_t* to) {
  char label[16] = "worker";
  const char* end = std::to_chars(label + 6, label + sizeof(label), number).ptr;
  return writeName(label, static_cast<size_t>(end - label), to);
}

inline std::array<uint8_t, 4> addressV4(uint32_t number) {
  return {10, static_cast<uint8_t>(number >> 16), static_cast<uint8_t>(number >> 8), static_cast<uint8_t>(number)};
}

inline std::array<uint8_t, 16> addressV6(uint32_t number) {
  std::array<uint8_t, 16> address{};
  address[0] = 0xfd;
  const auto tail = addressV4(number);
  std::memcpy(address.data() + 13, tail.data() + 1, 3);
  return address;
}

}  // namespace idetcd::bench
