// What has changed a zone from one serial to the next, for secondaries that have an earlier one (IXFR, RFC 1995). The oldest
// changes are forgotten when all of them together are larger than the zone, since then it costs less to send the zone.
// Immutable; any thread.
#pragma once

#include "base/hash.h"
#include "zones/packed_records.h"

namespace idetcd::zones {

class ZoneJournal {
 public:
  static constexpr size_t kMostSteps = 256;
  static constexpr size_t kLeastBytes = 4096;  // that may be kept, of the smallest zone too

  // Of the zone `after`, which takes the place of `before`, whose journal is `journal`; both copies are new, and are read to
  // the end. Nothing is kept if the serial is no later one, unless nothing has changed at all; and no step begins at a serial
  // that has stood for two zones, or may have: who has it has the one or the other. A record that a copy has twice
  // is one. `seed`: not known to whoever chooses the records. Takes long for a large zone.
  static ZoneJournal next(const ZoneJournal& journal, ZoneCopy& before, ZoneCopy& after, HashSeed seed);

  // From the zone with this serial to that of the journal: soa() is the newest, and next() gives the changes of one serial
  // after the other, in the order of RFC 1995 §4: the SOA before them, removed records, the SOA behind them, added records.
  // Null: they are not known.
  std::unique_ptr<ZoneCopy> since(uint32_t serial) const;

  size_t steps() const { return steps_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Step {
    uint32_t from = 0;      // the serial before
    PackedRecords records;  // as they are sent
    size_t soa = 0;         // where the SOA behind the step is in them
  };
  class Changes;

  // The oldest steps, until there are no more bytes, and no more than kMostSteps.
  void forget(size_t most_bytes);
  // Those up to the one that begins at this serial, if there is one.
  void forgetUpTo(uint32_t serial);
  void forgetOldest();

  std::vector<std::shared_ptr<const Step>> steps_;  // the newest is the last
  std::optional<uint32_t> doubtful_;                // the latest serial that may have stood for two zones
  size_t bytes_ = 0;
};

// Has `zone`, which is not shared yet, keep what has changed since `before`, behind what that has kept. Takes long for a large
// zone.
void keepChanges(Zone& zone, const std::shared_ptr<const Zone>& before);

}  // namespace idetcd::zones
