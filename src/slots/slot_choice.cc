#include "slots/slot_choice.h"

namespace idetcd::slots {

SlotChoice chooseSlot(const NamePattern& pattern, const QueueSnapshot& line, int64_t preferred_id) {
  using Kind = SlotChoice::Kind;
  const bool has_preference = preferred_id > 0 && preferred_id <= pattern.limit();
  if (!line.rank && !line.far_back) return {Kind::kUnqueued, 0, {}};
  if (has_preference && line.rank && line.own) {
    return {line.own->abandoned ? Kind::kTakeBack : Kind::kOldLease, preferred_id, pattern.render(preferred_id)};
  }
  const auto free_slots = static_cast<size_t>(pattern.limit() - line.taken.size());
  if (free_slots == 0) return {Kind::kFull, 0, {}};
  if (!line.rank || *line.rank >= free_slots) return {Kind::kWait, 0, {}};
  const bool takes_preferred = has_preference && !line.taken.contains(preferred_id);
  const int64_t id = takes_preferred ? preferred_id : line.taken.missing(*line.rank);
  return {Kind::kTake, id, pattern.render(id)};
}

}  // namespace idetcd::slots
