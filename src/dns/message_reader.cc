#include "dns/message_reader.h"

namespace idetcd::dns {

namespace {

constexpr size_t kPointerOffsetMask = 0x3fff;

// Sixteen bytes at a time, where there are as many. REQUIRES: room for as many more at `to`.
inline void copyLabels(std::span<const uint8_t> message, size_t pos, size_t size, uint8_t* to) {
  const uint8_t* from = &message[pos];
  if (message.size() - pos < size + kReadSlack) {
    std::memcpy(to, from, size);
    return;
  }
  for (size_t i = 0; i < size; i += kReadSlack) std::memcpy(to + i, from + i, kReadSlack);
}

// `steps`: how many labels and jumps that took.
size_t expand(std::span<const uint8_t> message, size_t pos, ExpandedName& name, size_t& steps) {
  size_t end = 0;        // behind the name in the message, once known
  size_t barrier = pos;  // a pointer must lead to before it
  size_t size = 0;
  for (size_t jumps = 0; jumps <= kMaxJumps; ++jumps) {
    ++steps;
    const size_t limit = std::min(message.size(), pos + kMaxNameLength - size);
    const LabelsEnd labels = findLabelsEnd(message.data(), limit, pos, steps);
    if (labels.byte != 0 && labels.byte < kPointerLabel) return 0;
    copyLabels(message, pos, labels.pos - pos + 1, &name.wire[size]);
    size += labels.pos - pos;
    if (labels.byte == 0) {
      name.size = static_cast<uint8_t>(size + 1);
      return end != 0 ? end : labels.pos + 1;
    }
    if (message.size() - labels.pos < 2) return 0;
    const size_t target = load16(&message[labels.pos]) & kPointerOffsetMask;
    if (target < kHeaderSize || target >= barrier) return 0;
    if (end == 0) end = labels.pos + 2;
    barrier = pos = target;
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

size_t pointerTarget(std::span<const uint8_t> message, size_t pos) {
  if (message.size() - pos < 2 || message[pos] < kPointerLabel) return 0;
  return load16(&message[pos]) & kPointerOffsetMask;
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

bool sameName(std::span<const uint8_t> a, std::span<const uint8_t> b, NameWork& work) {
  if (a.size() != b.size()) {
    work.spend(1);
    return false;
  }
  work.spend(1 + a.size() / 16);
  return sameName(a, b);
}

bool isWithin(std::span<const uint8_t> name, std::span<const uint8_t> zone, NameWork& work) {
  if (name.size() < zone.size()) return false;
  const size_t below = name.size() - zone.size();
  size_t pos = 0;
  size_t labels = 1;
  for (; pos < below; pos += name[pos] + 1u) ++labels;
  work.spend(labels);
  return pos == below && sameName(name.subspan(pos), zone, work);
}

size_t matchQuestion(std::span<const uint8_t> message, const Query& query) {
  if (HeaderView(message.data()).questions() != 1) return 0;
  const size_t end = skipName(message.data(), message.size(), kHeaderSize);
  if (end == 0 || message.size() - end < 4) return 0;
  if (!sameName(message.subspan(kHeaderSize, end - kHeaderSize), query.name())) return 0;
  return load16(&message[end]) == query.qtype && load16(&message[end + 2]) == query.qclass ? end + 4 : 0;
}

}  // namespace idetcd::dns
