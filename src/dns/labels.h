// The one walk over the labels of a name in wire format (RFC 1035 §3.1, §4.1.4). All that reads names is built of it.
// No I/O, no allocation; any thread.
#pragma once

#include "dns/name.h"
#include "dns/wire.h"

namespace idetcd::dns {

// Where labels end: at the root label (0), at a compression pointer (0xc0 and more), or, neither, at another type of
// label or outside (`byte` is kNoLabel then, and `pos` is 0).
struct LabelsEnd {
  size_t pos;
  size_t byte;
};
inline constexpr size_t kNoLabel = 0x40;
inline constexpr size_t kPointerLabel = 0xc0;

// From `pos` over whole labels, which end before `limit`. Adds their number to `labels`.
[[gnu::always_inline]] inline LabelsEnd findLabelsEnd(const uint8_t* message, size_t limit, size_t pos,
                                                      size_t& labels) {
  while (pos < limit) {
    const size_t length = message[pos];
    if (length - 1 >= kMaxLabelLength) return {pos, length};  // (a wrapped 0, too)
    pos += length + 1;
    ++labels;
  }
  return {0, kNoLabel};
}

[[gnu::always_inline]] inline LabelsEnd findLabelsEnd(const uint8_t* message, size_t limit, size_t pos) {
  size_t labels = 0;
  return findLabelsEnd(message, limit, pos, labels);
}

// Offset behind the name at `pos` of a message of `size` bytes, or 0: cut short, longer than 255 bytes, or an unknown
// type of label. A pointer is checked, not followed: it must lead to before this name (into the name itself it would be
// a loop) and to behind the header, so there is none in a question.
[[gnu::always_inline]] inline size_t skipName(const uint8_t* message, size_t size, size_t pos) {
  const LabelsEnd end = findLabelsEnd(message, std::min(size, pos + kMaxNameLength), pos);
  if (end.byte == 0) return end.pos + 1;
  if (end.byte < kPointerLabel || size - end.pos < 2) return 0;
  const size_t target = load16(message + end.pos) & 0x3fffu;
  return target >= kHeaderSize && target < pos ? end.pos + 2 : 0;
}

// The bytes of the uncompressed name at the beginning of `wire`, or 0 if it is none.
inline size_t uncompressedNameSize(std::span<const uint8_t> wire) {
  const LabelsEnd end = findLabelsEnd(wire.data(), std::min(wire.size(), kMaxNameLength), 0);
  return end.byte == 0 ? end.pos + 1 : 0;
}

}  // namespace idetcd::dns
