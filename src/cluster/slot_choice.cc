#include "cluster/slot_choice.h"

namespace idetcd::cluster {

SlotChoice chooseSlot(const NamePattern& pattern, int64_t limit, const Line& line, int64_t preferred_id) {
  using Kind = SlotChoice::Kind;
  const bool has_preference = preferred_id > 0 && preferred_id <= limit;
  if (!line.rank && !line.far_back) return {Kind::kUnqueued, 0, {}};
  if (has_preference && line.rank && line.own) {
    return {line.own->abandoned ? Kind::kTakeBack : Kind::kOldLease, preferred_id, pattern.render(preferred_id)};
  }
  size_t free_slots = 0;
  for (int64_t id = 1; id <= limit; ++id) {
    std::string name = pattern.render(id);
    if (line.keys.contains(name)) continue;
    if (!line.rank) return {Kind::kWait, 0, {}};
    if (free_slots++ < *line.rank) continue;
    if (has_preference) {
      std::string preferred = pattern.render(preferred_id);
      if (!line.keys.contains(preferred)) return {Kind::kTake, preferred_id, std::move(preferred)};
    }
    return {Kind::kTake, id, std::move(name)};
  }
  return {free_slots == 0 ? Kind::kFull : Kind::kWait, 0, {}};
}

std::vector<std::string> freeSlots(const NamePattern& pattern, int64_t limit, const Line& line, size_t most) {
  std::vector<std::string> found;
  for (int64_t id = 1; id <= limit && found.size() < most; ++id) {
    std::string name = pattern.render(id);
    if (!line.keys.contains(name)) found.push_back(std::move(name));
  }
  return found;
}

std::vector<std::string> unleasedSlots(const NamePattern& pattern, int64_t last_id, const Line& line) {
  std::vector<std::string> found;
  if (line.unleased.empty()) return found;
  for (int64_t id = 1; id <= last_id && found.size() < line.unleased.size(); ++id) {
    std::string name = pattern.render(id);
    if (line.unleased.contains(name)) found.push_back(std::move(name));
  }
  return found;
}

}  // namespace idetcd::cluster
