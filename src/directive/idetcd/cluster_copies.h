// The cluster's zone for other servers: its SOA and NS, and what the names in it are answered with: addresses, TXT of the
// members, their addresses together, and SRV of their services. Names outside of the zone are left out. Any thread, but
// copyOf() inside a ReadSection of the store's EpochDomain.
#pragma once

#include "records/record_store.h"
#include "zones/zone_copy.h"

namespace idetcd::directive {

class ClusterCopies final : public zones::PublishedZones {
 public:
  explicit ClusterCopies(const records::RecordStore& store) : store_(store) {}

  // Has all that its serial stands for, and maybe what comes after: whoever has that comes again for the next serial.
  Found copyOf(std::span<const uint8_t> name) const override;
  Found headOf(std::span<const uint8_t> name) const override;
  uint64_t version() const override;
  std::vector<Serial> serials() const override;

  class Snapshot;

 private:
  bool isHere(std::span<const uint8_t> name) const;
  bool isKnown() const { return !isIncomplete(store_.freshness()); }

  const records::RecordStore& store_;
  mutable std::mutex mutex_;                        // guards newest_
  mutable std::shared_ptr<const Snapshot> newest_;  // for all who ask for its serial
};

}  // namespace idetcd::directive
