#include "resolver/upstream_choice.h"

namespace idetcd::resolver {

using Policy = Forwarder::Policy;

namespace {

constexpr RoundTrip::Time kNoDifference = std::chrono::milliseconds(20);
constexpr int64_t kScale = 16;

// Falls with the square of the time: with one server at 20 ms and one at 200 ms, a question takes 22 ms on average.
uint16_t weightOf(RoundTrip::Time expected) {
  const int64_t speed = std::max<int64_t>(kScale * kNoDifference / std::max(expected, kNoDifference), 1);
  return static_cast<uint16_t>(speed * speed);
}

}  // namespace

UpstreamChoice::Order UpstreamChoice::next(const std::shared_ptr<const UpstreamServers>& servers,
                                           BootClock::time_point now) {
  Field field = survey(*servers, now);
  if (context_.options.policy == Policy::kRandom) {
    shuffle(field, 0, field.well);
    shuffle(field, field.well, field.count);
  } else if (context_.options.policy == Policy::kRoundRobin) {
    takeTurn(field, servers);
  }
  return field.order;
}

UpstreamChoice::Field UpstreamChoice::survey(const UpstreamServers& servers, BootClock::time_point now) const {
  const bool by_speed = context_.options.policy != Policy::kSequential;
  Field field;
  field.count = static_cast<uint8_t>(servers.size());
  Order unwell;
  uint8_t unwell_count = 0;
  for (uint8_t i = 0; i < field.count; ++i) {
    const UpstreamServer& server = *servers[i];
    // One lost datagram is a reason to ask an equal, but not to leave the server that was named first.
    const bool is_well = !server.isAvoided(now) && !(by_speed && server.isSuspect());
    (is_well ? field.order[field.well++] : unwell[unwell_count++]) = i;
    if (by_speed) field.weights[i] = weightOf(server.roundTrip().expected(now));
  }
  std::copy_n(unwell.begin(), unwell_count, field.order.begin() + field.well);
  return field;
}

// [first, end) of the order, by weighted chance.
void UpstreamChoice::shuffle(Field& field, uint8_t first, uint8_t end) {
  uint32_t total = 0;
  for (uint8_t i = first; i < end; ++i) total += field.weights[field.order[i]];
  for (; first + 1 < end; ++first) {
    uint32_t ticket = context_.random.below(total);
    uint8_t chosen = first;
    while (ticket >= field.weights[field.order[chosen]]) ticket -= field.weights[field.order[chosen++]];
    std::swap(field.order[first], field.order[chosen]);
    total -= field.weights[field.order[first]];
  }
}

// Each earns its weight, and the one that is asked pays for all: with equal weights that is one after the other. The
// others follow in their order.
void UpstreamChoice::takeTurn(Field& field, const std::shared_ptr<const UpstreamServers>& servers) {
  if (credited_.lock() != servers) {
    credited_ = servers;
    credits_ = {};
  }
  const uint8_t eligible = field.well > 0 ? field.well : field.count;
  int32_t total = 0;
  uint8_t chosen = 0;
  for (uint8_t i = 0; i < eligible; ++i) {
    const uint8_t index = field.order[i];
    credits_[index] += field.weights[index];
    total += field.weights[index];
    if (credits_[index] > credits_[field.order[chosen]]) chosen = i;
  }
  credits_[field.order[chosen]] -= total;
  std::rotate(field.order.begin(), field.order.begin() + chosen, field.order.begin() + eligible);
}

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
