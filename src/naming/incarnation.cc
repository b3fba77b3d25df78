#include "naming/incarnation.h"

#include "naming/keyspace.h"
#include "node/uuid.h"

namespace idetcd::naming {
namespace {

using store::Compare;

constexpr size_t kMaxOurs = 64;

}  // namespace

// Clones may draw the same random number: the kernel's generator was copied with the rest. Their clocks are read at
// different moments.
std::string Incarnation::draw(Context& context) {
  return fmt::format("{}-{:x}-{:x}", node::randomUuid(context.random), context.scheduler.wallTime().count(),
                     context.now().time_since_epoch().count());
}

void Incarnation::hold(std::string uuid, int64_t lease, Written written, const node::Standstill::Mark& mark) {
  assert(!uuid.empty());
  uuid_ = std::move(uuid);
  lease_ = lease;
  held_mark_ = looked_mark_ = mark;
  if (written.revision != 0) there_ = written.value;
  revision_ = written.revision;
  ours_.push_back(written.value);
  current_ = std::move(written.value);
  if (!written.as_of) return renew();  // a copy of this process may have sent the same claim
  held_as_of_ = *written.as_of;
  holder_ = Holder::kOurs;
}

void Incarnation::letGo() {
  uuid_.clear();
  current_.clear();
  wanted_.clear();
  ours_.clear();
  in_doubt_ = false;
  forgetKey();
  holder_ = Holder::kUnconfirmed;
}

void Incarnation::addWrite(store::Transaction* transaction) const {
  assert(isHeld());
  const std::string key = incarnationKey(uuid_);
  // Not the revision: a store that was set back can have come to the same one with another process's.
  if (there_) transaction->require({.key = key, .target = Compare::Target::kValue, .value = *there_});
  if (!there_) transaction->require({.key = key, .target = Compare::Target::kCreateRevision, .number = 0});
  transaction->put({key, wanted_, lease_});
}

store::Transaction::Read Incarnation::addRead(store::Transaction* transaction) const {
  assert(isHeld());
  return transaction->read({store::KeyRange::single(incarnationKey(uuid_)), {}}, store::Transaction::Branch::kBoth);
}

void Incarnation::renew() {
  if (!isHeld()) return;
  wanted_ = draw(context_);
  if (ours_.size() == kMaxOurs) ours_.erase(ours_.begin());
  ours_.push_back(wanted_);
}

void Incarnation::doubt() {
  looked_mark_ = standstill_.mark();
  in_doubt_ = true;
  renew();
}

bool Incarnation::isOurs(const store::KeyValue& kv) const {
  return std::find(ours_.begin(), ours_.end(), kv.value) != ours_.end();
}

Incarnation::HolderVerdict Incarnation::judge(const std::vector<store::KeyValue>& found, BootClock::time_point at,
                                              const node::Standstill::Mark& mark) {
  if (holder_ == Holder::kForeign || holder_ == Holder::kDuplicateNodeId)
    return HolderVerdict::kNothing;  // the keeper gives the name up
  const bool may_write = at >= writes_refused_until_;
  bool confirmed = false;
  if (found.empty()) {  // not written yet, deleted, or the lease has ended
    forgetKey();
  } else if (isOurs(found.front())) {
    confirmed = learn(found.front(), may_write);
  } else if (found.front().lease == lease_ || !current_.empty()) {
    return judgeForeign(found.front(), at);
  } else {  // an earlier process's
    rememberKey(found.front());
  }
  if (!confirmed) {
    if (wanted_.empty()) renew();
    return may_write ? HolderVerdict::kAskAgain : HolderVerdict::kNothing;
  }
  held_as_of_ = at;
  held_mark_ = looked_mark_ = mark;
  holder_ = Holder::kOurs;
  return HolderVerdict::kHolder;
}

// One of ours is there. True: it confirms that the lease is ours.
bool Incarnation::learn(const store::KeyValue& kv, bool may_write) {
  rememberKey(kv);
  if (kv.value == wanted_) {
    current_ = std::exchange(wanted_, {});
    in_doubt_ = false;
    return true;
  }
  // An incarnation that the store refuses to write leaves the one before in force; but after a standstill a copy of this
  // process may have that too.
  if (kv.value == current_) return wanted_.empty() || (!may_write && !in_doubt_);
  current_ = kv.value;  // an older one: the store was set back, or an answer was lost
  return false;
}

// What another process has written since is not overwritten: the next compare-and-swap, if any, fails.
Incarnation::HolderVerdict Incarnation::judgeForeign(const store::KeyValue& kv, BootClock::time_point at) {
  wanted_.clear();
  if (kv.lease == lease_) {
    holder_ = Holder::kForeign;
    return HolderVerdict::kHolder;
  }
  // Written after ours: another process with our UUID holds a lease of its own. If not, the store was set back, and the
  // watch or the next renewal will show what became of the name; what they have not shown within a lease they never will.
  if (kv.mod_revision <= revision_ && at - held_as_of_ < lease_time_) return HolderVerdict::kNothing;
  holder_ = Holder::kDuplicateNodeId;
  return HolderVerdict::kHolder;
}

}  // namespace idetcd::naming
