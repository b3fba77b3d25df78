#include "load/lane.h"

#include <algorithm>

namespace idetcd::bench {

namespace {
constexpr int kPollTimeoutMs = 20;  // for answers, before what is lost is looked for
}

Lane::Lane(const Options& options) : source_(options.source) {
  const auto make = options.tcp ? makeTcpClient : makeUdpClient;
  for (size_t i = 0; i < options.sockets; ++i) {
    clients_.push_back(make(options.target, options.window, source_, statistics_));
    readable_.push_back({.fd = clients_.back()->fd(), .events = POLLIN, .revents = 0});
  }
}

bool Lane::turn(uint64_t& time, bool send) {
  bool any = false;
  for (const auto& client : clients_) {
    send ? client->send(time) : client->flush();
    any |= client->receive(time);
  }
  return any;
}

uint64_t Lane::run(uint64_t end, uint64_t queries) {
  uint64_t time = now();
  uint64_t expired_at = time;
  while (time < end && (queries == 0 || statistics_.answered < queries)) {
    if (!turn(time, true)) {
      poll(readable_.data(), readable_.size(), kPollTimeoutMs);
      time = now();
    }
    if (time - expired_at < kLostAfter / 4) continue;
    for (const auto& client : clients_) client->window().expire(time);
    expired_at = time;
  }
  return time;
}

void Lane::drain() {
  const auto under_way = [this] {
    return std::any_of(clients_.begin(), clients_.end(),
                       [](const auto& client) { return client->window().outstanding() > 0; });
  };
  for (uint64_t time = now(); under_way();) {
    if (turn(time, false)) continue;
    poll(readable_.data(), readable_.size(), kPollTimeoutMs);
    time = now();
    for (const auto& client : clients_) client->window().expire(time);
  }
}

}  // namespace idetcd::bench
