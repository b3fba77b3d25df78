// A name in a message as RFC 1035 §4.1.4 has it, read label by label, said once more in the simplest way, apart from the
// code under test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "dns/message_reader.h"

namespace idetcd::fuzz {

enum class NameFault : uint8_t {
  kNone,
  kCutShort,
  kLabelType,     // neither a label nor a pointer
  kIntoHeader,    // a pointer
  kNotBackwards,  // a pointer to where the name, or the last jump, began, or behind it
  kTooManyPointers,
  kTooLong,
};

struct PlainName {
  NameFault fault = NameFault::kNone;
  std::string wire;
  size_t end = 0;  // behind the name, where it began
};

inline PlainName readPlainly(std::span<const uint8_t> message, size_t pos) {
  PlainName name;
  const auto fails = [&name](NameFault fault) {
    name.fault = fault;
    return name;
  };
  size_t barrier = pos;
  size_t jumps = 0;
  for (;;) {
    if (pos >= message.size()) return fails(NameFault::kCutShort);
    const size_t length = message[pos];
    if (length >= 0xc0) {
      if (pos + 1 >= message.size()) return fails(NameFault::kCutShort);
      if (++jumps > dns::kMaxJumps) return fails(NameFault::kTooManyPointers);
      const size_t target = (length & 0x3f) << 8 | message[pos + 1];
      if (target < dns::kHeaderSize) return fails(NameFault::kIntoHeader);
      if (target >= barrier) return fails(NameFault::kNotBackwards);
      if (name.end == 0) name.end = pos + 2;
      barrier = pos = target;
      continue;
    }
    if (length > dns::kMaxLabelLength) return fails(NameFault::kLabelType);
    if (pos + 1 + length > message.size()) return fails(NameFault::kCutShort);
    name.wire.append(reinterpret_cast<const char*>(&message[pos]), length + 1);
    if (name.wire.size() > dns::kMaxNameLength) return fails(NameFault::kTooLong);
    pos += length + 1;
    if (length > 0) continue;
    if (name.end == 0) name.end = pos;
    return name;
  }
}

}  // namespace idetcd::fuzz
