// The cluster's zone for other servers: its SOA and NS, and what the names in it are answered with: addresses, TXT of the
// members, their addresses together, and SRV of their services. Names outside of the zone are left out. Any thread, but
// copyOf() and changesSince() inside a ReadSection of the store's EpochDomain.
#pragma once

#include <deque>

#include "records/record_store.h"
#include "zones/zone_journal.h"

namespace idetcd::directive {

class ClusterCopies final : public zones::PublishedZones {
 public:
  explicit ClusterCopies(const records::RecordStore& store) : store_(store) {}

  // Has all that its serial stands for, and maybe what comes after: whoever has that comes again for the next serial.
  Found copyOf(std::span<const uint8_t> name) const override;
  Found headOf(std::span<const uint8_t> name) const override;
  uint64_t version() const override;
  std::vector<Serial> serials() const override;
  // Of snapshots that somebody has asked for. Only what this node has given the client itself is changed: other nodes' snapshots
  // of the same serial may have other parts of what comes after.
  std::unique_ptr<zones::ZoneCopy> changesSince(std::span<const uint8_t> name, uint32_t serial,
                                                const IpAddress& client) const override;
  void noteGiven(std::span<const uint8_t> name, uint32_t serial, const IpAddress& client) const override;

  class Snapshot;

 private:
  static constexpr size_t kMostGiven = 1024;

  bool isHere(std::span<const uint8_t> name) const;
  bool isKnown() const { return !isIncomplete(store_.freshness()); }

  // REQUIRES: mutex_ is held.
  void renew() const;

  const records::RecordStore& store_;
  mutable std::mutex mutex_;                        // guards what follows
  mutable std::shared_ptr<const Snapshot> newest_;  // for all who ask for its serial
  mutable zones::ZoneJournal journal_;              // of those before it
  mutable std::deque<std::pair<IpAddress, uint32_t>> given_;  // to clients: kMostGiven serials at most, the last one the newest
};

}  // namespace idetcd::directive
