// In which networks addresses are held, for the names above reverse names: exact, in order, a skip list of the smallest
// networks that have a name (/24 of IPv4, /124 of IPv6), some 45 bytes for each. One writer, readers inside a ReadSection.
#pragma once

#include "base/hash.h"
#include "base/ip_address.h"
#include "dns/name.h"
#include "records/epoch.h"

namespace idetcd::records {

class HeldNetworks {
 public:
  HeldNetworks(EpochDomain& epochs, HashSeed seed) : epochs_(epochs), seed_(seed) {}
  // REQUIRES: no reader looks at this, and the writer is done.
  ~HeldNetworks();
  HeldNetworks(const HeldNetworks&) = delete;
  HeldNetworks& operator=(const HeldNetworks&) = delete;

  // Whether an address within `range` is held. REQUIRES: dns::addressesBelow() has made it.
  bool holdsWithin(const dns::AddressRange& range) const;

  // --- writer ---
  void add(const IpAddress& address);
  // REQUIRES: it was added, and not removed since.
  void remove(const IpAddress& address);

 private:
  static constexpr size_t kMaxHeight = 12;  // each level has a fourth of the one below: of 16 million networks one
  struct Network;
  using Link = std::atomic<Network*>;

  static Link* linksOf(Network* network);
  std::array<Link*, kMaxHeight> linksTo(const IpAddress& first) const;
  size_t heightOf(const IpAddress& first) const;
  static void free(void* owner, void* network);

  EpochDomain& epochs_;
  const HashSeed seed_;
  mutable std::array<Link, kMaxHeight> heads_{};
};

}  // namespace idetcd::records
