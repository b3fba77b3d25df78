// The names that have an address, for PTR: derived from the A and AAAA of the table's entries. Linear probing; 8 bytes
// an address at a load of 0.68 to 0.85; growth publishes a new directory.
//
//   word: tag:16 | pointer:48      0: empty      1: a tombstone      a tag is odd; bit 0 of the pointer: to a Group
//
// A Group holds the names of one address in order, at most kMaxNames; further ones wait on the writer's side. One
// writer, readers inside a ReadSection. The writer removes an entry here before it is retired.
#pragma once

#include <set>

#include "base/hash.h"
#include "base/ip_address.h"
#include "dns/name.h"
#include "dns/record.h"
#include "records/entry.h"
#include "records/epoch.h"
#include "records/held_networks.h"

namespace idetcd::records {

bool hasReverseName(const IpAddress& address);

class ReverseIndex {
 public:
  // Of one address, at most: more would make answers too long for a datagram.
  static constexpr size_t kMaxNames = 32;

  // `is_member`: of names with one address, those for which it is true stand before the others; may be empty. Called
  // by the writer.
  using IsMember = std::function<bool(const dns::Name&)>;
  ReverseIndex(EpochDomain& epochs, HashSeed seed, IsMember is_member);
  // REQUIRES: no reader looks at this index, and the writer is done.
  ~ReverseIndex();
  ReverseIndex(const ReverseIndex&) = delete;
  ReverseIndex& operator=(const ReverseIndex&) = delete;

  // --- readers, inside a ReadSection ---
  class Names {
   public:
    std::span<const Entry* const> entries() const { return {entries_.data(), count_}; }

   private:
    friend class ReverseIndex;
    std::array<const Entry*, kMaxNames> entries_;
    size_t count_ = 0;
  };
  // The entries that have this address among their A or AAAA: those that come first, then by length, then by letters.
  Names find(const IpAddress& address) const;
  // Whether the reverse name of an address that is held is below `name`, which then exists (RFC 8020 §2).
  bool isAboveHeld(std::span<const uint8_t> name) const {
    const auto range = dns::addressesBelow(name);
    return range && networks_.holdsWithin(*range);
  }

  // --- writer ---
  // `fresh` takes the place of `old`, an entry of the same name. Either may be null. REQUIRES: `old`, if given, was
  // given as `fresh` before.
  void replace(const Entry* old, const Entry* fresh);
  size_t size() const { return live_; }  // addresses
  // Memory of the slots, without that of several names of one address. Any thread.
  size_t bytes() const { return capacity_.load(std::memory_order_relaxed) * sizeof(uint64_t); }

 private:
  static constexpr uint64_t kEmpty = 0;
  static constexpr uint64_t kTombstone = 1;
  static constexpr unsigned kPointerBits = 48;
  static constexpr uint64_t kPointerMask = (uint64_t{1} << kPointerBits) - 1;
  static constexpr uint64_t kGroupBit = 1;
  static constexpr size_t kFirstCapacity = 64;

  struct Directory {
    std::atomic<uint64_t>* slots;
    size_t capacity;
  };
  // An entry, and whether it comes first.
  struct Candidate {
    const Entry* entry;
    bool first;
  };
  struct Before {
    bool operator()(const Candidate& a, const Candidate& b) const;
  };
  // Of at least two names. Immutable once published.
  struct Group {
    IpAddress address;
    std::vector<Candidate> members;  // in order
  };
  using Waiting = std::set<Candidate, Before>;

  static uint64_t tagOf(uint64_t hash) { return (hash & 0xffff) | 1; }
  static size_t homeOf(const Directory& dir, uint64_t hash) {
    return static_cast<size_t>((hash >> 32) * dir.capacity >> 32);
  }
  static bool isGroup(uint64_t word) { return (word & kGroupBit) != 0; }
  static const Group* groupOf(uint64_t word) {
    return reinterpret_cast<const Group*>(word & kPointerMask & ~kGroupBit);
  }
  static const Entry* entryOf(uint64_t word) { return reinterpret_cast<const Entry*>(word & kPointerMask); }
  static bool isOf(uint64_t word, const IpAddress& address);
  static uint64_t wordOf(uint64_t hash, const void* pointer, uint64_t bits);
  uint64_t hashOf(const IpAddress& address) const { return hashBytes(address.data(), address.size(), seed_); }

  static Directory* makeDirectory(size_t capacity);
  static void freeDirectory(void* owner, void* directory);
  static void freeGroup(void* owner, void* group);
  void retire(EpochDomain::Free free, void* object);

  const Directory& directory() const { return *directory_.load(std::memory_order_seq_cst); }  // see EpochDomain::Reader
  struct Place {
    std::atomic<uint64_t>* slot = nullptr;  // null: the address is not there
    uint64_t word = kEmpty;                 // what was seen in it
  };
  static Place locate(const Directory& dir, const IpAddress& address, uint64_t hash);
  static std::atomic<uint64_t>* freePlace(const Directory& dir, uint64_t hash);
  void add(const IpAddress& address, const Entry* fresh);
  void remove(const IpAddress& address, const Entry* old);
  void swap(const IpAddress& address, const Entry* old, const Entry* fresh);
  void insert(uint64_t hash, uint64_t word);
  void erase(std::atomic<uint64_t>* slot);
  void publish(std::atomic<uint64_t>* slot, uint64_t hash, const IpAddress& address, std::vector<Candidate> members);
  void makeRoom();
  void rebuild(size_t capacity);
  void reinsert(const Directory& old, const Directory& fresh, uint64_t word) const;
  Candidate candidate(const Entry* entry) const;

  EpochDomain& epochs_;
  const HashSeed seed_;
  const IsMember is_member_;
  std::atomic<Directory*> directory_;
  std::atomic<size_t> capacity_{kFirstCapacity};  // of it; relaxed: a number, and nothing that depends on it
  HeldNetworks networks_;
  size_t live_ = 0;
  size_t tombstones_ = 0;
  size_t retired_since_reclaim_ = 0;
  std::map<IpAddress, Waiting> waiting_;  // of addresses with more than kMaxNames names
};

// Calls visit(IpAddress, ttl_seconds) for each address of the entry that has a reverse name: all but 127.0.0.1, ::1 and
// the unspecified ones, which on each machine mean another one.
template <typename Visit>
void visitAddresses(const Entry& entry, Visit visit) {
  entry.visitRecords([&visit](dns::RrType type, uint32_t ttl_seconds, Rdata rdata) {
    const bool is_address =
        (type == dns::RrType::kA && rdata.size() == 4) || (type == dns::RrType::kAaaa && rdata.size() == 16);
    if (!is_address) return;
    const IpAddress address = IpAddress::fromBytes(rdata);
    if (hasReverseName(address)) visit(address, ttl_seconds);
  });
}

}  // namespace idetcd::records
