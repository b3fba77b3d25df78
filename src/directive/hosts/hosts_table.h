// A hosts(5) text as RRsets: A and AAAA by name, PTR by address, in the order of the text. Immutable; any thread. Lines
// without a valid address, invalid names, names outside `zones` and `%zone` behind an address are dropped; an
// IPv4-mapped address is the IPv4 address; names are folded, duplicates held once. `*.example.org` stands for all names
// with one label more that the texts do not hold; it has no PTR.
#pragma once

#include <unordered_set>

#include "base/hash.h"
#include "base/ip_address.h"
#include "base/result.h"
#include "dns/name.h"
#include "records/epoch.h"
#include "records/record_table.h"

namespace idetcd::directive {

class HostsTable {
 public:
  static constexpr size_t kMaxNames = 4'000'000;  // pairs of a name and an address

  struct Options {
    std::vector<dns::Name> zones{};  // empty: every name
    uint32_t ttl_seconds = 3600;
    bool reverse = true;  // PTR records too
    HashSeed seed = 0;
  };

  // Of no text.
  explicit HostsTable(HashSeed seed) : table_(epochs_, seed), seed_(seed) {}

  // Of the texts in their order, as if they were one. Fails if they hold more than kMaxNames.
  static Result<std::unique_ptr<const HostsTable>> build(std::span<const std::string_view> texts,
                                                         const Options& options);

  const records::Entry* find(uint64_t hash, std::span<const uint8_t> name) const { return table_.find(hash, name); }
  // A wildcard's data for `name`; null: none. REQUIRES: find() has not found it.
  const records::Entry* findWildcard(std::span<const uint8_t> name) const {
    return has_wildcards_ ? lookUpWildcard(name) : nullptr;
  }
  // Whether the reverse name of an address that is held is below `name`, which then exists (RFC 8020 §2).
  bool isAboveHeld(std::span<const uint8_t> name) const;
  // Whether a name that is held is below the name with this hash.
  bool isAboveName(uint64_t hash) const { return above_.contains(hash); }
  const records::RecordTable& table() const { return table_; }

  // Records that no DNS message could hold next to the others of their name.
  size_t droppedCount() const { return dropped_count_; }

 private:
  const records::Entry* lookUpWildcard(std::span<const uint8_t> name) const;

  records::EpochDomain epochs_;  // without readers while the table is built, and without writers afterwards
  records::RecordTable table_;
  const HashSeed seed_;
  std::vector<IpAddress> reversed_;     // those with a PTR, in order
  std::unordered_set<uint64_t> above_;  // hashes of the names above those that are held, without the root
  bool has_wildcards_ = false;
  size_t dropped_count_ = 0;
};

// The address that a line of a hosts text begins with: "::1", "192.0.2.1", "fe80::1%eth0".
std::optional<IpAddress> parseHostsAddress(std::string_view text);

}  // namespace idetcd::directive
