// A set of slots, kept as runs of consecutive IDs: slots that are taken in order take one run, however many they are,
// and free ones take no memory. Completion thread only.
#pragma once

#include <initializer_list>

#include "base/std.h"

namespace idetcd::slots {

class SlotSet {
 public:
  SlotSet() = default;
  SlotSet(std::initializer_list<int64_t> ids);

  // In logarithmic time. REQUIRES: id > 0.
  bool insert(int64_t id);  // false: it is there already
  bool erase(int64_t id);   // false: it is not there
  bool contains(int64_t id) const;

  int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // The ID, from 1 on, that is not in the set and has `rank` such IDs before it. In the time of a walk over the runs.
  int64_t missing(size_t rank) const;
  // How many of the IDs from 1 to `last` are not in the set. In the same time. REQUIRES: last >= 0.
  int64_t missingUpTo(int64_t last) const;
  // The lowest IDs, `most` at most.
  std::vector<int64_t> lowest(size_t most) const;

 private:
  using Runs = std::map<int64_t, int64_t>;  // first -> last; between two runs an ID is missing

  // The run with `id` in it, or the last one before it; end() if none.
  Runs::const_iterator find(int64_t id) const;

  Runs runs_;
  int64_t size_ = 0;
};

}  // namespace idetcd::slots
