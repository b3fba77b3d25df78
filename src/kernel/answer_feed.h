// Keeps one zone of the maps at what a RecordStore holds; entries that the program cannot answer alone are marked
// (kElsewhere). Until the store is fresh for the first time, the zone stays as the process before left it, valid until
// that one's deadline: older data (a file of names) never reaches the maps. Then the whole table replaces it, and each
// change follows. Called by the store's writer; close() and the numbers by any thread.
#pragma once

#include <set>
#include <unordered_set>

#include "base/ip_address.h"
#include "kernel/maps.h"
#include "records/record_store.h"

namespace idetcd::kernel {

// Identifies the records of a zone. A process continues with those of another one if it goes by the same, and shares
// one of the store's endpoints: members come and go, and a TTL changes, while the names stay.
struct ZoneIdentity {
  uint64_t names = 1;                                // odd
  std::array<uint32_t, kZoneEndpoints> endpoints{};  // hashes; 0: none

  // How many endpoints they share, at least 1; 0: `zone` is another one.
  size_t matches(const Zone& zone) const;
};

class AnswerFeed final : public records::RecordObserver {
 public:
  // Into the zone with the index `zone`, which is emptied unless it matches `identity`. `store` has this observer, so it
  // lives longer. REQUIRES: its zone is not the root, has at most kZoneName bytes, and leaves room for the names of its SOA
  // (isServable()).
  AnswerFeed(std::shared_ptr<Maps> maps, size_t zone, const ZoneIdentity& identity, const records::RecordStore& store);
  ~AnswerFeed() override;
  AnswerFeed(const AnswerFeed&) = delete;
  AnswerFeed& operator=(const AnswerFeed&) = delete;

  static bool isServable(const records::RecordStore& store);

  size_t zone() const { return zone_; }

  void onChange(const records::Entry* old, const records::Entry* fresh) override;
  void onChanged() override;
  void onSerial(uint32_t serial) override;
  void onFreshness(records::Freshness freshness, BootClock::time_point deadline) override;
  void onAddresses(const std::vector<IpAddress>& addresses) override;

  // Nothing of the zone is answered any more, and its place is free. What the store tells from now on is ignored.
  void close();

  size_t names() const { return names_.load(std::memory_order_relaxed); }         // in the map
  uint64_t leftOut() const { return left_out_.load(std::memory_order_relaxed); }  // times that there was no room

 private:
  std::span<const uint8_t> labelsOf(const records::Entry& entry) const;
  NameKey keyOf(const records::Entry& entry) const;
  NameKey keyOf(const IpAddress& address) const;
  bool isBelowZone(const records::Entry& entry) const;
  void put(const records::Entry& entry, bool replaces);
  void erase(const records::Entry& entry);
  void noteAddresses(const records::Entry& entry);
  void noteAddress(const IpAddress& address);
  void putPointers(const records::Entry& entry);
  bool putName(const records::Entry& entry);
  void putPointer(const IpAddress& address);
  void erasePointer(const IpAddress& address);
  std::optional<Pointer> pointerOf(const IpAddress& address) const;
  bool hasReverseName(const IpAddress& address) const;
  bool hasPointer(const records::Entry& entry) const;
  void noteWhetherWhole();
  void noteLeftOut() { left_out_.store(leftOut() + 1, std::memory_order_relaxed); }
  void takeIn();
  Zone& place() const { return maps_->zone(zone_); }
  bool prepare();
  void beginToFollow();
  void replaceSoa();
  bool mayWrite() const { return !closed_ && maps_->isFeeding(); }
  bool follows() const { return follows_ && mayWrite(); }

  const std::shared_ptr<Maps> maps_;
  const size_t zone_;
  const ZoneIdentity identity_;
  const records::RecordStore& store_;
  std::mutex mutex_;  // guards all that follows, and what is written
  bool closed_ = false;
  bool is_prepared_ = false;
  bool follows_ = false;
  std::unordered_set<const records::Entry*> left_out_names_;  // of the store, which have no room in the map
  std::set<IpAddress> left_out_pointers_;
  uint64_t departures_ = 0;         // from the maps, when these were tried last
  std::vector<IpAddress> changed_;  // of the change that is under way
  std::vector<IpAddress> own_;      // of this node: the process alone knows which name it has
  std::atomic<size_t> names_{0};
  std::atomic<uint64_t> left_out_{0};
};

}  // namespace idetcd::kernel
