// One cluster that this process belongs to: its member, the stores in which that has its name, and the tables that are answered.
// The first loop's thread, where nothing else is said.
#pragma once

#include "base/metrics.h"
#include "base/result.h"
#include "directive/idetcd/cluster_report.h"
#include "directive/idetcd/settings.h"
#include "directive/nsid/identity.h"
#include "etcd/client.h"
#include "naming/member.h"
#include "peers/peer_group.h"
#include "records/record_union.h"

namespace idetcd::directive {

// A member's state at the moment of a scrape. The member outlives it.
class ClusterMetrics {
 public:
  ClusterMetrics(const metrics::Scope& scope, const naming::Member& member, const records::RecordStore& store,
                 std::chrono::seconds lease);

 private:
  const metrics::GaugeFunction owned_;
  const metrics::GaugeFunction token_;
  const metrics::GaugeFunction generation_;
  const metrics::GaugeFunction lease_;
  const metrics::GaugeFunction moving_;
  const metrics::GaugeFunction moved_;
  const metrics::GaugeFunction fresh_;
  const metrics::GaugeFunction lag_;
  const metrics::GaugeFunction table_bytes_;
  const metrics::GaugeFunction drained_;
  const metrics::GaugeFunction sick_;
  const metrics::GaugeFunction out_;
};

// One of the stores in which a member has its name.
struct ClusterStore {
  std::shared_ptr<records::RecordStore> records;
  std::shared_ptr<peers::PeerGroup> peers;  // null: the endpoints are configured
  etcd::Client* client = nullptr;           // the member's
  bool started = false;

  // Whether it can be asked: a cluster that founds itself has to be there first. Its client knows its endpoints then.
  bool isReady() const;
  peers::PeerGroup::Membership membership() const;
};

struct Cluster {
  ClusterSettings settings;
  std::unique_ptr<ClusterStore> first;
  std::unique_ptr<ClusterStore> second;         // while it moves to there
  std::unique_ptr<records::RecordUnion> both;   // while it moves
  std::shared_ptr<node::StateDirectory> state;  // may be null
  // The cluster of `peers` has dissolved, and the member with it: the next configuration makes another one.
  std::atomic<bool> has_left{false};
  std::shared_ptr<naming::Member> member;
  std::unique_ptr<const ClusterMetrics> metrics;
  std::shared_ptr<ClusterReport> report;
  std::vector<std::weak_ptr<const Identity>> identities;  // those that ask the member for its name

  std::vector<ClusterStore*> stores() const;  // one or two
  // The names that are answered.
  records::RecordStore& records() const { return both ? both->sum() : *first->records; }
  std::string status() const;  // a few words: the name that this node owns
  // Whatever can be asked, and is not yet. Until then, old names are answered.
  void start();
  // Whether this node may go on with the second store alone. The error is one line. Any thread, while it runs.
  Result<void> checkMoved() const;
};

}  // namespace idetcd::directive
