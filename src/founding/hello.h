// How machines without a cluster find each other: which address is asked next, and which machines have answered. An
// address is known from the configuration, from a name that the host resolves again and again, from a machine that has
// answered, or since somebody has asked from it. An answer counts only if it has the nonce of what was asked. A machine
// counts as seen for kSeenFor after its last answer.
//
// Silent addresses are asked ever less often, the less the more there are: a network is searched slowly. Each of up to kAskedTwice
// is asked twice within kAnswer, since a datagram may be lost. Those that are
// neither configured nor what the name leads to are forgotten after kPatience times. Memory is bounded by kMaxMachines
// addresses and machines: if there are more, one of those makes room that has been there long and does not answer, since a
// request may come with any address. No I/O; one thread; times are the BootClock's.
//
// A member may be behind any address that is configured, or that a name leads to: so hasAskedAll() says whether each of them has
// been asked, and has answered or has had kAnswer to do so.
#pragma once

#include "base/clock.h"
#include "base/ip_address.h"
#include "base/random.h"
#include "founding/envelope.h"
#include "founding/message.h"

namespace idetcd::founding {

class Hello {
 public:
  using Time = BootClock::time_point;
  using Duration = BootClock::duration;

  static constexpr Duration kFirstDelay = std::chrono::milliseconds(200);  // doubled for each silence, up to the next
  static constexpr Duration kLastDelay = std::chrono::seconds(5);
  static constexpr Duration kRefresh = std::chrono::seconds(2);  // of what has answered
  static constexpr Duration kSeenFor = std::chrono::seconds(10);
  static constexpr Duration kStep =
      std::chrono::milliseconds(4);  // between two questions, at least, if many are silent
  static constexpr size_t kAtOnce = 16;  // so many addresses need no step
  // More would not fit into a socket, where what is for an address without a machine waits for 3 s (ARP).
  static constexpr size_t kAskedTwice = 128;
  static constexpr int kPatience = 6;
  static constexpr Duration kAnswer = std::chrono::milliseconds(500);    // for the first answer of an address
  static constexpr Duration kNamePatience = std::chrono::seconds(5);     // for the names to be resolved
  // Between two questions of a member, which asks all addresses in turn, so that clusters that one secret made meet; where
  // many machines have founded the cluster, so many as this one for each kShare of them.
  static constexpr Duration kAround = std::chrono::seconds(5);
  static constexpr size_t kShare = 16;

  struct Seen {
    Machine machine;
    SocketAddress address;  // from which it has answered
    Time at;
  };
  struct Question {
    SocketAddress to;
    Nonce nonce = 0;
  };

  // `self`: this machine, whose own addresses are never asked. `addresses` are asked for ever. `has_names`: resolved() follows.
  // Of many, those behind its own address come first: machines that start at once do not all ask the same one at once.
  Hello(const Machine& self, std::vector<SocketAddress> addresses, bool has_names, Time now, RandomSource& random);

  // The addresses of a network that a machine may have, for the constructor. Fails if there are more than a /22 has.
  static Result<std::vector<SocketAddress>> addressesOf(const IpNetwork& network, uint16_t port);

  // What the rendezvous names lead to now, the first 1,024 of it; what they led to before is asked as long as it answers.
  // `all`: none of them has failed.
  void resolved(Time now, const std::vector<SocketAddress>& addresses, bool all = true);
  // What is to be asked now, each with a HelloRequest in an envelope with the nonce.
  std::vector<Question> due(Time now);
  // The same for a member: the next address, whatever due() says.
  std::optional<Question> next(Time now);
  // What was to be sent there just now could not be: if it was the first question, that address has not been asked.
  void unsent(Time now, const SocketAddress& to);
  // That address, unless it was asked a moment ago.
  std::optional<Question> next(Time now, const SocketAddress& address);
  // Another machine has asked from there.
  void asked(Time now, const SocketAddress& from, const Machine& machine);
  // False: nothing was asked with this nonce.
  bool answered(Time now, const SocketAddress& from, Nonce nonce, const HelloResponse& response);

  bool hasAskedAll(Time now) const;
  // The addresses behind which a member of another cluster may be: all but those of `members`, from behind its own on.
  std::vector<SocketAddress> others(const std::vector<Member>& members) const;
  // The other electors that are seen.
  std::vector<Seen> electors(Time now) const;
  // When the last elector was seen for the first time, or once more after a while; the start if there was none.
  Time lastNews() const { return last_news_; }
  // Some of the machines that are seen, for others.
  std::vector<SocketAddress> peers(Time now);

 private:
  struct Peer {
    bool configured = false;
    bool resolved = false;
    int silences = 0;  // questions since it last answered
    uint64_t place = 0;  // in learned_; 0: it is not there
    Nonce nonce = 0;   // of the questions since then
    std::optional<Time> asked_at;
    std::optional<Time> settled_at;  // when it has answered, or need not be waited for; none: it was never asked
    Time next;
    Duration delay = kFirstDelay;
  };

  Peer* add(const SocketAddress& address, Time next);
  bool makeRoom();
  std::map<SocketAddress, Peer>::iterator forget(std::map<SocketAddress, Peer>::iterator peer);
  bool isForgotten(const Peer& peer) const {
    return !peer.configured && !peer.resolved && peer.silences >= kPatience;
  }
  bool isOwn(const SocketAddress& address) const { return std::ranges::find(own_, address) != own_.end(); }
  Question ask(const SocketAddress& address, Peer& peer, Time now);
  Duration jittered(Duration mean);
  std::map<SocketAddress, Peer>::iterator peerAsked(const SocketAddress& from, Nonce nonce);

  const std::vector<SocketAddress> own_;
  RandomSource& random_;
  std::map<SocketAddress, Peer> peers_;
  std::map<uint64_t, SocketAddress> learned_;  // those that are not configured, as they came
  uint64_t last_place_ = 0;
  SocketAddress last_;  // that next() gave; at first a random one, so that members do not all ask the same
  std::map<std::string, Seen> machines_;  // by UUID
  Time last_news_;
  std::optional<Time> names_until_;  // they are waited for; none: they are resolved, or there are none
};

}  // namespace idetcd::founding
