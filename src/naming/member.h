// One node's membership of its cluster: a keeper of its own name and a mirror of all names, over a store that it is
// given, whichever that is. While the cluster moves to another store there are two (own_names.h): the name is claimed in
// the first one, and after that the same one in the second. Each has its table of records.
//
// start() returns at once, after restore(); everything goes on in the background on the scheduler's thread, for as long
// as it takes: the store may be away at start and at any time later. Any thread may call any function, start() once; it
// does nothing after stop().
#pragma once

#include "base/executor.h"
#include "base/log.h"
#include "base/metrics.h"
#include "naming/keyspace.h"
#include "naming/ownership.h"
#include "naming/relay.h"
#include "naming/roster.h"
#include "node/addresses.h"
#include "node/health_checks.h"
#include "node/state_directory.h"
#include "records/record_store.h"
#include "runtime/scheduler.h"
#include "sandbox/program_runner.h"
#include "slots/name_pattern.h"
#include "store/store.h"

namespace idetcd::naming {

class Member {
 public:
  struct Options {
    slots::NamePattern pattern;
    std::chrono::seconds lease{20};
    std::chrono::seconds hold{0};  // see Reservation
    bool exit_when_full = false;       // call on_fatal if no name is free at start, instead of waiting for one
    bool observe = false;              // serve names, claim none
    records::MemberAddresses addresses;  // of this node
    uint16_t dns_port = 53;
    std::vector<records::Service> services;  // that it offers
    std::string place;                       // in the network (node/place.h); empty: not known
    std::string uuid;                        // of this node; empty: as in `state`, or a random one
    // Keeps UUID, last name and all names over a restart, and publishes the own name to shells; may be null.
    std::shared_ptr<node::StateDirectory> state;
    // Writes the files of `state`.
    std::shared_ptr<Executor> executor = std::make_shared<Executor>();
    std::chrono::milliseconds save_interval{30'000};  // between two writings of the names; they are large
    std::vector<std::string> on_claim;                // a program and its arguments (claim_hook.h); may be empty
    std::shared_ptr<sandbox::ProgramRunner> runner;   // runs it
    // By which the machine is sick or well; of a sick node the name has no address, or is given up. Empty: it is well.
    std::vector<node::Check> checks;
    node::CheckTimes check_times;
    bool check_releases = false;
    int check_floor_percent = 50;  // of the nodes that are to stay in (health_gate.h)
    // Where this node's addresses come from when those of the machine have changed; called on a thread of its own.
    // Empty: they stay as they are.
    std::function<Result<node::NodeAddresses>()> find_addresses;
    size_t max_names = 10'000'000;  // more are not served
    std::chrono::milliseconds reconcile_interval{60'000};
    std::vector<store::KeyRange> watched{watchedRange()};  // see watchedRanges()
    RelayOptions relay{};                                  // by default there is none
    metrics::Scope metrics{};
    // Owns the records of the constructor, if they may end before the member: see keep().
    std::shared_ptr<const void> records{};
    // Called on the scheduler's thread whenever this node begins or ceases to own its name: with the ownership, or with
    // none, strictly in turn. It is also called when the deadline passes without a renewal; a renewal in time is no
    // change, ownership() shows the new deadline. After a pause of the process none comes before anything else. Must
    // not block and not call stop(). Not called any more when stop() has returned; stop() brings a last call with none.
    std::function<void(const std::optional<Ownership>&)> on_ownership;
  };

  // `scheduler` and `records` outlive the member. `on_fatal` is called on the scheduler's thread, at most once, with a
  // line for the operator, when this node cannot be a member: no name is free at start, with `exit_when_full`.
  // REQUIRES: `store` runs on `scheduler`.
  Member(runtime::Scheduler& scheduler, std::unique_ptr<store::Store> store, records::RecordStore& records,
         Options options, Logger log, std::function<void(std::string)> on_fatal);
  ~Member();  // stop(0)
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  // Takes over the names that other tables of this store have, as old ones; without any, reads what an earlier process
  // has left in `state`, as large as that may be: blocks on the file system, and changes nothing there.
  void restore(const std::vector<const records::RecordStore*>& known = {});
  // After restore(), before start(): the node is one of those that have founded the store's cluster together, which gave
  // it this ID (0: it is none of them); it takes that slot, unless it remembers another one. No fencing token is as low
  // as `token_base`.
  void found(int64_t id, int64_t token_base);
  // That this node has seen until now.
  int64_t highestToken() const;
  // After restore(), or in its place if it was not called.
  void start();
  // The part of start() that concerns the state directory, where the rest has to wait for the store: what a process before
  // has handed over there ends in time. No effect if that has been done.
  void takeFiles();

  // --- a cluster that moves; one thread calls these. ---
  // From now on the node has its name in `store` too, which writes `records`: as those of the constructor. Nothing
  // is asked of it before startSecond(). `needed`: the name is not owned before both stores say so. `token_base`: no
  // token in the second store is as low.
  void addSecond(std::unique_ptr<store::Store> store, std::shared_ptr<records::RecordStore> records,
                 const metrics::Scope& metrics, bool needed);
  void startSecond(int64_t token_base = 0);
  // Goes on with one of the two; what the other one has of this node is given up. Waits for that for about `budget`. When
  // it returns, nothing is written into the records of the other one any more, unless stop() is under way; the member
  // keeps them as long as it may read them. Not within a callback.
  enum class Which { kFirst, kSecond };
  void keep(Which which, std::chrono::milliseconds budget);
  struct Second {
    std::shared_ptr<const store::Store> store;
    bool connected = false;
    bool needed = false;  // the name is owned only while both stores confirm it
    bool owned = false;   // the second one does
  };
  // None: there is one store.
  std::optional<Second> second() const;

  // Ends the claim or gives the name up: lease, ticket and slot vanish from etcd together. Waits for that, and for the
  // program of `on_claim`, for about `budget`. When it returns, `records` is not touched any more, nothing is called
  // back any more, and the state directory is free for another. True: the store has confirmed that nothing is held any
  // more; false: a lease may live until its time is over. Not within a callback.
  bool stop(std::chrono::milliseconds budget);

  // The process is about to end at once, without stop(): the name stays in etcd until its lease ends, but no program of
  // `on_claim` is left running, and the state directory names no owner, unless the process `successor` (0: none) takes
  // the name over. Waits for nothing.
  void abandon(pid_t successor = 0);

  // The name, while its ownership is confirmed.
  std::optional<Ownership> ownership() const;
  // Of this node, as published. They can change: see find_addresses.
  records::MemberAddresses addresses() const;
  // Of this node. It changes when another node turns out to use the same.
  std::string uuid() const;
  size_t names() const;                               // of the store, that are known
  std::shared_ptr<const store::Store> store() const;  // the first
  // Whether the store is there: it tells of changes. Since when it is, or is not, or else since the start: Unix time.
  struct StoreState {
    bool connected = false;
    std::time_t since = 0;
  };
  StoreState storeState() const;
  bool hadName() const;  // since the start
  // The relay that the names come from, as people read it; empty: they come from the store.
  std::string relay() const;

  // For operators. `done` is called on the scheduler's thread, or is dropped uncalled when that stops.
  template <typename T>
  using Done = std::function<void(T)>;

  // The current content of the store.
  void readRoster(Done<store::StoreResult<Roster>> done);
  void readSlot(std::string name, Done<store::StoreResult<std::optional<RosterSlot>>> done);
  void releaseSlot(std::string name, int64_t revision, Done<store::StoreResult<bool>> done);

  // Takes this node's addresses out of its name, or puts them back; the name stays its own. It outlives the process in
  // `state`. The member keeps trying what is not done when `done` is called.
  static constexpr std::chrono::seconds kDrainPatience{10};
  struct Drained {
    bool published = false;   // the store has confirmed it within kDrainPatience
    bool remembered = false;  // it is in the state directory
    std::string sick;         // why the machine's checks keep the addresses out, whatever the operator says; else empty
  };
  void setDrained(bool drained, Done<Drained> done);
  bool isDrained() const;
  bool remembers() const;  // there is a state directory

  // By `checks`. An operator's drain is apart from it.
  struct Health {
    std::string sick;  // why; empty: the machine is well
    bool out = false;  // so the name has no address, or none is held
  };
  Health health() const;

 private:
  struct Side;
  struct Impl;
  // Shared with the tasks on the scheduler's thread: a call may be under way for some seconds after stop().
  std::shared_ptr<Impl> impl_;
};

}  // namespace idetcd::naming
