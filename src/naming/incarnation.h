// Whether it is this process that holds its lease. An incarnation is a random value below /idetcd/, under the lease,
// written by each claim, and by compare-and-swap after each broken connection and each standstill of the machine. Two processes that
// were resumed from one snapshot of memory hold the same lease; the first to write goes on, the other finds a foreign
// value. Scheduler's thread only.
#pragma once

#include "base/clock.h"
#include "naming/context.h"
#include "node/standstill.h"
#include "store/transaction.h"

namespace idetcd::naming {

class Incarnation {
 public:
  enum class Holder {
    kUnconfirmed,
    kOurs,             // as of heldAsOf()
    kForeign,          // another process has our lease
    kDuplicateNodeId,  // another process has our UUID, and a lease of its own
  };
  enum class HolderVerdict { kNothing, kAskAgain, kHolder };  // kHolder: it was confirmed, or is another one

  Incarnation(Context& context, node::Standstill& standstill, std::chrono::nanoseconds lease)
      : context_(context), standstill_(standstill), lease_time_(lease) {}

  // Other than any of another process, of a copy of this one too.
  static std::string draw(Context& context);
  // By the claim.
  struct Written {
    std::string value;
    int64_t revision = 0;
    std::optional<BootClock::time_point> as_of;  // when the claim was sent; none: its answer was lost
  };
  // `mark`: of the clocks before the claim was sent.
  void hold(std::string uuid, int64_t lease, Written written, const node::Standstill::Mark& mark);
  void letGo();
  bool isHeld() const { return !uuid_.empty(); }
  const std::string& uuid() const { return uuid_; }
  int64_t lease() const { return lease_; }

  // --- a transaction. REQUIRES: isHeld() ---
  bool wantsWrite() const { return !wanted_.empty() && context_.now() >= writes_refused_until_; }
  void addWrite(store::Transaction* transaction) const;
  store::Transaction::Read addRead(store::Transaction* transaction) const;
  // What was read at `at`, when the clocks showed `mark`.
  HolderVerdict judge(const std::vector<store::KeyValue>& found, BootClock::time_point at,
                      const node::Standstill::Mark& mark);
  // The store refuses the write: it is not tried again for a while.
  void refused() { writes_refused_until_ = context_.now() + lease_time_; }

  // To be written anew, if anything is held.
  void renew();
  // How long a pause may be that no lease is lost by.
  std::chrono::nanoseconds tolerance() const { return lease_time_ / 20; }
  // The clocks are out of step since they were last found in step.
  bool stoodStill() const { return standstill_.since(looked_mark_, tolerance()); }
  // A copy of this process may have the lease, until an incarnation is written or found.
  void doubt();
  bool isInDoubt() const { return in_doubt_ || stoodStill(); }

  Holder holder() const { return holder_; }
  BootClock::time_point heldAsOf() const { return held_as_of_; }
  const node::Standstill::Mark& heldMark() const { return held_mark_; }

 private:
  bool isOurs(const store::KeyValue& kv) const;
  bool learn(const store::KeyValue& kv, bool may_write);
  HolderVerdict judgeForeign(const store::KeyValue& kv, BootClock::time_point at);
  void rememberKey(const store::KeyValue& kv) { there_ = kv.value, revision_ = kv.mod_revision; }
  void forgetKey() { there_.reset(), revision_ = 0; }

  Context& context_;
  node::Standstill& standstill_;
  const std::chrono::nanoseconds lease_time_;
  std::string uuid_;  // empty: nothing is held
  int64_t lease_ = 0;
  std::string current_;               // in the store, as far as it is known; empty: none of this lease
  std::optional<std::string> there_;  // the key's value, as it was last found; none: there is none
  int64_t revision_ = 0;              // of that
  std::string wanted_;                // to be written; empty: nothing
  std::vector<std::string> ours_;     // whatever was written or tried under this lease
  bool in_doubt_ = false;             // since a standstill that no incarnation was written after
  BootClock::time_point writes_refused_until_;
  Holder holder_ = Holder::kUnconfirmed;
  BootClock::time_point held_as_of_;
  node::Standstill::Mark held_mark_;
  node::Standstill::Mark looked_mark_;  // when the clocks were last found in step
};

}  // namespace idetcd::naming
