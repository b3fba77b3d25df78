#include "resolver/candidates.h"

namespace idetcd::resolver {

std::optional<uint8_t> Candidates::next() const {
  for (size_t i = 0; i < servers_->size(); ++i) {
    if (mayBeAsked(order_[i]) && !at(order_[i]).isDown()) return order_[i];
  }
  return std::nullopt;
}

std::optional<uint8_t> Candidates::nextOfDown() const {
  std::array<uint8_t, Forwarder::kMaxTargets> usable;
  uint32_t count = 0;
  for (size_t i = 0; i < servers_->size(); ++i) {
    const uint8_t index = order_[i];
    if (mayBeAsked(index)) usable[count++] = index;
    if (tried_[index] && !failed_[index] && !at(index).isDown()) return std::nullopt;
  }
  return count > 0 ? std::optional(usable[context_.random.below(count)]) : std::nullopt;
}

std::optional<uint8_t> Candidates::nextEqual() const {
  if (context_.options.policy == Forwarder::Policy::kSequential) return std::nullopt;
  const auto now = BootClock::now();
  for (size_t i = 0; i < servers_->size(); ++i) {
    const UpstreamServer& server = at(order_[i]);
    if (mayBeAsked(order_[i]) && !server.isSuspect() && !server.isAvoided(now) && !server.isStreamOnly()) {
      return order_[i];
    }
  }
  return std::nullopt;
}

void Candidates::noteAnswered(uint8_t index, BootClock::time_point now) {
  for (uint8_t i = 0; rejected_.any() && i < servers_->size(); ++i) {
    if (rejected_[i] && i != index) at(i).noteRejected(now);
  }
}

}  // namespace idetcd::resolver
