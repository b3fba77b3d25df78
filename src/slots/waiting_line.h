// Whether it is this node's turn for a slot: a free one is left for it by the tickets ahead (slot_choice.h), from one look
// at etcd and the node's own watch since. One freed slot brings one node to etcd, however many wait. A slot taken
// meanwhile counts as taken by the first ticket ahead that can; one taken past the queue (by the Go plugin) makes the
// place too good by one, which the taking transaction finds out. Completion thread only; no I/O.
#pragma once

#include "slots/name_pattern.h"
#include "slots/slot_choice.h"

namespace idetcd::slots {

class WaitingLine {
 public:
  // `on_change` is called when isOurTurn() or mustLook() may say something else.
  WaitingLine(NamePattern pattern, std::function<void()> on_change)
      : pattern_(std::move(pattern)), on_change_(std::move(on_change)) {}

  // A look is sent: from now on changes are kept, since they may be newer than what it shows.
  void beginLook();
  // Its result. Changes that it knew of do not count again.
  void endLook(QueueSnapshot line);

  bool isOurTurn() const { return !looking_ && line_.older && slotInTurn(pattern_.limit(), line_); }
  // No slot is free.
  bool isFull() const { return !looking_ && line_.taken.size() == pattern_.limit(); }
  // The state has become uncertain: only another look helps.
  bool mustLook() const { return must_look_; }
  // The slots and the place as they are now. REQUIRES: endLook(). beginLook() comes next.
  QueueSnapshot take() { return std::exchange(line_, {}); }

  // --- mirror ---
  void put(std::string_view key, int64_t revision);
  void remove(std::string_view key, int64_t revision);
  void lookAgain();

 private:
  // Between a look and its answer; more make another look necessary.
  static constexpr size_t kMaxPending = 10'000;

  struct Change {
    int64_t id = 0;
    int64_t revision = 0;
    bool put = false;
  };
  void change(std::string_view key, int64_t revision, bool put);
  void apply(int64_t id, bool put);

  const NamePattern pattern_;
  const std::function<void()> on_change_;
  QueueSnapshot line_;
  std::vector<Change> pending_;
  bool looking_ = false;
  bool must_look_ = false;
};

}  // namespace idetcd::slots
