// One machine's part in the founding of a cluster: single-decree Paxos (Lamport, "Paxos Made Simple", 2001) over the
// machines that have none. Every elector is acceptor and may be proposer; README.md has the argument. What is promised,
// accepted and decided is durable before anybody hears of it: the host writes the record that takeUnwritten() gives, and
// says written() when it would survive a loss of power, or at once if this machine is not durable.
//
// The oldest elector that is seen proposes when every address was asked for a cluster, a quorum is seen, and no other machine
// has come for kQuiet; the next ones, if they hear of no attempt, kRankDelay later for each that is older. No I/O; one
// thread; times are the BootClock's.
#pragma once

#include <set>

#include "founding/hello.h"
#include "founding/message.h"

namespace idetcd::founding {

class Founding {
 public:
  using Time = Hello::Time;
  using Duration = Hello::Duration;

  static constexpr Duration kQuiet = std::chrono::milliseconds(500);
  static constexpr Duration kRankDelay = std::chrono::seconds(1);
  static constexpr Duration kResend = std::chrono::milliseconds(200);
  static constexpr Duration kAllPromise = std::chrono::seconds(1);  // after which a quorum of promises is enough
  static constexpr Duration kAttempt = std::chrono::seconds(3);     // for each of the two phases
  static constexpr Duration kMaxBackoff = std::chrono::seconds(8);

  enum class State : uint8_t {
    kTooFew,        // a quorum is not seen
    kTooMany,       // more machines are seen than were expected: none may propose
    kDisagreement,  // another one expects another number: none may propose
    kAsking,        // there may be a cluster behind an address that was not asked yet
    kQuiet,         // machines still come
    kOthers,        // it is the turn of an older one, or of the attempt of another one
    kProposing,     // this one has an attempt
    kDecided,
  };
  struct Outgoing {
    SocketAddress to;
    Nonce nonce = 0;
    Body body;
  };
  struct Unwritten {
    uint64_t version = 0;
    std::string bytes;
  };

  // `record`: what was durable when the process started. REQUIRES: 1 <= self.expect <= kMaxMachines; record.uuid is
  // that of `self`.
  Founding(Machine self, Record record, RandomSource& random);

  size_t quorum() const { return expect_ / 2 + 1; }
  State state() const { return state_; }
  // Once it is durable.
  const std::optional<Value>& decision() const { return decision_; }
  // As last known. They go into the record, so that a machine that comes back finds those of today.
  const std::vector<Voter>& voters() const {
    return record_.voters.empty() && decision_ ? decision_->voters : record_.voters;
  }
  // Whether this machine has taken part in the founding, as its record says. A member of the value has.
  bool hasPromised() const { return record_.promised.round > 0; }
  void setVoters(std::string_view cluster, const std::vector<Voter>& voters);

  // Begins, repeats and gives up attempts. `others`: the other electors that are seen; `last_news`: when the last of
  // them came; `asked_all`: Hello::hasAskedAll().
  void advance(Time now, const std::vector<Hello::Seen>& others, Time last_news, bool asked_all);
  // Requests, if this machine is an elector.
  void receive(Time now, const SocketAddress& from, Nonce nonce, const Prepare& request);
  void receive(Time now, const SocketAddress& from, Nonce nonce, const Accept& request);
  // Responses. False: nothing was asked with this nonce.
  bool receive(Time now, Nonce nonce, const Promise& response);
  bool receive(Time now, Nonce nonce, const Accepted& response);
  bool receive(Time now, Nonce nonce, const Refused& response);
  // A member has said it. What is decided already stays.
  void learn(const Value& value);
  // Another cluster was met, to which this one yields, with these voters today. next(): it is durable that this member
  // leaves its own for that one: then it gives up what it holds of its own. left(): it holds nothing of it any more.
  // REQUIRES: of leaveFor(): decision(); of left(): next().
  void leaveFor(const Value& other, const std::vector<Voter>& voters);
  const std::optional<Value>& next() const { return next_; }
  void left();
  // The record of this version, and so each one before, is durable.
  void written(Time now, uint64_t version);

  // The newest record, if it has not been taken yet; it stands for those before.
  std::optional<Unwritten> takeUnwritten();
  std::vector<Outgoing> takeMessages() { return std::exchange(messages_, {}); }

 private:
  // This machine's attempt to have a value chosen. Its nonce is in all that it sends.
  struct Attempt {
    Ballot ballot;
    Nonce nonce = 0;
    std::vector<Hello::Seen> others;          // who is asked
    Time began;                               // the phase
    Time sent;                                // to those that have not answered
    std::map<std::string, Promise> promises;  // by UUID
    std::optional<Value> value;               // there is one: the second phase
    std::set<std::string> accepted;
  };
  // Waits for the record. Without an address it is for this machine's own attempt.
  struct Answer {
    uint64_t version = 0;
    std::optional<SocketAddress> to;
    Nonce nonce = 0;
    Body body;
  };

  State stateOf(Time now, const std::vector<Hello::Seen>& others, Time last_news, bool asked_all) const;
  void propose(Time now, const std::vector<Hello::Seen>& others);
  void proceed(Time now);
  void send(Time now);
  void giveUp(Time now);
  Value valueOf(const std::map<std::string, Promise>& promises) const;
  void prepare(Time now, std::optional<SocketAddress> from, Nonce nonce, const Ballot& ballot);
  void accept(Time now, std::optional<SocketAddress> from, Nonce nonce, const Acceptance& proposal);
  // False: it may not be answered with a promise or an acceptance.
  bool isOpen(Time now, const std::optional<SocketAddress>& from, Nonce nonce, const Ballot& ballot);
  void save() { ++version_; }
  void answerWhenWritten(Time now, std::optional<SocketAddress> to, Nonce nonce, Body body);
  void answer(Time now, const std::optional<SocketAddress>& to, Nonce nonce, Body body);
  void decide(const Value& value);
  Duration jittered(Duration mean);

  const Machine self_;
  const size_t expect_;
  RandomSource& random_;
  State state_ = State::kTooFew;
  Record record_;
  std::optional<Value> decision_;
  std::optional<Value> next_;
  std::vector<Voter> next_voters_;  // as known to this process
  uint64_t version_ = 0;  // of record_
  uint64_t taken_ = 0;    // of what takeUnwritten() has given
  uint64_t written_ = 0;
  std::deque<Answer> answers_;
  std::vector<Outgoing> messages_;

  std::optional<Attempt> attempt_;
  uint64_t round_ = 0;  // the highest that it has heard of
  int failures_ = 0;    // of attempts
  std::optional<Time> ready_since_;
  Time next_attempt_;
};

}  // namespace idetcd::founding
