// etcd's own affairs, by its services Cluster and Maintenance: which members it has, how one of them does. Over a
// client, with its fail-over, connection, TLS and credentials: status(), moveLeader() and defragment() are of the
// member that answers, so for one member make a client that has its endpoint alone.
//
// Every Task runs on the client's CompletionThread. kNotFound: there is no such member.
#pragma once

#include "etcd/client.h"

namespace idetcd::etcd {

struct ClusterMember {
  uint64_t id = 0;
  std::string name;  // empty: it has not started yet
  std::vector<std::string> peer_urls;
  std::vector<std::string> client_urls;
  bool is_learner = false;
  bool operator==(const ClusterMember&) const = default;
};

struct MemberList {
  uint64_t cluster_id = 0;
  std::vector<ClusterMember> members;  // as far as the member that answers has come
};

struct MemberStatus {
  uint64_t id = 0;
  uint64_t cluster_id = 0;
  std::string version;  // "3.4.23"
  uint64_t leader = 0;  // 0: it knows none
  uint64_t term = 0;
  uint64_t index = 0;  // of the log, committed as far as it knows; lags behind the leader's while it catches up
  int64_t revision = 0;
  int64_t bytes = 0;         // of its database file
  int64_t bytes_in_use = 0;  // less is what defragment() makes of it
  bool is_learner = false;
  bool no_space = false;  // some member has run out of it, and no member takes writes: see alarms()
};

struct Alarm {
  enum class Kind : uint8_t { kNoSpace = 1, kCorrupt = 2 };  // etcd's numbers
  uint64_t member = 0;
  Kind kind = Kind::kNoSpace;
  bool operator==(const Alarm&) const = default;
};

class Cluster {
 public:
  // The client outlives this and every Task made by it.
  explicit Cluster(Client& client) : client_(client) {}

  Task<StoreResult<MemberList>> memberList() const;
  // Its ID. etcd counts a member that is no learner as soon as it has been added, started or not.
  Task<StoreResult<uint64_t>> memberAdd(std::vector<std::string> peer_urls, bool as_learner) const;
  // Refused (kOther) until the learner has nearly caught up with the leader.
  Task<StoreResult<void>> memberPromote(uint64_t id) const;
  Task<StoreResult<void>> memberUpdate(uint64_t id, std::vector<std::string> peer_urls) const;
  Task<StoreResult<void>> memberRemove(uint64_t id) const;

  // Asks no other member: also without a leader, and of a learner.
  Task<StoreResult<MemberStatus>> status() const;
  // REQUIRES: the member that answers leads.
  Task<StoreResult<void>> moveLeader(uint64_t to) const;

  // Costs an entry of the log.
  Task<StoreResult<std::vector<Alarm>>> alarms() const;
  Task<StoreResult<void>> disarm(Alarm alarm) const;
  // Revisions before `revision` are gone, and the space that they took is free when it returns.
  Task<StoreResult<void>> compact(int64_t revision) const;
  // Gives free space back to the disk. The member stands still meanwhile: some 100 ms for 100 MB, `timeout` at most.
  Task<StoreResult<void>> defragment(std::chrono::nanoseconds timeout) const;

 private:
  Client& client_;
};

}  // namespace idetcd::etcd
