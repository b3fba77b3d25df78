// When etcd's revisions came about, as far as this process has seen it: how old a key is. A revision is known to about
// kResolution, those of long ago less exactly. Scheduler's thread only; no I/O.
#pragma once

#include "base/clock.h"

namespace idetcd::naming {

class RevisionTimes {
 public:
  static constexpr std::chrono::milliseconds kResolution{100};
  static constexpr size_t kMost = 4096;

  // The store has this revision now.
  void saw(int64_t revision, BootClock::time_point now) {
    if (!seen_.empty() && revision <= seen_.back().revision) return;
    // The first one says only what was there before.
    if (seen_.size() > 1 && now - seen_.back().at < kResolution) {
      seen_.back().revision = revision;
      return;
    }
    if (seen_.size() == kMost) thin();
    seen_.push_back({revision, now});
  }
  // The store is another one.
  void clear() { seen_.clear(); }

  // Since when revisions are seen; none: no one was.
  std::optional<BootClock::time_point> begin() const {
    return seen_.empty() ? std::nullopt : std::optional(seen_.front().at);
  }
  // None: it was there before the first one that was seen, or it has not come yet.
  std::optional<BootClock::time_point> timeOf(int64_t revision) const {
    if (seen_.empty() || revision <= seen_.front().revision) return std::nullopt;
    const auto found = std::lower_bound(seen_.begin(), seen_.end(), revision,
                                        [](const Seen& seen, int64_t wanted) { return seen.revision < wanted; });
    return found != seen_.end() ? std::optional(found->at) : std::nullopt;
  }

 private:
  struct Seen {
    int64_t revision = 0;
    BootClock::time_point at;
  };

  // Of the older half every second one goes; the first one stays.
  void thin() {
    size_t kept = 1;
    for (size_t i = 2; i < seen_.size(); i += i < kMost / 2 ? 2 : 1) seen_[kept++] = seen_[i];
    seen_.resize(kept);
  }

  std::vector<Seen> seen_;  // rising
};

}  // namespace idetcd::naming
