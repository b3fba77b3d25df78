// Names in messages from elsewhere, where compression pointers occur (RFC 1035 §4.1.4). No I/O, no allocation; any
// thread.
#pragma once

#include "dns/name.h"
#include "dns/query.h"

namespace idetcd::dns {

// How much work the names of one message may make: a label, a jump, or a comparison of two names is a step or a few.
// What a sender packs into 64 KB else takes a hundred milliseconds. One thread.
class NameWork {
 public:
  explicit NameWork(size_t steps) : left_(steps) {}
  // False from the first time on that there are not as many left.
  bool spend(size_t steps) {
    left_ = steps <= left_ ? left_ - steps : 0;
    return left_ > 0;
  }
  bool isSpent() const { return left_ == 0; }

 private:
  size_t left_;
};

// An expanded name, in the case in which it came.
struct ExpandedName {
  std::array<uint8_t, kMaxNameLength + 1 + kReadSlack> wire;  // so that it can be folded sixteen bytes at a time
  uint8_t size = 0;
  std::span<const uint8_t> span() const { return {wire.data(), size}; }
};

inline constexpr size_t kMaxJumps = 127;  // of one name: as many as it can have labels

// Expands the name at `pos`. Returns the offset behind it in the message, or 0 if it is none: cut short, longer than
// 255 bytes, an unknown label type, more than kMaxJumps pointers, or a pointer that does not lead backwards to behind
// the header (every pointer must lead to before the place where the name, or the last jump, began); or if `work` is
// spent.
size_t expandName(std::span<const uint8_t> message, size_t pos, ExpandedName& name, NameWork& work);
size_t expandName(std::span<const uint8_t> message, size_t pos, ExpandedName& name);

// Where the pointer leads that stands at `pos` in place of a name; 0: there is none. What it leads to is not looked at.
// Records in a row whose owners lead to one place have one owner.
size_t pointerTarget(std::span<const uint8_t> message, size_t pos);

// Names in wire form, without pointers. Byte equality but for ASCII case.
bool sameName(std::span<const uint8_t> a, std::span<const uint8_t> b);
bool sameName(std::span<const uint8_t> a, std::span<const uint8_t> b, NameWork& work);
// Whether `name` is `zone` or a name below it.
bool isWithin(std::span<const uint8_t> name, std::span<const uint8_t> zone, NameWork& work);

}  // namespace idetcd::dns
