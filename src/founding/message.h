// Messages between machines without a cluster, and the record that each machine keeps: plain values, and their bytes
// (proto/founding.proto). README.md says what they mean. Pure; any thread.
#pragma once

#include <compare>
#include <variant>

#include "base/ip_address.h"
#include "base/result.h"

namespace idetcd::founding {

// The most machines that may found a cluster together: a Value of so many fits in a frame (envelope.h).
inline constexpr size_t kMaxMachines = 4096;
inline constexpr size_t kMaxAddresses = 4;  // of one machine
inline constexpr size_t kMaxPeers = 16;     // that one message tells of

// The age of a machine: the smaller, the older. The start is its wall clock's, and carries no safety.
struct Member {
  int64_t start = 0;  // nanoseconds since 1970, read once when the process started
  std::string uuid;   // node/uuid.h
  auto operator<=>(const Member&) const = default;
};

// A machine's description of itself.
struct Machine {
  Member member;
  std::vector<SocketAddress> addresses =
      {};                // where it listens, 1 to kMaxAddresses; etcd's peers are to use the first one
  bool elector = false;  // takes part in a founding: has no cluster, and is not silent
  bool durable = false;  // what it promises outlives its process
  int64_t token = 0;     // the highest fencing token that it has seen
  uint32_t expect = 0;   // so many machines are to found the cluster
  std::string cluster = {};  // the identity of that of which it is a member; empty: none
  bool can_vote = true;      // has the program that voters run
  bool operator==(const Machine&) const = default;
};

struct Voter {
  std::string uuid;
  SocketAddress address;
  bool operator==(const Voter&) const = default;
};

// So many machines are to vote, of so many.
size_t votersFor(size_t machines);

// The value that a founding decides.
struct Value {
  std::string cluster;          // the identity, a UUID
  std::vector<Member> members;  // from the oldest on: the first has number 1
  std::vector<Voter> voters;    // run etcd
  int64_t token_base = 0;       // above every fencing token that a member has seen
  bool operator==(const Value&) const = default;

  int64_t numberOf(std::string_view uuid) const;  // 0: it is no member
  std::string etcdToken() const { return "idetcd-" + cluster; }
};

// Of two clusters that one secret made, and that have met: whether `one` dissolves. That is the one that fewer machines have
// founded; if as many have, the one whose founders started later, by the median of their clocks; else the identity decides. A
// total order, which both sides find alike. REQUIRES: different identities.
bool yields(const Value& one, const Value& other);

// Each attempt of each machine has one of its own.
struct Ballot {
  uint64_t round = 0;  // 0: none
  std::string proposer = {};
  auto operator<=>(const Ballot&) const = default;
};

struct Acceptance {
  Ballot ballot;
  Value value;
  bool operator==(const Acceptance&) const = default;
};

// --- requests; `to` is the UUID of the machine that is meant, so that what was said to a former one is void ---

struct HelloRequest {
  Machine machine;
  bool operator==(const HelloRequest&) const = default;
};
struct Prepare {
  std::string to;
  Ballot ballot;
  bool operator==(const Prepare&) const = default;
};
struct Accept {
  std::string to;
  Acceptance proposal;
  bool operator==(const Accept&) const = default;
};
struct Decided {
  std::string to;
  Value value;
  bool operator==(const Decided&) const = default;
};

// --- responses; their envelope has the request's nonce ---

struct HelloResponse {
  Machine machine;
  std::vector<SocketAddress> peers;  // other machines that have answered this one
  std::optional<Value> cluster;      // of which it is a member, unless the one that asked is too
  std::vector<Voter> voters = {};    // of its cluster, as last known, if they are others than the founding's
  bool connected = false;            // it reaches them
  bool operator==(const HelloResponse&) const = default;
};
struct Promise {
  Machine machine;
  Ballot ballot;
  std::optional<Acceptance> accepted;  // of the highest ballot before
  bool operator==(const Promise&) const = default;
};
struct Accepted {
  std::string from;
  Ballot ballot;
  bool operator==(const Accepted&) const = default;
};
struct Refused {
  Ballot ballot;
  Ballot promised;  // a higher one
  bool operator==(const Refused&) const = default;
};

using Body = std::variant<HelloRequest, HelloResponse, Prepare, Promise, Accept, Accepted, Refused, Decided>;

struct Message {
  uint16_t port = 0;  // where the sender listens, on the address that the message comes from
  Body body;
  bool operator==(const Message&) const = default;
};

std::string encode(const Message& message);
// None: it is no message, or one with values that no machine sends.
std::optional<Message> decode(std::string_view bytes);

// An elector's durable state.
struct Record {
  std::string uuid;  // whose it is
  Ballot promised;
  std::optional<Acceptance> accepted;
  std::optional<Value> decided;
  std::vector<Voter> voters = {};  // as HelloResponse's
  std::optional<Value> next = {};  // the other cluster for which it leaves that one
  bool operator==(const Record&) const = default;
};

std::string encode(const Record& record);
// A record that is damaged, or that is of another machine, has no meaning: its machine is to start as another one.
Result<Record> decodeRecord(std::string_view bytes, std::string_view uuid);

}  // namespace idetcd::founding
