// A key in each watched range that one node rewrites for all now and then: where others write outside these ranges, its
// event shows every node that its watch is at the present. Scheduler's thread only.
#pragma once

#include "base/clock.h"
#include "naming/context.h"
#include "store/transaction.h"

namespace idetcd::naming {

class Beat {
 public:
  using Reads = std::vector<store::Transaction::Read>;

  // `patience`: for an event that is in the store to come.
  Beat(Context& context, std::vector<std::string> keys, std::chrono::nanoseconds lease,
       std::chrono::nanoseconds patience);

  // --- a transaction ---
  void addWrite(store::Transaction* transaction) const;
  Reads addReads(store::Transaction* transaction) const;
  void learn(const store::Transaction& transaction, store::TxnResult& answer, const Reads& reads, int64_t delivered);
  // The store refuses the write: it is not tried again for a while.
  void refused() { refused_until_ = context_.now() + lease_; }
  bool isRefused() const { return context_.now() < refused_until_; }

  // --- the watch ---
  // `delivered`: up to which revision, here and below, all events are in the table.
  void saw(std::string_view key, int64_t revision, int64_t delivered);
  // How many of the keys are there, as far as it is known.
  int64_t keys() const { return std::ranges::count_if(revisions_, [](int64_t revision) { return revision > 0; }); }
  // A snapshot: what is known of the keys is of another time.
  void forget() { revisions_.assign(keys_.size(), 0); }
  // An event has come, or a watch was opened.
  void beginPatience() { lacking_since_ = context_.now(); }
  // An event of it is in the store, and does not come.
  bool isLacking(int64_t delivered) const {
    return revision() > delivered && context_.now() - lacking_since_ > patience_;
  }

  // When it is to be rewritten, if no event comes until then. `waits_since`: the oldest reading that it would confirm.
  BootClock::time_point dueFor(BootClock::time_point waits_since, int64_t delivered) const;
  // Draws anew how long this node waits for another one to rewrite it.
  void drawWait();

 private:
  void learn(const std::vector<int64_t>& revisions, int64_t delivered);
  int64_t revision() const;

  Context& context_;
  const std::vector<std::string> keys_;
  const std::chrono::nanoseconds lease_;
  const std::chrono::nanoseconds patience_;
  std::vector<int64_t> revisions_;       // of each key, as far as it is known; 0: there is none
  BootClock::time_point seen_at_;        // when this one was first seen
  BootClock::time_point lacking_since_;  // it was not delivered then
  std::chrono::nanoseconds wait_{0};
  BootClock::time_point refused_until_;
};

}  // namespace idetcd::naming
