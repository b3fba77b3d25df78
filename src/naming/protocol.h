// The naming protocol of one node over a store: the claim and keeping of its own name
// (name_keeper.h), the mirror of all names (mirror.h), and the confirmation of both (confirmation.h). All that decides
// which node owns a name is below this class, and nothing else: no file, no other program, no thread. So it runs in
// virtual time too (tests/simulation). Its time is the scheduler's, its chance the random source's.
#pragma once

#include "base/log.h"
#include "base/metrics.h"
#include "base/random.h"
#include "naming/claim.h"
#include "naming/confirmation.h"
#include "naming/context.h"
#include "naming/generation.h"
#include "naming/keyspace.h"
#include "naming/mirror.h"
#include "naming/name_keeper.h"
#include "naming/own_key_observer.h"
#include "naming/relay.h"
#include "naming/relayed_names.h"
#include "naming/revision_times.h"
#include "naming/roster.h"
#include "naming/shared_address.h"
#include "records/record_store.h"
#include "runtime/scheduler.h"
#include "store/store.h"

namespace idetcd::naming {

class Protocol {
 public:
  struct Options {
    Claim::Options claim;         // pattern, lease, and the record of this node with its UUID
    bool exit_when_full = false;  // call on_refused if no name is free at start, instead of waiting for one
    bool observe = false;         // serve names, claim none
    std::chrono::nanoseconds reconcile_interval{std::chrono::seconds(60)};
    size_t max_names = 10'000'000;                         // more are not served
    int64_t most_at_once = 100;                            // see Mirror::Options
    std::vector<store::KeyRange> watched{watchedRange()};  // see watchedRanges()
    RelayOptions relay{};                                  // by default there is none
    metrics::Scope metrics{};
    // All are called on the scheduler's thread, unless said otherwise, and may be empty.
    std::function<void(std::string)> on_refused = {};  // with a line for the operator, once
    // ownership() may say something else, but for its deadline, which passes by itself.
    std::function<void()> on_change = {};
    // After stop(): the name was given up in the store, or cannot be. Within start() if the scheduler stops already.
    std::function<void()> on_released = {};
  };

  // Arguments passed by reference outlive the protocol.
  Protocol(runtime::Scheduler& scheduler, store::Store& store, RandomSource& random, records::RecordStore& records,
           Options options, const Logger& log);

  // --- before start() ---
  // What an earlier process of this node has seen or had: no token is lower; the slot to take if it is free.
  void sawToken(int64_t token) { own_key_.sawToken(std::min(token, kMaxToken)); }
  int64_t highestToken() const { return own_key_.highestToken(); }
  void prefer(int64_t id) { keeper_.prefer(id); }

  // Spawns the tasks; each keeps `owner` alive until its end. Any thread, once.
  void start(const std::shared_ptr<void>& owner);
  // Scheduler's thread. Ownership ends at once, and the record store is not touched any more; then the name is given up
  // in the store.
  void stop();
  bool stopping() const { return lifetime_.stopping(); }
  // After on_released: see NameKeeper.
  bool gaveBack() const { return keeper_.gaveBack(); }

  // This machine is told the name, or is told of its loss: see NameKeeper.
  void setTold(bool told) { keeper_.setTold(told); }

  // See NameKeeper: for a node that has its name in two stores. Scheduler's thread, or before start().
  void bindTo(std::optional<int64_t> id, int64_t token) { keeper_.bindTo(id, std::min(token, kMaxToken)); }
  int64_t heldId() const { return keeper_.heldId(); }
  int64_t heldToken() const { return keeper_.heldToken(); }
  void raiseToken(int64_t token) { keeper_.raiseToken(token); }

  OwnName& name() { return keeper_; }
  const OwnName& name() const { return keeper_; }
  RecordSource& source() { return mirror_; }
  const RecordSource& source() const { return mirror_; }
  RosterReader& roster() { return roster_; }
  Generation& generation() { return generation_; }
  std::string relay() const { return names_.place(); }  // any thread
  Lifetime& lifetime() { return lifetime_; }
  Counters& counters() { return counters_; }
  const Counters& counters() const { return counters_; }

 private:
  Confirmation::Options confirmationOptions() const;
  Mirror::Options mirrorOptions();
  RelayedNames::Options namesOptions() const;
  Relay::Options relayOptions();
  void changed();
  runtime::Task<void> keepName();

  runtime::Scheduler& scheduler_;
  store::Store& store_;
  const Options options_;
  Counters counters_;
  Jitter jitter_;
  Lifetime lifetime_;
  ErrorLogThrottle trouble_;
  RoundTrip round_trip_;
  Context context_;
  OwnKeyObserver own_key_;
  SharedAddress shared_address_;
  Generation generation_;
  RevisionTimes times_;
  Confirmation confirmation_;
  RelayedNames names_;
  Mirror mirror_;
  NameKeeper keeper_;
  Relay relay_;
  RosterReader roster_;
};

}  // namespace idetcd::naming
