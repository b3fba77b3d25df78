// The order in which the servers of one `forward` are asked, by `policy` and past answers. Loop thread only.
//
//   random       by chance, the faster the more often
//   round_robin  in turn, the faster the more often
//   sequential   in the order of the TOs
//
// Servers within 20 ms are equals: twice as slow beyond that is asked a quarter as often. Failing servers come last
// until they are due again. Servers that are down are included: the caller skips them.
#pragma once

#include "resolver/upstream_set.h"

namespace idetcd::resolver {

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

}  // namespace idetcd::resolver
