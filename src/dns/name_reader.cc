#include "dns/name_reader.h"

#include <cstring>

#include "dns/wire.h"

namespace idetcd::dns {

namespace {

// A label with its length byte. Most are short: sixteen bytes at once, where there are as many, take no loop.
inline void copyLabel(std::span<const uint8_t> message, size_t pos, size_t size, uint8_t* to) {
  if (size <= kReadSlack && message.size() - pos >= kReadSlack) {
    std::memcpy(to, &message[pos], kReadSlack);
  } else {
    std::memcpy(to, &message[pos], size);
  }
}

// `steps`: how many labels and jumps that took.
size_t expand(std::span<const uint8_t> message, size_t pos, ExpandedName& name, size_t& steps) {
  size_t end = 0;        // behind the name in the message, once known
  size_t barrier = pos;  // a pointer must lead to before it
  size_t size = 0;
  size_t jumps = 0;
  while (pos < message.size()) {
    ++steps;
    const uint8_t length = message[pos];
    if (length >= 0xc0) {
      if (message.size() - pos < 2 || ++jumps > kMaxJumps) return 0;
      const size_t target = load16(&message[pos]) & 0x3fffu;
      if (target < kHeaderSize || target >= barrier) return 0;
      if (end == 0) end = pos + 2;
      barrier = pos = target;
      continue;
    }
    if (length > kMaxLabelLength || message.size() - pos <= length || size + length + 1 > kMaxNameLength) return 0;
    copyLabel(message, pos, length + size_t{1}, &name.wire[size]);
    size += length + 1u;
    pos += length + 1u;
    if (length == 0) {
      name.size = static_cast<uint8_t>(size);
      return end != 0 ? end : pos;
    }
  }
  return 0;
}

// Sixteen bytes with ASCII upper case folded.
auto foldedBlock(const uint8_t* from) {
  std::array<uint8_t, 16> block;
  foldCase(from, block.size(), block.data());
  return block;
}

}  // namespace

size_t expandName(std::span<const uint8_t> message, size_t pos, ExpandedName& name, NameWork& work) {
  size_t steps = 0;
  const size_t end = expand(message, pos, name, steps);
  return work.spend(steps) ? end : 0;
}

size_t expandName(std::span<const uint8_t> message, size_t pos, ExpandedName& name) {
  size_t steps = 0;
  return expand(message, pos, name, steps);
}

bool sameName(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  if (a.size() != b.size()) return false;
  size_t i = 0;
  for (; a.size() - i >= 16; i += 16) {
    if (foldedBlock(&a[i]) != foldedBlock(&b[i])) return false;
  }
  for (; i < a.size(); ++i) {
    if (toLower(a[i]) != toLower(b[i])) return false;
  }
  return true;
}

}  // namespace idetcd::dns
