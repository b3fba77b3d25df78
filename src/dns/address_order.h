// The order of the addresses of an answer (`loadbalance`). Any thread.
#pragma once

#include "base/ip_network.h"

namespace idetcd::dns {

struct AddressOrder {
  uint32_t rotation = 0;  // the records begin at this one, modulo their number
  // Those within the first network come first, then the second's, and so on; each group keeps its order.
  std::span<const IpNetwork> preferred{};

  bool isGiven() const { return rotation > 0 || !preferred.empty(); }
};

// Puts `records`, A or AAAA records of `record_size` bytes each, into that order, in place. Allocates only where
// networks are preferred. REQUIRES: each has a compression pointer for its owner; at least one.
void orderAddresses(std::span<uint8_t> records, size_t record_size, const AddressOrder& order);

}  // namespace idetcd::dns
