// What happened to this node's name and to its mirror of etcd, for metrics and tests. Written by the completion thread,
// read by any: relaxed atomics, since no counter guards anything else.
#pragma once

#include <atomic>
#include <cstdint>

namespace idetcd::cluster {

class Counter {
 public:
  void add(uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

struct Counters {
  // The claim.
  Counter claim_requests;    // sent to etcd while claiming: three for a claim without trouble
  Counter claims;            // slots taken
  Counter claim_collisions;  // slots that somebody else took first
  Counter claims_refused;    // no slot was free

  // The name while it is held.
  Counter keepalives;          // confirmed
  Counter keepalive_failures;  // no answer
  Counter leases_lost;         // etcd no longer knows the lease
  Counter keys_lost;           // the key was deleted
  Counter conflicts;           // the key was overwritten by somebody else
  Counter shared_addresses;    // other slots that came to have an address of ours
  Counter address_updates;     // the key was given other addresses, for this node's had changed

  // What was confirmed (confirmation.h).
  Counter confirmations;          // reads that were answered
  Counter confirmation_failures;  // or not
  Counter beats;                  // written by this node
  Counter standstills;            // of the machine, or steps of its wall clock, that were noticed
  Counter clones;                 // leases that another process was found to hold

  // The mirror.
  Counter events;             // watch events
  Counter rejected;           // keys and values that are no record; each version of a key counts once
  Counter keys_too_long;      // of these: keys that no name could have
  Counter values_too_large;   // and values that are larger than any record
  Counter names_refused;      // names beyond the most that are kept
  Counter watch_breaks;       // streams that ended
  Counter watch_disorders;    // of these: since etcd told a change after a later one
  Counter watches_behind;     // of these: that lacked what was in the store
  Counter snapshots;          // full loads; the first one and every resync
  Counter restarts_of_store;  // the store's revision went back: another store, or a restored one
  Counter repairs;            // periodic comparisons
  Counter repaired;           // names that a comparison found different
  Counter mass_deletions;     // most names vanished at once
  Counter saves;              // files of names written
  Counter save_failures;      // or not
  Counter saved_refused;      // files of names that were no good at start
};

}  // namespace idetcd::cluster
