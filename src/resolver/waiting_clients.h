// The client queries that wait for the answers of one Forwarder, and which gives way when there is no room. Loop thread
// only.
//
// Room is shared work-conservingly. When it is full, a query takes a place of the client with most, if that has at
// least two more than its own: that client's longest waiting question goes, since a new one is about to be answered. If
// all hold the same, a client with nothing takes the place of the question that has waited longest, after kFairTime.
// One client's repetitions of a question are bounded (sources may be forged): a retransmission (same port and ID) waits
// once; the first kFullAnswers others get the answer, up to kMaxRepeats one little larger than the query.
#pragma once

#include <unordered_map>

#include "base/block_pool.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/ranking.h"
#include "resolver/forwarder.h"

namespace idetcd::resolver {

// The pace at which the answers leave that many clients have waited for: a burst of queries for one name must not come
// back as a burst of answers, which would fill the network's and the clients' buffers, and keep the loop from others.
// Loop thread only.
//
// kBytesPerMillisecond in the long run, kBurst in a turn of the loop; a single answer counts kLeast at least.
class LateAnswers {
 public:
  static constexpr std::ptrdiff_t kBytesPerMillisecond = 32 << 10;  // 262 Mbit/s
  static constexpr std::ptrdiff_t kBurst = kBytesPerMillisecond;
  static constexpr std::ptrdiff_t kLeast = 256;  // so that no more than 128 leave in a millisecond: some 0.2 ms of work
  static constexpr std::chrono::milliseconds kStep{1};

  LateAnswers(net::EventLoop& loop, std::function<void()> on_go) : timer_(loop, std::move(on_go)) {}

  // Once a turn of the loop, so that a turn has an end on a slow machine too.
  void begin() {
    const auto now = BootClock::now();
    const auto passed = std::chrono::duration_cast<std::chrono::microseconds>(now - last_);
    const auto earned = std::min(passed, kLongest).count() * kBytesPerMillisecond / 1000;
    if (earned > 0) {
      credit_ = std::min(kBurst, credit_ + static_cast<std::ptrdiff_t>(earned));
      last_ = now;
    }
  }
  // Whether one more answer may leave in this turn.
  bool mayGo() const { return credit_ > 0; }
  // Returns what it counts for.
  size_t spend(size_t bytes) {
    const auto cost = std::max(static_cast<std::ptrdiff_t>(bytes), kLeast);
    credit_ -= cost;
    return static_cast<size_t>(cost);
  }
  // Calls back soon, once.
  void wait() { timer_.start(kStep); }

 private:
  static constexpr std::chrono::microseconds kLongest{1'000'000};

  std::ptrdiff_t credit_ = kBurst;
  BootClock::time_point last_ = BootClock::now();
  net::Timer timer_;
};

class WaitingClients {
  struct Client;
  struct Group;

 public:
  static constexpr size_t kFullAnswers = 2;
  static constexpr size_t kMaxRepeats = 128;  // as many as a TCP connection may pipeline
  static constexpr std::chrono::milliseconds kFairTime{250};

  // One query that waits.
  struct Waiter {
    Forwarder::Callback done;
    Group* group = nullptr;  // null: ourselves
    ListLink<Waiter> in_question;
    ListLink<Waiter> in_group;
    uint16_t port = 0;
    uint16_t id = 0;
    bool background = false;
    bool urgent = false;
    size_t response_limit = 0;
  };

  // One thing that clients wait for: a base class for the owner's data. Must not outlive the WaitingClients; its end
  // destroys the callbacks that still wait, uncalled.
  class Question {
   public:
    Question() = default;
    Question(const Question&) = delete;
    Question& operator=(const Question&) = delete;
    size_t waiting() const { return waiting_; }

   protected:
    ~Question() {
      if (home_ != nullptr) home_->forget(*this);
    }

   private:
    friend class WaitingClients;
    WaitingClients* home_ = nullptr;
    LinkedList<Waiter, &Waiter::in_question> waiters_;  // in order of arrival
    size_t waiting_ = 0;
    size_t groups_ = 0;
    Group* first_group_ = nullptr;  // the others are found by groups_by_key_
    bool in_flight_ = false;
    BootClock::time_point since_;
    ListLink<Question> by_age_;
  };

  // `max_waiting_for_one`: for one question; not of programs on this machine, which are bounded by their number.
  explicit WaitingClients(size_t max_waiting_for_one);
  ~WaitingClients();  // destroys the callbacks of evicted queries, uncalled
  WaitingClients(const WaitingClients&) = delete;
  WaitingClients& operator=(const WaitingClients&) = delete;

  // How many wait. Without those that have been made to give way.
  size_t size() const { return size_; }
  size_t clients() const { return clients_.size(); }

  // Whether one more query of `origin` may wait for `question`, if there is room for it.
  enum class Admission : uint8_t {
    kWait,
    kWaitForLittle,  // of a repetition: what is answered must not be much larger than the query
    kAbsorb,         // a retransmission: the query that waits already is answered
    kTooMany,
  };
  Admission judge(const Question& question, const QueryOrigin& origin) const;

  // Begins to wait. `response_limit`: what it may get, at most.
  void add(Question& question, const QueryOrigin& origin, size_t response_limit, Forwarder::Callback done);

  // `question` is on its way from now on, until settle().
  void begin(Question& question);
  void settle(Question& question);

  // Ends the wait of the query that has waited longest. REQUIRES: one waits.
  struct Taken {
    Forwarder::Callback done;
    size_t response_limit = 0;
  };
  Taken take(Question& question);

  // Make room for a query of `origin`: the first for it to wait at all, the second for a question on its way, which is
  // not `exception` (which asks itself). Evicted queries are answered with takeEvicted(). `abandoned`: a question that
  // no query waits for any more, if there is one; the owner must end it at once.
  struct Room {
    bool made = false;
    Question* abandoned = nullptr;
  };
  Room makeRoomToWait(const QueryOrigin& origin);
  Room makeRoomToAsk(const QueryOrigin& origin, const Question* exception);

  // On whose behalf the question is asked: the first that waits for it.
  static QueryOrigin originOf(const Question& question);

  bool hasEvicted() const { return !evicted_.empty(); }
  size_t evicted() const { return evicted_count_; }
  // REQUIRES: hasEvicted(). The one that has given way first.
  Forwarder::Callback takeEvicted();

 private:
  // All of one client's for one question.
  struct Group {
    Client* client = nullptr;
    Question* question = nullptr;
    LinkedList<Waiter, &Waiter::in_group> waiters;
    size_t size = 0;
    ListLink<Group> in_client;
  };
  struct Client {
    ClientId id;
    LinkedList<Group, &Group::in_client> groups;  // oldest first
    size_t questions = 0;
    size_t waiting = 0;
    ListLink<Client> by_questions;
    ListLink<Client> by_waiting;
  };

  struct IdHash {
    HashSeed seed;
    size_t operator()(const ClientId& id) const;
  };
  struct Key {
    const Question* question;
    const Client* client;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    HashSeed seed;
    size_t operator()(const Key& key) const;
  };

  template <typename T>
  T* make(BlockPool& pool) {
    return ::new (pool.take(sizeof(T))) T;
  }
  template <typename T>
  void destroy(T* object, BlockPool& pool) {
    object->~T();
    pool.give(object, sizeof(T));
  }

  const Client* findClient(const ClientId& id) const;
  Group* findGroup(const Question& question, const Client& client) const;
  Group& groupOf(Question& question, const ClientId& id);
  void forget(Question& question);
  void detach(Waiter& waiter, Question& question);
  void leave(Group& group);
  Question* giveWay(Waiter& waiter);
  Question* giveWay(Group& group);
  static bool isAlone(const Group& group);
  static Group* longestWaiting(const Client& client, const Question* exception);
  static bool hasHadItsTime(const Question& question, BootClock::time_point now);

  const size_t max_waiting_for_one_;
  const HashSeed seed_;
  BlockPool waiter_pool_;
  BlockPool group_pool_;
  BlockPool client_pool_;
  std::unordered_map<ClientId, Client*, IdHash> clients_;
  std::unordered_map<Key, Group*, KeyHash> groups_by_key_;
  Ranking<Client, &Client::questions, &Client::by_questions> by_questions_;
  Ranking<Client, &Client::waiting, &Client::by_waiting> by_waiting_;
  LinkedList<Question, &Question::by_age_> in_flight_;  // oldest first
  LinkedList<Waiter, &Waiter::in_question> evicted_;
  size_t evicted_count_ = 0;
  size_t size_ = 0;
};

}  // namespace idetcd::resolver
