#include "slots/waiting_line.h"

namespace idetcd::slots {

void WaitingLine::beginLook() {
  looking_ = true;
  must_look_ = false;
  pending_.clear();
}

void WaitingLine::endLook(QueueSnapshot line) {
  line_ = std::move(line);
  looking_ = false;
  for (const Change& change : std::exchange(pending_, {})) {
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
  } else if (line_.taken.insert(id) && line_.older) {
    for (QueueSnapshot::Tickets& tickets : *line_.older) {
      if (tickets.count == 0 || tickets.limit < id) continue;
      --tickets.count;
      break;
    }
  }
}

}  // namespace idetcd::slots
