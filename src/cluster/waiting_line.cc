#include "cluster/waiting_line.h"

#include <utility>

namespace idetcd::cluster {

void WaitingLine::beginLook() {
  looking_ = true;
  must_look_ = false;
  pending_.clear();
  free_.clear();
}

void WaitingLine::endLook(Line line, std::unordered_set<std::string> free_slots) {
  line_ = std::move(line);
  free_ = std::move(free_slots);
  looking_ = false;
  for (const Change& change : std::exchange(pending_, {})) {
    if (change.revision > line_.revision) apply(change.key, change.put);
  }
}

bool WaitingLine::isOurTurn() const { return !looking_ && line_.rank && free_.size() > *line_.rank; }

void WaitingLine::put(std::string_view key, int64_t revision) { change(key, revision, true); }

void WaitingLine::remove(std::string_view key, int64_t revision) { change(key, revision, false); }

void WaitingLine::lookAgain() {
  must_look_ = true;
  on_change_();
}

void WaitingLine::change(std::string_view key, int64_t revision, bool put) {
  if (looking_) {
    if (pending_.size() >= kMaxPending) {
      must_look_ = true;
    } else {
      pending_.push_back({std::string(key), revision, put});
    }
    return;
  }
  if (revision <= line_.revision) return;
  apply(std::string(key), put);
  on_change_();
}

void WaitingLine::apply(const std::string& key, bool put) {
  if (!put) {
    if (line_.keys.erase(key) > 0) free_.insert(key);
    return;
  }
  if (free_.erase(key) == 0) return;
  line_.keys.insert(key);
  if (line_.rank && *line_.rank > 0) --*line_.rank;
}

}  // namespace idetcd::cluster
