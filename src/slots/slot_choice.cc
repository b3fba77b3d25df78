#include "slots/slot_choice.h"

namespace idetcd::slots {
namespace {

// How many of the tickets get a slot.
int64_t served(const SlotSet& taken, const std::vector<QueueSnapshot::Tickets>& tickets) {
  int64_t served = 0;
  for (const auto& [limit, count] : tickets) {
    served += std::clamp<int64_t>(taken.missingUpTo(limit) - served, 0, static_cast<int64_t>(count));
  }
  return served;
}

}  // namespace

std::optional<int64_t> slotInTurn(int64_t limit, const QueueSnapshot& line) {
  assert(line.older);
  const int64_t before = served(line.taken, *line.older);
  if (before >= line.taken.missingUpTo(limit)) return std::nullopt;
  return line.taken.missing(static_cast<size_t>(before));
}

SlotChoice chooseSlot(const NamePattern& pattern, const QueueSnapshot& line, int64_t preferred_id) {
  using Kind = SlotChoice::Kind;
  const bool has_preference = preferred_id > 0 && preferred_id <= pattern.limit();
  if (!line.older && !line.far_back) return {Kind::kUnqueued, 0, {}};
  if (has_preference && line.older && line.own) {
    return {line.own->abandoned ? Kind::kTakeBack : Kind::kOldLease, preferred_id, pattern.render(preferred_id)};
  }
  if (line.taken.size() == pattern.limit()) return {Kind::kFull, 0, {}};
  const std::optional<int64_t> in_turn = line.older ? slotInTurn(pattern.limit(), line) : std::nullopt;
  if (!in_turn) return {Kind::kWait, 0, {}};
  int64_t id = *in_turn;
  if (SlotSet without = line.taken; has_preference && without.insert(preferred_id)) {
    if (served(without, *line.older) == served(line.taken, *line.older)) id = preferred_id;
  }
  return {Kind::kTake, id, pattern.render(id)};
}

}  // namespace idetcd::slots
