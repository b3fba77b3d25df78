#include "directive/file/zone_set.h"

#include "zones/zone_journal.h"

namespace idetcd::directive {

namespace {

uint64_t hashOf(std::span<const uint8_t> name, HashSeed seed) { return hashBytes(name.data(), name.size(), seed); }

}  // namespace

ZoneTable::ZoneTable(std::vector<ServedZone> zones, HashSeed seed) : seed_(seed), zones_(std::move(zones)) {
  for (size_t i = 0; i < zones_.size(); ++i) {
    std::span<const uint8_t> name = zones_[i].origin.wire();
    by_hash_.emplace(hashOf(name, seed), i);
    while (name.size() > 1) {
      name = dns::parentOf(name);
      if (name.size() > 1) above_.insert(hashOf(name, seed));
    }
  }
}

const ServedZone* ZoneTable::findAmongMany(std::span<const uint8_t> name) const {
  if (zones_.empty()) return nullptr;
  for (;; name = dns::parentOf(name)) {
    const auto found = by_hash_.find(hashOf(name, seed_));
    if (found != by_hash_.end() && std::ranges::equal(zones_[found->second].origin.wire(), name))
      return &zones_[found->second];
    if (name.size() == 1) return nullptr;
  }
}

void ZoneSet::put(ServedZone zone) {
  const dns::Name origin = zone.origin;
  replace(origin, std::move(zone));
}

void ZoneSet::erase(const dns::Name& origin) { replace(origin, std::nullopt); }

std::optional<ServedZone> ZoneSet::servedAs(std::span<const uint8_t> name) const {
  const std::shared_ptr<const ZoneTable> newest = table();
  const ServedZone* const served = newest->find(name);
  return served != nullptr && served->origin.size() == name.size() ? std::optional(*served) : std::nullopt;
}

zones::PublishedZones::Found ZoneSet::copyOf(std::span<const uint8_t> name) const {
  const auto served = servedAs(name);
  if (!served) return {};
  return {true, served->zone ? zones::makeCopy(served->zone) : nullptr};
}

// A serial stands for the same records wherever it is from.
std::unique_ptr<zones::ZoneCopy> ZoneSet::changesSince(std::span<const uint8_t> name, uint32_t serial,
                                                       const IpAddress&) const {
  const auto served = servedAs(name);
  const auto journal = served && served->zone ? served->zone->journal() : nullptr;
  return journal ? journal->since(serial) : nullptr;
}

std::vector<zones::PublishedZones::Serial> ZoneSet::serials() const {
  std::vector<Serial> serials;
  const std::shared_ptr<const ZoneTable> newest = table();
  for (const ServedZone& served : newest->zones()) {
    if (served.zone) serials.push_back({served.origin, served.zone->serial()});
  }
  return serials;
}

void ZoneSet::replace(const dns::Name& origin, std::optional<ServedZone> zone) {
  std::shared_ptr<const ZoneTable> old;  // goes after the lock
  {
    const std::lock_guard lock(mutex_);
    std::vector<ServedZone> zones = table_->zones();
    std::erase_if(zones, [&](const ServedZone& served) { return served.origin == origin; });
    if (zone) zones.push_back(std::move(*zone));
    old = std::exchange(table_, std::make_shared<const ZoneTable>(std::move(zones), seed_));
  }
  // release: pairs with generation().
  generation_.fetch_add(1, std::memory_order_release);
}

}  // namespace idetcd::directive
