// Quorum reads of the key of this node's name, for the times when no watch can show it: until the first snapshot is there,
// which takes seconds where there are many names; between two watches; and once behind each new one, since the store may
// have been set back meanwhile to a time before the claim, and have come as far again. Scheduler's thread only.
#pragma once

#include "base/clock.h"
#include "naming/record_codec.h"
#include "store/store.h"

namespace idetcd::naming {

struct HeldKey {
  std::string key;  // empty: it is not looked at
  int64_t create_revision = 0;
  bool is_unread = false;  // the watch that is open is not to be believed before it is read
};

class SlotReading {
 public:
  void hold(HeldKey slot) {
    slot_ = std::move(slot);
    if (slot_.is_unread) state_ = State::kUnread;
  }
  void letGo() {
    slot_ = {};
    as_of_.reset();
    state_ = State::kTrusted;
  }
  const std::string& key() const { return slot_.key; }

  // To be read, whatever the table shows.
  bool isWanted() const { return state_ != State::kTrusted || !is_watched_; }
  void watchEnded() { is_watched_ = false; }
  // `is_current`: the names have been the present within the lease. True: it counts as missing from now on.
  bool watchOpened(bool is_current) {
    const bool was_missing = isMissing();
    is_watched_ = true;
    state_ = was_missing || !is_current ? State::kDoubted : State::kUnread;
    return isMissing() && !was_missing;
  }
  // What was read at `at`. `is_last_watch`: behind the watch that is open now. True: the owner is to be told.
  bool judge(const std::vector<store::KeyValue>& found, BootClock::time_point at, bool is_last_watch, int64_t lease,
             std::string_view uuid) {
    const bool is_ours = !found.empty() && isOurs(found.front(), lease, uuid);
    const bool changes = is_ours == isMissing() || (!is_ours && as_of_);
    const bool unread = !is_last_watch && (state_ == State::kUnread || state_ == State::kDoubted);
    state_ = is_ours ? (unread ? State::kUnread : State::kTrusted) : (unread ? State::kDoubted : State::kMissing);
    as_of_ = is_ours ? std::optional(at) : std::nullopt;
    return changes;
  }

  // See Confirmation.
  std::optional<BootClock::time_point> asOf() const { return as_of_; }
  bool isMissing() const { return state_ == State::kDoubted || state_ == State::kMissing; }
  bool isGone() const { return state_ == State::kMissing; }

 private:
  enum class State {
    kTrusted,  // the watch is to be believed, while one is open
    kUnread,   // not read since the last watch was opened
    kDoubted,  // the same, and it was missing before, or names were old
    kMissing,  // it was not there, or not under the lease, when it was last read
  };

  bool isOurs(const store::KeyValue& kv, int64_t lease, std::string_view uuid) const {
    const Result<NodeRecord> record = decodeRecord(kv.value);  // by hand it can be overwritten under our lease, too
    return kv.lease == lease && kv.create_revision == slot_.create_revision && record && record->id == uuid;
  }

  HeldKey slot_;
  State state_ = State::kTrusted;
  bool is_watched_ = false;
  std::optional<BootClock::time_point> as_of_;
};

}  // namespace idetcd::naming
