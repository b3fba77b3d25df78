// Queries as bytes, and what an answer says.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dns/name.h"
#include "dns/wire.h"

namespace idetcd::server::test {

inline std::string query(uint16_t id, std::string_view name, uint16_t type = 1, bool edns = false) {
  std::string message(dns::kHeaderSize, '\0');
  message[0] = static_cast<char>(id >> 8);
  message[1] = static_cast<char>(id);
  message[5] = 1;
  message[11] = edns ? 1 : 0;
  const auto owner = dns::Name::parse(name).value();
  message.append(reinterpret_cast<const char*>(owner.data()), owner.size());
  message += {static_cast<char>(type >> 8), static_cast<char>(type), 0, 1};
  if (edns) message += std::string("\0\0\x29\x04\xd0\0\0\0\0\0\0", 11);
  return message;
}

inline std::string framed(const std::string& message) {
  return std::string{static_cast<char>(message.size() >> 8), static_cast<char>(message.size())} + message;
}

// REQUIRES: a whole header.
struct Answer {
  explicit Answer(std::string_view message) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(message.data());
    id = dns::load16(bytes);
    flags = dns::load16(bytes + 2);
    answers = dns::load16(bytes + 6);
    last_octet = bytes[message.size() - 1];
  }
  uint16_t rcode() const { return flags & dns::kRcodeMask; }
  uint16_t id = 0;
  uint16_t flags = 0;
  uint16_t answers = 0;
  uint8_t last_octet = 0;  // of an address, if the answer ends with one
};

}  // namespace idetcd::server::test
