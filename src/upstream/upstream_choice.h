// In which order the servers of one `forward` are asked: what its `policy` means, given how they have answered so far.
// Loop thread only.
//
//   random       by chance, the faster the more often
//   round_robin  in turn, the faster the more often
//   sequential   in the order of the TOs
//
// Servers within 20 ms of each other are equals: twice as slow beyond that is asked a quarter as often. Those that are
// known to fail come last, until they are due to be tried again. A server that is down is in the order too: the caller
// skips it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "upstream/upstream_set.h"

namespace idetcd::upstream {

class UpstreamChoice {
 public:
  // Indices into the servers, each once.
  using Order = std::array<uint8_t, Forwarder::kMaxTargets>;

  explicit UpstreamChoice(ForwardContext& context) : context_(context) {}

  Order next(const std::shared_ptr<const UpstreamServers>& servers, BootClock::time_point now);

 private:
  // Servers as they stand now: those that are well, then the others.
  struct Field {
    Order order{};
    std::array<uint16_t, Forwarder::kMaxTargets> weights{};  // by index
    uint8_t count = 0;
    uint8_t well = 0;
  };

  Field survey(const UpstreamServers& servers, BootClock::time_point now) const;
  void shuffle(Field& field, uint8_t first, uint8_t end);
  void takeTurn(Field& field, const std::shared_ptr<const UpstreamServers>& servers);

  ForwardContext& context_;
  // round_robin: what each server of this set has to its credit.
  std::array<int32_t, Forwarder::kMaxTargets> credits_{};
  std::weak_ptr<const UpstreamServers> credited_;
};

}  // namespace idetcd::upstream
