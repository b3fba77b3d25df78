// The zones that a directive answers for, as the newest table of them. Each table is immutable: a loop keeps the one that it
// has seen last, and looks for a newer one at each query.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "dns/query.h"
#include "zones/zone_copy.h"

namespace idetcd::directive {

struct ServedZone {
  dns::Name origin;
  std::vector<dns::Name> fallthrough;         // where a name that does not exist is the next directive's
  std::shared_ptr<const zones::Zone> zone{};  // null: it could not be read yet
};

class ZoneTable {
 public:
  ZoneTable(std::vector<ServedZone> zones, HashSeed seed);

  const std::vector<ServedZone>& zones() const { return zones_; }
  // Null: there are several, or none.
  const ServedZone* only() const { return zones_.size() == 1 ? &zones_.front() : nullptr; }
  // The longest zone that the name (folded) is in; null: none.
  const ServedZone* find(std::span<const uint8_t> name) const {
    if (zones_.size() == 1) return dns::isNameWithin(name, zones_.front().origin) ? &zones_.front() : nullptr;
    return findAmongMany(name);
  }
  // Whether a zone is below the name with this hash.
  bool isAbove(uint64_t hash) const { return above_.contains(hash); }

 private:
  const ServedZone* findAmongMany(std::span<const uint8_t> name) const;

  const HashSeed seed_;
  const std::vector<ServedZone> zones_;
  std::unordered_map<uint64_t, size_t> by_hash_;
  std::unordered_set<uint64_t> above_;  // hashes of the names above the zones, without the root
};

// Any thread.
class ZoneSet final : public zones::PublishedZones {
 public:
  explicit ZoneSet(HashSeed seed)
      : seed_(seed), table_(std::make_shared<const ZoneTable>(std::vector<ServedZone>(), seed)) {}

  HashSeed seed() const { return seed_; }
  // In place of the zone of this name, if there is one.
  void put(ServedZone zone);
  void erase(const dns::Name& origin);

  Found copyOf(std::span<const uint8_t> name) const override;
  uint64_t version() const override { return generation(); }
  std::vector<Serial> serials() const override;
  std::unique_ptr<zones::ZoneCopy> changesSince(std::span<const uint8_t> name, uint32_t serial,
                                                const IpAddress& client) const override;
  void noteGiven(std::span<const uint8_t>, uint32_t, const IpAddress&) const override {}

  // Grows with each new table. acquire: a thread that sees it finds that table, or a newer one, in table().
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  std::shared_ptr<const ZoneTable> table() const {
    const std::lock_guard lock(mutex_);
    return table_;
  }

 private:
  std::optional<ServedZone> servedAs(std::span<const uint8_t> name) const;
  void replace(const dns::Name& origin, std::optional<ServedZone> zone);

  const HashSeed seed_;
  std::atomic<uint64_t> generation_{0};
  mutable std::mutex mutex_;  // guards table_
  std::shared_ptr<const ZoneTable> table_;
};

}  // namespace idetcd::directive
