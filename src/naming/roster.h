// The current keys of etcd under the names of a pattern: who has which slot, for how long already, for how long
// still. For operators; the mirror (mirror.h) is what queries are answered from.
#pragma once

#include "naming/context.h"
#include "naming/generation.h"
#include "naming/own_name.h"
#include "naming/record_codec.h"
#include "naming/revision_times.h"
#include "records/rrset.h"
#include "runtime/task.h"
#include "slots/name_pattern.h"
#include "store/store.h"

namespace idetcd::naming {

struct RosterSlot {
  int64_t id = 0;
  std::string name;  // the key
  records::MemberAddresses addresses;
  std::string node;        // UUID of who wrote it; empty: the Go plugin, a hand, or what is no record
  std::string place;       // in the network; empty: not said
  bool permanent = false;  // without a lease: it stays until somebody deletes it
  bool drained = false;    // a node holds it and publishes no address under it
  bool foreign = false;    // of a node with another pattern that has this name for another ID
  bool reserved = false;   // nobody has it: it waits for its node, until its lease ends
  bool own = false;        // while this node's ownership is confirmed
  int64_t revision = 0;    // of its last change (mod_revision)
  std::optional<std::chrono::nanoseconds> age;  // since it was created; none: before this process began to look
  std::optional<std::chrono::nanoseconds> age_at_least;  // then
  std::optional<std::chrono::seconds> lease_left;        // rounded down; none: permanent, or it was not asked for
};

struct Roster {
  std::vector<RosterSlot> slots;      // by ID
  std::optional<int64_t> generation;  // of those that are held; none: not known
};

// Scheduler's thread only. What it is given outlives it. `owner` keeps all of them alive as long as a call goes on.
class RosterReader {
 public:
  // Of so many leases etcd is asked how long they still live: a request each, up to kAtOnce at a time.
  static constexpr size_t kMostLeases = 1000;
  static constexpr size_t kAtOnce = 32;

  RosterReader(Context& context, slots::NamePattern pattern, const RevisionTimes& times, const Generation& generation,
               const OwnName& own)
      : context_(context), pattern_(std::move(pattern)), times_(times), generation_(generation), own_(own) {}

  template <typename T>
  using Answer = runtime::Task<store::StoreResult<T>>;

  // All slots that are held, at one revision, and those that are reserved. Where the watch does not show these yet it is
  // waited for, and where it shows more already they are read once more, so that the generation is theirs.
  Answer<Roster> read(std::shared_ptr<void> owner);
  // One; none: nobody holds it, or has reserved it. A name that is none of the pattern's, up to its limit, has the ID 0.
  Answer<std::optional<RosterSlot>> readSlot(std::string name, std::shared_ptr<void> owner);
  // Takes the name from whoever holds it, unless the key has changed since `revision`: false. The key says kReleased first,
  // under the same lease: a node that lives gives the name up then, once its machine is told, and claims the lowest free
  // one. What is still there 1.5 s later is deleted, and at once what is no node's of this kind. What is reserved of it is
  // free. Of a name that is only reserved `revision` is that of the reservation.
  Answer<bool> release(std::string name, int64_t revision);

 private:
  struct Leases;
  struct Reading {
    Roster roster;
    std::vector<int64_t> leases;  // as the slots
    Generation::Members members;
  };

  RosterSlot slotOf(const store::KeyValue& kv, const Result<NodeRecord>& record, int64_t id) const;
  std::optional<RosterSlot> reservedSlot(const store::KeyValue& kv) const;
  Answer<bool> releaseReserved(std::string name, int64_t revision);
  Answer<Reading> readSlots();
  runtime::Task<bool> awaitGeneration(Reading* reading) const;
  runtime::Task<void> askLeases(std::shared_ptr<Leases> leases, std::shared_ptr<void> owner);
  runtime::Task<void> askSome(std::shared_ptr<Leases> leases, std::shared_ptr<void> owner);

  Context& context_;
  const slots::NamePattern pattern_;
  const RevisionTimes& times_;
  const Generation& generation_;
  const OwnName& own_;
};

}  // namespace idetcd::naming
