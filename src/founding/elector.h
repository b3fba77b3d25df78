// One machine on its way into a cluster, and as a member that tells others of it: opens what comes (envelope.h), has
// `hello` find the others and `founding` agree with them, and seals what they say. The host brings datagrams, frames,
// time, the disk and the resolver:
//
//   receive()  an envelope has come                        takeMessages()   what is to be sent now; unsent() says what cannot be
//   advance()  wakeAt() has come                           takeUnwritten()  what is to be written now
//   written()  what was to be written is durable           decision()       the cluster, once it is durable
//   resolved() the rendezvous name was looked up again
//   search()   a member reaches the voters, or cannot        next()           the other cluster for which it is to leave
//   left()     it holds nothing any more of the one that it left
//
// After each call the host takes what there is. A machine without a state directory says written() at once, and has to
// be another machine, with another UUID, after each start; such a one, if it may have run before, is silent for
// `silence` first: it only asks, and waits for a member to answer. No I/O; one thread; times are the BootClock's.
#pragma once

#include "founding/founding.h"
#include "founding/hello.h"

namespace idetcd::founding {

// How far it has come, for people.
struct Progress {
  Founding::State state = Founding::State::kTooFew;
  bool silent = false;
  size_t seen = 0;    // electors, this one among them
  size_t quorum = 0;  // so many are needed
  Hello::Duration waited{0};
  bool observes = false;  // is silent for ever
  bool leaves = false;    // its cluster, for another one

  std::string toString() const;  // "37 of 101 machines seen, 12 s"
};

class Elector {
 public:
  using Time = Hello::Time;
  using Duration = Hello::Duration;

  static constexpr Duration kTick = std::chrono::milliseconds(50);
  static constexpr Duration kForEver = std::chrono::hours(1'000'000);

  struct Options {
    Machine self;                           // `elector` is not looked at
    uint16_t port = 0;                      // where it listens, on each of its addresses
    std::vector<SocketAddress> peers = {};  // are asked for ever
    bool has_names = false;                 // resolved() follows
    Duration silence{0};  // kForEver: it observes
  };
  struct Outgoing {
    SocketAddress to;
    std::string envelope;  // up to kMaxDatagram bytes go as a datagram, more as a frame
  };

  // `record`: what was durable when the process started; `Record{uuid}` at the first start. REQUIRES: as for Founding.
  Elector(Options options, const Key& key, Record record, Time now, RandomSource& random);

  // `from`: the port is not looked at.
  void receive(Time now, const SocketAddress& from, std::string_view envelope);
  void advance(Time now);
  // A message for that address could not be sent now; it may be later.
  void unsent(Time now, const SocketAddress& to) { hello_.unsent(now, to); }
  void written(Time now, uint64_t version) { founding_.written(now, version); }
  void resolved(Time now, const std::vector<SocketAddress>& addresses, bool all = true) {
    hello_.resolved(now, addresses, all);
  }
  // Whether a member asks all the time, for the voters of today, because it does not reach those that it knows; said
  // once that is known. One that reaches them asks all addresses once, and then one every kAround; and others believe that
  // its cluster lives.
  void search(bool searching) { searching_ = searching; }
  bool isSearching() const { return searching_ == true; }
  void setVoters(const std::vector<Voter>& voters) {
    if (founding_.decision()) founding_.setVoters(founding_.decision()->cluster, voters);
  }

  Time wakeAt(Time now) const;
  std::vector<Outgoing> takeMessages();
  std::optional<Founding::Unwritten> takeUnwritten() { return founding_.takeUnwritten(); }
  const std::optional<Value>& decision() const { return founding_.decision(); }
  const std::vector<Voter>& voters() const { return founding_.voters(); }  // as last known
  bool hasPromised() const { return founding_.hasPromised(); }
  // Another cluster of this secret, of which a member was met.
  const std::optional<Value>& other() const { return other_; }
  // Another one, to which that of this machine yields, and which lives: this machine is to give up what it holds of its
  // own, and then to say left(). Until then it answers nobody.
  const std::optional<Value>& next() const { return founding_.next(); }
  void left();

  Progress progress(Time now) const;
  const std::array<uint64_t, kDrops>& drops() const { return drops_; }  // by Drop

 private:
  Machine self() const;
  bool isElector() const { return !silent_ && !founding_.decision(); }
  bool isStranger(const Machine& machine) const;
  bool isEcho(const Machine& machine);
  void askAround(Time now);
  void ask(const std::optional<Hello::Question>& question);
  void seal(const SocketAddress& to, Nonce nonce, Body body);
  void drop(Drop reason) { ++drops_[static_cast<size_t>(reason)]; }
  bool isForThis(const std::string& uuid);

  void handle(Time now, const SocketAddress& from, Nonce nonce, const HelloRequest& request);
  void handle(Time now, const SocketAddress& from, Nonce nonce, const HelloResponse& response);
  void handle(Time now, const SocketAddress& from, Nonce nonce, const Prepare& request);
  void handle(Time now, const SocketAddress& from, Nonce nonce, const Accept& request);
  void handle(Time now, const SocketAddress& from, Nonce nonce, const Decided& request);
  template <typename Response>
  void handle(Time now, const SocketAddress& /*from*/, Nonce nonce, const Response& response) {
    if (!founding_.receive(now, nonce, response)) drop(Drop::kNonce);
  }

  const Options options_;
  const Key key_;
  const Time started_;
  bool silent_;
  std::optional<bool> searching_;
  Time around_at_;  // when a member asks the next one
  std::string round_of_;             // the cluster of which it was a member when it began to ask all
  std::deque<SocketAddress> round_;  // is still to be asked
  std::optional<Value> other_;
  Hello hello_;
  Founding founding_;
  std::vector<Outgoing> messages_;
  std::array<uint64_t, kDrops> drops_{};
};

}  // namespace idetcd::founding
