#include "load/window.h"

#include <bit>
#include <ctime>

#include "dns/wire.h"
#include "load/answer_check.h"

namespace idetcd::bench {

uint64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * kSecond + static_cast<uint64_t>(t.tv_nsec);
}

Window::Window(size_t size, bool echo, QuerySource& source, Statistics& statistics)
    : echo_(echo),
      source_(source),
      statistics_(statistics),
      slot_bits_(static_cast<unsigned>(std::bit_width(size - 1))),
      slots_(size) {
  free_.reserve(size);
  for (size_t i = 0; i < size; ++i) free_.push_back(static_cast<uint16_t>(i));
}

std::span<uint8_t> Window::prepare(size_t ahead) {
  const uint16_t index = free_[free_.size() - 1 - ahead];
  Slot& slot = slots_[index];
  slot.size = static_cast<uint16_t>(source_.next(slot.packet.data(), slot.expectation));
  slot.id = static_cast<uint16_t>(((slot.id >> slot_bits_) + 1) << slot_bits_ | index);
  dns::store16(slot.packet.data(), slot.id);
  return {slot.packet.data(), slot.size};
}

void Window::sent(size_t count, uint64_t time) {
  for (size_t i = 0; i < count; ++i) {
    Slot& slot = slots_[free_[free_.size() - 1 - i]];
    slot.outstanding = true;
    slot.sent_at = time;
  }
  free_.resize(free_.size() - count);
}

void Window::take(std::span<const uint8_t> answer, uint64_t time) {
  const uint16_t id = answer.size() >= dns::kHeaderSize ? dns::load16(answer.data()) : 0;
  const size_t index = id & ((1u << slot_bits_) - 1);
  if (index >= slots_.size() || !slots_[index].outstanding || slots_[index].id != id) {
    ++statistics_.late;
    return;
  }
  const Slot& slot = slots_[index];
  const std::span<const uint8_t> query(slot.packet.data(), slot.size);
  const bool right = echo_ ? isEcho(query, answer) : isRightAnswer(query, slot.expectation, answer);
  ++statistics_.answered;
  if (!right) ++statistics_.wrong;
  statistics_.latency.add(time - slot.sent_at);
  release(index);
}

void Window::expire(uint64_t time) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].outstanding || time - slots_[i].sent_at < kLostAfter) continue;
    ++statistics_.lost;
    release(i);
  }
}

void Window::giveUpAll() { expire(UINT64_MAX); }

void Window::release(size_t index) {
  slots_[index].outstanding = false;
  free_.push_back(static_cast<uint16_t>(index));
}

}  // namespace idetcd::bench
