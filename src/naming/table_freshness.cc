#include "naming/table_freshness.h"

namespace idetcd::naming {

void TableFreshness::loaded(int64_t revision, uint64_t cluster_id) {
  state_ = State::kFollowing;
  ++loads_;
  cluster_id_ = cluster_id;
  delivered_ = progressed_ = revision;
  pending_.clear();
  beat_.forget();
}

void TableFreshness::delivered(int64_t revision) {
  if (revision <= delivered_) return;
  delivered_ = revision;
  beat_.beginPatience();
  settle();
}

void TableFreshness::progressed(int64_t revision) {
  progressed_ = std::max(progressed_, revision);
  if (pending_.empty()) return;
  catchUp();
  const bool lags = pending_.front().revision > revision && context_.now() - pending_.front().at > grace_;
  if (lags && state_ == State::kFollowing) state_ = State::kLagging;
  settle();
}

void TableFreshness::watchOpened() {
  watchEnded();  // another may have been open until now
  catchUp();
  beat_.beginPatience();
}

void TableFreshness::answered(const Asked& asked, int64_t revision, uint64_t cluster_id) {
  if (state_ == State::kEmpty || asked.loads != loads_) return;
  // Only a new snapshot ends that: the store may have gone on beyond our revision when it is looked at again.
  if (cluster_id != cluster_id_ || revision < asked.delivered) state_ = State::kOtherStore;
  if (state_ != State::kOtherStore) take({asked.at, revision});
}

void TableFreshness::take(const Reading& reading) {
  if (pending_.empty()) beat_.drawWait();
  if (pending_.size() == kMaxPending) pending_.pop_front();
  pending_.push_back(reading);
  settle();
}

// The answer to a progress request is no evidence: it may come ahead of events that are still to be sent. It is taken
// only while the store refuses the beat.
void TableFreshness::settle() {
  const int64_t evidence = beat_.isRefused() ? std::max(delivered_, progressed_) : delivered_;
  std::optional<BootClock::time_point> confirmed;
  while (!pending_.empty() && pending_.front().revision <= evidence) {
    confirmed = pending_.front().at;
    pending_.pop_front();
  }
  const int64_t lag = pending_.empty() ? 0 : pending_.back().revision - evidence;
  context_.counters.watch_lag_revisions.set(static_cast<double>(lag));
  if (!confirmed) return;
  catchUp();
  if (on_current_) on_current_(*confirmed);
}

bool TableFreshness::isBehind() const {
  if (state_ == State::kOtherStore || state_ == State::kLagging) return true;
  return state_ != State::kEmpty && beat_.isLacking(delivered_);
}

}  // namespace idetcd::naming
