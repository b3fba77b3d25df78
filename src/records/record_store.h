// The records that one `idetcd` directive serves, and the only place where a record is published or withdrawn.
//
// It keeps the lock-free RecordTable (record_table.h) and what only the writer needs: which names are empty non-terminals
// (RFC 4592 §2.2.2), the apex with its SOA and NS, and what a snapshot has seen.
// Threads: one writer (the completion thread) calls everything that is not const; readers use table() and freshness().
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/ip_address.h"
#include "dns/name.h"
#include "records/epoch.h"
#include "records/record_table.h"

namespace idetcd::records {

// What a name resolves to. Neither: the name exists and has no data (NODATA for every type).
struct HostAddresses {
  std::optional<IpAddress> ipv4;
  std::optional<IpAddress> ipv6;
  bool operator==(const HostAddresses&) const = default;
};

enum class Freshness : uint8_t {
  kLoading,  // no snapshot yet: what is not in the table is unknown, not non-existent
  kFresh,
  kStale,  // etcd has been away for longer than a lease: answers carry EDE 3 (RFC 8914 §4.4)
};

class RecordStore {
 public:
  struct Options {
    dns::Name zone;                 // the apex; the root means: authoritative for no zone, only for the names it holds
    uint32_t ttl_seconds = 5;       // of every record, and of negative answers
    std::vector<IpAddress> addresses;  // of this node: A and AAAA of the zone's name server, ns.dns.<zone>
  };

  RecordStore(EpochDomain& epochs, Options options);
  ~RecordStore();

  // --- writer ---
  enum class Change { kAdded, kReplaced, kUnchanged };
  // kUnchanged: `mod_revision` is not newer than what is stored.
  Change put(const dns::Name& owner, const HostAddresses& addresses, int64_t mod_revision);
  // False if there was nothing to remove, or what is stored is newer than `mod_revision`.
  bool remove(const dns::Name& owner, int64_t mod_revision);

  // A full resync without an empty moment: everything put between begin and end is "seen"; end removes what was not seen and
  // is not newer than `revision`, and returns those names (at most `max_names` of them by name) and their number.
  // `revisions_restarted`: the store is another one, or was restored: until end, put() takes older revisions too, and end()
  // removes everything unseen.
  void beginSnapshot(bool revisions_restarted);
  struct Removed {
    size_t count = 0;
    std::vector<std::string> names;
  };
  Removed endSnapshot(int64_t revision, size_t max_names);

  void setFreshness(Freshness freshness) { freshness_.store(freshness, std::memory_order_release); }
  size_t size() const;  // names from etcd; writer only

  // --- readers ---
  const RecordTable& table() const { return *table_; }
  // acquire: a reader that sees kFresh also sees the snapshot it stands for.
  Freshness freshness() const { return freshness_.load(std::memory_order_acquire); }
  const Options& options() const { return options_; }

 private:
  struct Impl;
  Options options_;
  std::unique_ptr<RecordTable> table_;
  std::unique_ptr<Impl> impl_;
  std::atomic<Freshness> freshness_{Freshness::kLoading};
};

}  // namespace idetcd::records
