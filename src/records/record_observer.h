// Learns of each change of a RecordStore, so that a copy of it elsewhere (kernel/answer_feed) is never behind what the
// store's own readers see. Called by the store's writer, on its thread.
#pragma once

#include "base/clock.h"
#include "base/ip_address.h"
#include "records/entry.h"

namespace idetcd::records {

class RecordObserver {
 public:
  virtual ~RecordObserver() = default;

  // `fresh` is about to take the place of `old`, an entry of the same name; either may be null, not both. No reader sees
  // it yet. Both entries live until this returns.
  virtual void onChange(const Entry* old, const Entry* fresh) = 0;
  // It has taken its place, in the table and in the reverse index.
  virtual void onChanged() = 0;
  // Of the SOA from now on.
  virtual void onSerial(uint32_t serial) = 0;
  // The store is fresh up to there; or, the epoch of the clock, it is not. It holds all that it is fresh of.
  virtual void onFreshUntil(BootClock::time_point deadline) = 0;
  // Those of this node.
  virtual void onAddresses(const std::vector<IpAddress>& addresses) = 0;
};

}  // namespace idetcd::records
