// The records of one `idetcd` directive, and the only place where one is published or withdrawn. A name has the sum of
// its sources' RRsets (rrset.h), duplicates once with the lowest TTL. Beside the lock-free RecordTable and its
// reverse_index.h the writer keeps the parts of names with several sources, empty non-terminals (RFC 4592 §2.2.2), the
// apex, and what a snapshot has seen. An observer (RecordObserver) hears of each change before readers see it. One
// writer (the completion thread) calls everything non-const; readers use table(), reverse() and freshness().
//
// A member of the zone that has addresses in further networks (memberData()) has a name for each: the network's label
// stands between the labels of its own name and the zone, as in worker3.fabric.tf.local.
#pragma once

#include <map>
#include <unordered_map>

#include "base/clock.h"
#include "base/hash.h"
#include "base/ip_address.h"
#include "dns/name.h"
#include "records/epoch.h"
#include "records/member_groups.h"
#include "records/record_table.h"
#include "records/reverse_index.h"
#include "records/rrset.h"

namespace idetcd::records {

// The records of a zone besides its names: SOA and NS (RFC 1035 §3.3.13, RFC 2308 §3). Immutable; any thread.
//
// Every name in them is written as a prefix and a pointer to the zone's name in the question, so one template serves
// each question: of 54 bytes three pointers and the serial are patched.
class ZoneApex {
 public:
  ZoneApex(const dns::Name& zone, uint32_t ttl_seconds);

  struct Soa {
    std::array<uint8_t, 54> wire;
    uint8_t size;
    std::span<const uint8_t> span() const { return {wire.data(), size}; }
  };
  // The SOA record of the zone whose name begins at `offset` of the message. REQUIRES: offset < 0x4000.
  Soa soa(size_t offset, uint32_t serial) const {
    assert(offset < 0x4000);
    Soa soa = soa_;
    const uint16_t pointer = dns::pointerTo(offset);
    dns::store16(soa.wire.data(), pointer);
    dns::store16(soa.wire.data() + mname_pointer_, pointer);
    dns::store16(soa.wire.data() + rname_pointer_, pointer);
    dns::store32(soa.wire.data() + rname_pointer_ + 2, serial);
    return soa;
  }

  // The NS record, for a question for the apex itself; its target begins at kNsTarget.
  std::span<const uint8_t> ns() const { return {ns_.data(), ns_size_}; }
  static constexpr size_t kNsTarget = dns::kRecordHeadSize;

  // The zone's name server, ns.dns.<zone>; the zone itself if that would be too long.
  const dns::Name& nameServer() const { return name_server_; }

 private:
  dns::Name name_server_;
  Soa soa_{};
  uint8_t mname_pointer_ = 0;
  uint8_t rname_pointer_ = 0;
  std::array<uint8_t, 21> ns_{};
  uint8_t ns_size_ = 0;
};

// The order in which a source speaks of names, and which of them its snapshot has shown; the marks of both are in the
// entries. etcd says everything at a revision. A source without revisions has no snapshots: what it says last counts.
// Writer only.
class SourceHistory {
 public:
  enum class Order {
    kOlder,
    kSame,
    kNewer,
    kUnordered,
  };
  // How the revisions of a snapshot compare with those of what is stored.
  enum class Revisions : uint8_t {
    kGoOn,
    kRestarted,  // not at all: the store is another one, or was restored
  };
  // The marks of an entry; other sources leave them as they are.
  struct Stamp {
    int64_t revision = 0;
    uint32_t snapshot = 0;
  };

  explicit SourceHistory(bool has_revisions) : has_revisions_(has_revisions) {}

  // Compares data of `revision` with what is stored. REQUIRES: `stored` has something of this source.
  Order compare(Entry& stored, int64_t revision) const {
    if (!has_revisions_) return Order::kUnordered;
    if (!see(stored) && revisions_ == Revisions::kRestarted) return Order::kNewer;  // the revision stored says nothing
    if (revision == stored.mod_revision_) return Order::kSame;
    return revision < stored.mod_revision_ ? Order::kOlder : Order::kNewer;
  }
  bool isOlder(const Entry& stored, int64_t revision) const {
    return has_revisions_ && revision < stored.mod_revision_;
  }
  Stamp stamp(const Entry* old, int64_t revision) const {
    if (has_revisions_) return {revision, snapshot_};
    return old != nullptr ? Stamp{old->mod_revision_, old->snapshot_mark_} : Stamp{};
  }

  // That revisions were restarted is remembered until a snapshot ends.
  void beginSnapshot(Revisions revisions) {
    ++snapshot_;
    if (revisions == Revisions::kRestarted) revisions_ = revisions;
  }
  // The snapshot shows the entry. Whether it had done so.
  bool see(Entry& stored) const {
    const bool seen = stored.snapshot_mark_ == snapshot_;
    stored.snapshot_mark_ = snapshot_;
    return seen;
  }
  // Stored, but missing from the snapshot of this revision.
  bool hasGone(const Entry& stored, int64_t revision) const {
    if (stored.mod_revision_ == 0 || stored.snapshot_mark_ == snapshot_) return false;
    return stored.mod_revision_ <= revision || revisions_ == Revisions::kRestarted;
  }
  // Whether revisions were restarted.
  Revisions endSnapshot() { return std::exchange(revisions_, Revisions::kGoOn); }

 private:
  const bool has_revisions_;
  uint32_t snapshot_ = 1;
  Revisions revisions_ = Revisions::kGoOn;
};

enum class Freshness : uint8_t {
  kLoading,   // no snapshot yet: what is not in the table is unknown, not non-existent
  kFresh,     // until a deadline
  kStale,     // not confirmed for longer than a lease: answers carry EDE 3 (RFC 8914 §4.4)
  kFromFile,  // the table holds what a file said and etcd has not been heard: old like kStale, unknown like kLoading
};

// The table's content may be out of date.
constexpr bool isOld(Freshness freshness) { return freshness >= Freshness::kStale; }
// Names missing in the table may exist.
constexpr bool isIncomplete(Freshness freshness) {
  return freshness == Freshness::kLoading || freshness == Freshness::kFromFile;
}

// Learns of each change of a RecordStore, so that a copy of it elsewhere (kernel/answer_feed) is never behind what the
// store's own readers see. Called by the store's writer, on its thread.
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
  // Of what the store holds from now on. `deadline`: the end of kFresh, else the epoch of the clock. A store that is
  // fresh holds all that it is fresh of.
  virtual void onFreshness(Freshness freshness, BootClock::time_point deadline) = 0;
  // See RecordStore::generation().
  virtual void onGeneration(int64_t generation) { (void)generation; }
  // Those of this node.
  virtual void onAddresses(const std::vector<IpAddress>& addresses) = 0;
};

class RecordStore {
 public:
  struct Options {
    dns::Name zone;            // the apex; the root means: authoritative for no zone, only for the names it holds
    uint32_t ttl_seconds = 5;  // of addresses, and of negative answers
    std::vector<IpAddress> addresses;  // of this node: A and AAAA of the zone's name server, ns.dns.<zone>
    HashSeed hash_seed = 0;
    // Of a name: it comes first among those of one address, and is in the groups of member_groups.h. Called by the
    // writer; may be empty.
    ReverseIndex::IsMember is_member{};
  };

  RecordStore(EpochDomain& epochs, Options options);

  // --- writer ---
  enum class Change {
    kAdded,
    kReplaced,
    kUnchanged,
    kOlder,          // what is stored is newer, and stays
    kContradiction,  // what is stored is of the same revision, and differs: it is of another history. It stays
  };
  // Replaces all that `source` says of the name. The name exists even if it says
  // nothing. `revision`: etcd's mod_revision, which decides what is older; of other sources 0: what is said last
  // counts. What of the sum does not fit EntryBuilder::kMaxRecordBytes is left out, of the source with the highest
  // number first. REQUIRES: no CNAME or DNAME, which are not followed here.
  Change put(const dns::Name& owner, Source source, RrsetSet rrsets, int64_t revision = 0);
  // The data from etcd: A and AAAA, and of a member memberData().
  Change put(const dns::Name& owner, const HostAddresses& addresses, int64_t mod_revision, Rdata member = {}) {
    return put(owner, Source::kEtcd, HostRrsets(addresses, options_.ttl_seconds, member).set(), mod_revision);
  }
  // `source` withdraws the name. False if it had none, or etcd's stored data is newer than `revision`.
  bool remove(const dns::Name& owner, Source source, int64_t revision = 0);
  bool remove(const dns::Name& owner, int64_t mod_revision) { return remove(owner, Source::kEtcd, mod_revision); }

  // A full resync of Source::kEtcd without an empty moment: everything put between begin and end is "seen"; end removes
  // what was not seen and is not newer than `revision`, and returns those names. Where revisions are restarted, put()
  // takes older ones too until end, and end() removes everything unseen. A snapshot that was begun and not ended is begun again.
  void beginSnapshot(SourceHistory::Revisions revisions) { etcd_.beginSnapshot(revisions); }
  std::vector<std::string> endSnapshot(int64_t revision);

  // The snapshot holds the name, whose data was not read: what is stored stays, and counts as seen. Its mod_revision;
  // 0: nothing from etcd is stored.
  int64_t see(const dns::Name& owner);

  // This node's addresses have changed: those of the zone's name server follow.
  void setAddresses(const std::vector<IpAddress>& addresses);

  // From now on `observer` is told of each change, and first of this node's addresses and of the freshness.
  void addObserver(std::shared_ptr<RecordObserver> observer);
  void removeObserver(const RecordObserver* observer);

  // kFresh: for ever.
  void setFreshness(Freshness freshness) {
    setFreshness(freshness, freshness == Freshness::kFresh ? BootClock::time_point::max() : BootClock::time_point());
  }
  // kFresh up to there, and kStale from then on, whether or not this process runs meanwhile.
  void setFreshUntil(BootClock::time_point deadline) { setFreshness(Freshness::kFresh, deadline); }
  void setGeneration(int64_t generation) {
    for (const auto& observer : observers_) observer->onGeneration(generation);
    generation_.store(generation, std::memory_order_relaxed);
  }
  size_t size() const { return size_; }  // names from etcd; writer only
  // Names of all sources for which Options::is_member is true. Any thread.
  size_t memberCount() const { return member_count_.load(std::memory_order_relaxed); }
  bool holds(const dns::Name& owner);  // from etcd; writer only
  // mod_revision of what is stored; 0: nothing from etcd. Writer only.
  int64_t revisionOf(const dns::Name& owner);

  // --- readers ---
  const RecordTable& table() const { return table_; }
  const ReverseIndex& reverse() const { return reverse_; }            // of all names that a source speaks of
  size_t bytes() const { return table_.bytes() + reverse_.bytes(); }  // of what readers look into
  // acquire: a reader that sees kFresh also sees the snapshot it stands for.
  bool isFresh(BootClock::time_point now) const { return now < freshUntil(); }
  Freshness freshness(BootClock::time_point now = BootClock::now()) const {
    const Freshness said = freshness_.load(std::memory_order_acquire);
    return said == Freshness::kFresh && !isFresh(now) ? Freshness::kStale : said;
  }
  // The epoch of the clock where it is not kFresh.
  BootClock::time_point freshUntil() const {
    return BootClock::time_point(std::chrono::nanoseconds(fresh_until_.load(std::memory_order_acquire)));
  }
  // As it was at the last moment that etcd has confirmed; the epoch: it never has.
  BootClock::time_point lastFreshUntil() const {
    return BootClock::time_point(std::chrono::nanoseconds(last_fresh_until_.load(std::memory_order_relaxed)));
  }
  const dns::Name& zone() const { return options_.zone; }
  const ZoneApex& apex() const { return apex_; }
  uint32_t ttlSeconds() const { return options_.ttl_seconds; }  // of addresses that etcd has, and of negative answers
  // Of the zone's SOA: the low half of the newest revision applied. Goes back only if etcd's revisions did.
  uint32_t serial() const { return serial_.load(std::memory_order_relaxed); }
  // Of the membership (naming/generation.h); 0: not known.
  int64_t generation() const { return generation_.load(std::memory_order_relaxed); }

 private:
  // Data at a name besides the sources'.
  struct SyntheticName {
    bool name_server = false;
    HostAddresses addresses;  // of the name server, unless a source speaks of its name
    const MemberGroup* group = nullptr;
    size_t names_below = 0;  // of sources, the apex or groups, which make it an empty non-terminal at least
    bool isNeeded() const { return name_server || group != nullptr || names_below > 0; }
  };
  // One source's part of a name with several.
  struct Part {
    Source source;
    std::vector<uint8_t> rrsets;  // as entry.h draws them
  };
  using Parts = std::vector<Part>;  // at least two, by their sources' numbers

  void setFreshness(Freshness freshness, BootClock::time_point deadline) {
    for (const auto& observer : observers_) observer->onFreshness(freshness, deadline);
    const int64_t until = deadline.time_since_epoch().count();
    if (until != 0) last_fresh_until_.store(until, std::memory_order_relaxed);
    fresh_until_.store(until, std::memory_order_release);
    freshness_.store(freshness, std::memory_order_release);
  }
  SourceHistory& historyOf(Source source) { return source == Source::kEtcd ? etcd_ : others_; }
  const Part* partOf(const dns::Name& owner, const Entry* entry, Source source) const;
  bool speaks(const dns::Name& owner, const Entry* entry, Source source) const;
  bool saysTheSame(const dns::Name& owner, const Entry* entry, Source source) const;
  Parts& partsOf(const dns::Name& owner, const Entry& entry);
  void publishSum(const dns::Name& owner, const Entry& old, SourceHistory::Stamp stamp);
  void publish(const Entry* old, SourceHistory::Stamp stamp);
  void erase(const dns::Name& owner, const Entry* old);
  void publishSynthetic(const dns::Name& owner, const SyntheticName& name, const Entry* old);
  void dropUnneeded(const dns::Name& owner);
  void publishGroups(const Entry* old, const Entry* fresh);
  void withdraw(const dns::Name& owner, const Entry* old);
  using Networks = std::map<std::string, HostAddresses>;  // by the names of a member in them
  Networks networksOf(const Entry* entry) const;
  void publishNetworks(const Networks& before, const Entry* fresh);
  void setRevision(int64_t revision);
  void addBelow(const dns::Name& owner);
  void removeBelow(const dns::Name& owner);
  template <typename Visit>
  void visitNonTerminals(const dns::Name& owner, Visit visit) const;

  bool isMember(const Entry& entry) const;
  void count(const Entry* old, const Entry* fresh);

  const Options options_;
  const ZoneApex apex_;
  std::vector<IpAddress> addresses_;  // of this node
  std::vector<std::shared_ptr<RecordObserver>> observers_;
  RecordTable table_;
  ReverseIndex reverse_;
  MemberGroups groups_;
  EntryBuilder builder_;  // of the entry that is being made
  // Both are keyed by wire form.
  std::unordered_map<std::string, Parts> parts_;  // of names with several sources
  // Only names with something besides what sources say are here: a handful.
  std::unordered_map<std::string, SyntheticName> synthetic_;
  size_t size_ = 0;
  std::atomic<size_t> member_count_{0};  // written by the writer
  SourceHistory etcd_{true};
  SourceHistory others_{false};
  int64_t newest_revision_ = 0;
  std::atomic<uint32_t> serial_{0};
  std::atomic<int64_t> generation_{0};
  std::atomic<Freshness> freshness_{Freshness::kLoading};
  std::atomic<int64_t> fresh_until_{0};  // of BootClock, in nanoseconds; 0 unless kFresh
  std::atomic<int64_t> last_fresh_until_{0};
};

}  // namespace idetcd::records
