// Holds what the processes say to the true time and to what the quorum has:
//
//   owner     a process that says that a slot is its own has the slot's key in the store, under the lease it names
//   two       no two processes say so of one slot
//   token     of a slot, each holder's token is above all before; no two claims have one token
//   queue     who puts a name gives a ticket for it, in one revision; a name was left for it by the older tickets
//   reserved  nobody takes a name that waits for another node, which is for three quarters of `hold` at least after that one had it
//   claim     who says that it has claimed a name has had it in the store, under the lease of that claim
//   one       a node has one name in the store
//   kept      nobody gives up a name that it has in the store and can see there, nor, by silence, a place in the queue
//   turns     claims and losses are reported in turn
//   fresh     the names of a process that calls them fresh show what was in the store a lease time ago
// and at rest, when all faults are over:
//   named     every process that can have a name has one, whatever the limits of others
//   dense     names are 1 to N if no process ended and no name was ever lost, but for a nameless one of a lower limit
//   mirror    the names of each process are those of the store
//   generation  it is not below the last change that a process has been there for, and the same for all processes, if they
//             have one limit; unless the store was set back, or stale reads have looked so
//
// What no protocol over leases can promise is excused, for a lease time: an operator overwrites or deletes a key, the
// store is set back, a copy of a process begins while the original runs on unaware. So are etcd's known defects, as far
// as naming/README.md says what remains of them: which may not be more.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dns/name.h"
#include "simulation/etcd_model.h"
#include "simulation/process.h"
#include "simulation/simulated_store.h"
#include "simulation/virtual_time.h"
#include "slots/name_pattern.h"
#include "slots/slot_choice.h"

namespace idetcd::simulation {

struct Violation {
  std::string property;
  std::string text;
  std::vector<size_t> machines;  // that are concerned
};

class Judge {
 public:
  // `watched`: what every process watches. What is passed by reference outlives the judge.
  Judge(const VirtualTime& time, const EtcdModel& model, slots::NamePattern pattern, store::KeyRange watched,
        std::chrono::seconds lease, std::chrono::seconds hold);

  const std::optional<Violation>& violation() const { return violation_; }
  void violated(std::string property, std::string text, std::vector<size_t> machines);

  // --- what happens ---
  // `family`: the process that it is a copy of, or itself.
  void began(Process& process, uint64_t family);
  void ended(const Process& process);
  // It runs, and may say what it says now.
  void look(Process& process);
  void reportedClaim(const Process& process, const naming::Ownership& owned);
  void reportedLoss(const Process& process);
  // Before the network has it.
  void sent(uint64_t process, const Request& request);
  // The quorum's state has changed.
  void storeChanged();

  // --- what is excused ---
  // Before an operator changes this key: whoever has it, or is about to.
  void operatorTouches(const std::string& key);
  // A ticket or an incarnation.
  void operatorDeletesInternal(const std::string& key);
  void storeWasSetBack();
  // This member answers linearizable reads with what was there before, or does so no more.
  void readsAreStale(size_t member, bool on);
  // etcd revokes this lease, though its holder has reason to think that it has been renewed.
  void leaseIsLost(int64_t lease);
  // Two processes that were one.
  void copied(const Process& original, const Process& copy, bool original_is_aware);
  // No clock of the machine counts what has passed.
  void machineStoodStill(const Process& process, Duration duration);

  // --- now and then ---
  void lookAtAll();

  // --- at rest. None: all is as it should be ---
  std::optional<Violation> atRest() const;

 private:
  // The last Txn of a process that would put a name.
  struct Try {
    int64_t slot = 0;
    int64_t lease = 0;
    Time sent_at;
    std::optional<Time> looked_at;  // when it last asked for that key since
  };
  struct Witness {
    Process* process = nullptr;
    uint64_t family = 0;                     // of processes that were one
    std::optional<Time> fresh_since;         // when its names were first seen to be
    std::optional<naming::Ownership> owned;  // as it was last seen
    uint64_t history = 0;                    // in which that was claimed
    std::optional<Try> tried;
    uint64_t claims = 0;     // that it has counted
    int64_t lease = 0;       // of its ticket, while it waits; 0: it does not
    Time spoke_of_lease_at;  // when it last asked for it, or was seen to stand
    std::optional<naming::Ownership> reported;
    Time excused_until;  // whatever it says of its name
    Time freshness_excused_until;
    Time reads_stale_until;         // the last answers of a member whose reads are stale count for so long
    uint64_t unaware_original = 0;  // that goes on beside this copy; 0: none, or it can know
    Duration stood_still{0};        // in all, and no clock of its own has counted it
    // The highest revision that it knew of when the store was set back: history that ended -> revision.
    std::map<uint64_t, int64_t> seen_when_set_back;
  };
  struct Holder {
    int64_t token = 0;
    int64_t revision = 0;  // of the claim
    uint64_t process = 0;
    uint64_t family = 0;
    uint64_t history = 0;
  };

  struct Change {
    dns::Name name;
    const store::WatchEvent* event = nullptr;
    bool may_be_gone = false;  // from what a process shows
  };

  struct Touched {
    Time at;
    int64_t revision = 0;
  };

  bool isExcused(const Witness& witness) const;
  std::optional<naming::Ownership> owned(const Witness& witness) const;  // now; none while it stands
  uint64_t historyOf(const Witness& witness) const;
  bool isInStore(const Witness& witness) const;
  void noteStaleReads(Witness& witness);
  void judgeOwner(const Witness& witness);
  void judgeTwo(const Witness& witness);
  void judgeToken(const Witness& witness);
  std::vector<Change> changesUntil(Time past) const;
  void judgeFreshness(const Witness& witness, const std::vector<Change>& changes);
  void judgeClaim(Witness& witness);
  void judgeReserved(const store::WatchEvent& event, int64_t slot, const std::string& uuid);
  void judgeQueue(const std::vector<store::WatchEvent>& history, size_t first, size_t last);
  void judgeKept(const Witness& witness, int64_t lease);
  void judgeTicket(const store::WatchEvent& event);
  void noteNames(const store::WatchEvent& event, int64_t slot);
  void excuseCopies(const store::KeyValue& kv, int64_t slot, const std::string& uuid);
  bool hasUnknownCopy(uint64_t id) const;
  bool hasCopy(uint64_t id) const;  // that runs
  bool isAmbiguous(const std::string& uuid) const;
  std::string describe(const Witness& witness) const;
  // Of a ticket.
  std::string nodeOf(const std::string& ticket) const;
  int64_t limitOf(const std::string& ticket) const;
  struct Turn {
    int64_t since = 0;  // the ticket is in the queue
    size_t older = 0;
    bool limits_differ = false;
    size_t free = 0;  // names within its limit, when each older one has got the lowest within its own
  };
  // None: it was not there at this revision of the store, or that is compacted.
  std::optional<Turn> turnAt(int64_t revision, const std::string& ticket) const;
  std::optional<naming::NodeRecord> recordOf(const store::KeyValue& kv) const;
  std::string keyOf(int64_t slot) const { return pattern_.render(slot); }
  void noteChange(const store::WatchEvent& event, int64_t slot);
  std::optional<Violation> generationsAtRest() const;
  std::optional<Violation> mirrorAtRest(const Witness& witness, size_t names) const;

  const VirtualTime& time_;
  const EtcdModel& model_;
  const slots::NamePattern pattern_;
  const std::string queue_;  // the prefix of tickets
  const store::KeyRange watched_;
  const std::chrono::seconds lease_;
  const std::chrono::seconds hold_;
  std::optional<Violation> violation_;
  std::map<uint64_t, Witness> witnesses_;             // by process
  std::map<int64_t, std::set<uint64_t>> claimants_;   // of each slot, those that said last that they own it
  std::map<int64_t, std::vector<Holder>> holders_;    // of each slot, in order
  std::map<int64_t, Touched> touched_;                // of each slot, by an operator
  std::set<std::string> shared_;                      // UUIDs that two processes had at once
  struct LastOwner {
    std::string uuid;
    Time at;
  };
  std::map<int64_t, LastOwner> last_owners_;          // of each slot, who said last that it was its own
  std::map<int64_t, Time> released_;                  // of each slot, when an operator last freed it or its reservation
  std::map<std::string, Time> incarnations_deleted_;  // by an operator
  std::map<int64_t, size_t> revokers_;                // of each lease, the machine that last asked to revoke it
  std::map<std::string, std::set<uint64_t>> users_;   // of each UUID, the processes that began with it
  std::map<int64_t, std::string> names_;              // of each slot that is taken, whose it is; empty: nobody's
  std::set<int64_t> named_;                           // slots with a record
  std::map<int64_t, Touched> changed_;                // of each slot, when it was taken last, or freed
  std::set<int64_t> leases_of_names_;                 // under which a name was ever put
  bool names_by_operator_ = false;                    // an operator has put some
  size_t judged_ = 0;                                 // of the store's history
  std::vector<std::pair<Time, int64_t>> revisions_;   // when the store came to a revision
  uint64_t history_ = 0;                              // counts how often the store was set back
  Time set_back_at_;
  bool somebody_ended_ = false;  // or lost a name
  std::set<size_t> stale_members_;
  bool reads_were_stale_ = false;
  std::map<int64_t, Time> lost_leases_;
};

}  // namespace idetcd::simulation
