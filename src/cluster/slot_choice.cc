#include "cluster/slot_choice.h"

namespace idetcd::cluster {

SlotChoice chooseSlot(const NamePattern& pattern, int64_t limit, const Line& line, int64_t preferred_id) {
  using Kind = SlotChoice::Kind;
  if (preferred_id > 0 && preferred_id <= limit && line.rank) {
    std::string name = pattern.render(preferred_id);
    if (line.own) return {Kind::kTakeBack, preferred_id, std::move(name)};
    if (!line.keys.contains(name)) return {Kind::kTake, preferred_id, std::move(name)};
  }
  size_t free_slots = 0;
  for (int64_t id = 1; id <= limit; ++id) {
    std::string name = pattern.render(id);
    if (line.keys.contains(name)) continue;
    if (!line.rank) return {line.far_back ? Kind::kWait : Kind::kUnqueued, 0, {}};
    if (free_slots == *line.rank) return {Kind::kTake, id, std::move(name)};
    ++free_slots;
  }
  return {free_slots == 0 ? Kind::kFull : Kind::kWait, 0, {}};
}

}  // namespace idetcd::cluster
