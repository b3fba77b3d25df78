#include "slots/slot_set.h"

#include <iterator>

namespace idetcd::slots {

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

}  // namespace idetcd::slots
