#include "slots/slot_choice.h"

#include <iterator>

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

SlotSet::SlotSet(std::initializer_list<int64_t> ids) {
  for (const int64_t id : ids) insert(id);
}

SlotSet::Runs::const_iterator SlotSet::find(int64_t id) const {
  const auto next = runs_.upper_bound(id);
  return next == runs_.begin() ? runs_.end() : std::prev(next);
}

bool SlotSet::contains(int64_t id) const {
  const auto run = find(id);
  return run != runs_.end() && id <= run->second;
}

bool SlotSet::insert(int64_t id) {
  assert(id > 0);
  const auto before = find(id);
  if (before != runs_.end() && id <= before->second) return false;
  int64_t first = id;
  int64_t last = id;
  if (const auto next = runs_.find(id + 1); next != runs_.end()) {
    last = next->second;
    runs_.erase(next);
  }
  if (before != runs_.end() && before->second == id - 1) first = before->first;
  runs_[first] = last;
  ++size_;
  return true;
}

bool SlotSet::erase(int64_t id) {
  const auto run = find(id);
  if (run == runs_.end() || id > run->second) return false;
  const auto [first, last] = *run;
  runs_.erase(run);
  if (first < id) runs_[first] = id - 1;
  if (id < last) runs_[id + 1] = last;
  --size_;
  return true;
}

int64_t SlotSet::missing(size_t rank) const {
  int64_t id = static_cast<int64_t>(rank) + 1;
  for (const auto& [first, last] : runs_) {
    if (id < first) break;
    id += last - first + 1;
  }
  return id;
}

int64_t SlotSet::missingUpTo(int64_t last) const {
  assert(last >= 0);
  int64_t missing = last;
  for (const auto& [first, end] : runs_) {
    if (first > last) break;
    missing -= std::min(end, last) - first + 1;
  }
  return missing;
}

std::vector<int64_t> SlotSet::lowest(size_t most) const {
  std::vector<int64_t> ids;
  for (const auto& [first, last] : runs_) {
    for (int64_t id = first; id <= last; ++id) {
      if (ids.size() == most) return ids;
      ids.push_back(id);
    }
  }
  return ids;
}

std::optional<int64_t> slotInTurn(int64_t limit, const QueueSnapshot& line) {
  assert(line.older);
  if (line.own_reservation) return line.own_reservation->id;
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
  if (SlotSet without = line.taken; has_preference && !line.own_reservation && without.insert(preferred_id)) {
    if (served(without, *line.older) == served(line.taken, *line.older)) id = preferred_id;
  }
  return {Kind::kTake, id, pattern.render(id)};
}

SlotChoice chooseOnly(const NamePattern& pattern, const QueueSnapshot& line, int64_t id) {
  using Kind = SlotChoice::Kind;
  if (!line.older && !line.far_back) return {Kind::kUnqueued, 0, {}};
  if (line.older && line.own) return {line.own->abandoned ? Kind::kTakeBack : Kind::kOldLease, id, pattern.render(id)};
  if (!line.older || line.taken.contains(id)) return {Kind::kWait, id, pattern.render(id)};
  return {Kind::kTake, id, pattern.render(id)};
}

void WaitingLine::beginLook() {
  looking_ = true;
  must_look_ = guessed_ = false;
  pending_.clear();
}

void WaitingLine::endLook(QueueSnapshot line) {
  line_ = std::move(line);
  looking_ = false;
  const std::vector<Change> since = std::exchange(pending_, {});
  if (isInTurn()) return;
  for (const Change& change : since) {
    if (change.revision > line_.revision) apply(change.id, change.put);
  }
}

void WaitingLine::put(std::string_view key, int64_t revision) { change(key, revision, true); }

void WaitingLine::remove(std::string_view key, int64_t revision) { change(key, revision, false); }

void WaitingLine::lookAgain() {
  must_look_ = true;
  on_change_();
}

void WaitingLine::change(std::string_view key, int64_t revision, bool put) {
  const std::optional<int64_t> id = pattern_.recognise(key);
  if (!id) return;
  if (looking_) {
    if (pending_.size() >= kMaxPending) {
      must_look_ = true;
    } else {
      pending_.push_back({*id, revision, put});
    }
    return;
  }
  if (revision <= line_.revision) return;
  apply(*id, put);
  on_change_();
}

void WaitingLine::apply(int64_t id, bool put) {
  if (!put) {
    line_.taken.erase(id);
    guessed_ = guessed_ || line_.reserving;
  } else if (line_.taken.insert(id) && line_.older) {
    guessed_ = true;
    for (QueueSnapshot::Tickets& tickets : *line_.older) {
      if (tickets.count == 0 || tickets.limit < id) continue;
      --tickets.count;
      break;
    }
  }
}

}  // namespace idetcd::slots
