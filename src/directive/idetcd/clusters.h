// The clusters that this process belongs to: for each pattern one name, one table of records, one watch, whatever
// blocks of the Corefile serve it. They go on through a reload that still has their pattern. The first loop's thread,
// but for join() and refuse(), which run on the executor: beside them release(), abandon() and leave() may run, and start().
#pragma once

#include "base/metrics.h"
#include "base/result.h"
#include "directive/idetcd/cluster_report.h"
#include "directive/idetcd/settings.h"
#include "directive/nsid/identity.h"
#include "etcd/completion_thread.h"
#include "naming/member.h"
#include "peers/peer_group.h"
#include "records/record_union.h"
#include "resolve/directive.h"
#include "store/store.h"

namespace idetcd::directive {

// A member's state at the moment of a scrape. The member outlives it.
class ClusterMetrics {
 public:
  ClusterMetrics(const metrics::Scope& scope, const naming::Member& member, const records::RecordStore& store,
                 std::chrono::seconds lease);

 private:
  const metrics::GaugeFunction owned_;
  const metrics::GaugeFunction token_;
  const metrics::GaugeFunction lease_;
  const metrics::GaugeFunction moving_;
  const metrics::GaugeFunction moved_;
  const metrics::GaugeFunction fresh_;
  const metrics::GaugeFunction lag_;
  const metrics::GaugeFunction table_bytes_;
  const metrics::GaugeFunction drained_;
};

// One of the stores in which a member has its name.
struct ClusterStore {
  std::shared_ptr<records::RecordStore> records;
  std::shared_ptr<peers::PeerGroup> peers;  // null: the endpoints are configured
  etcd::Client* client = nullptr;           // the member's
  bool started = false;
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

  // The names that are answered.
  records::RecordStore& records() const { return both ? both->sum() : *first->records; }
  std::shared_ptr<ClusterReport> report;
  std::vector<std::weak_ptr<const Identity>> identities;  // those that ask the member for its name
};

class Clusters final : public resolve::ProcessState {
 public:
  // Together with what the completion thread takes to stop, under the five seconds that a drain may take.
  static constexpr std::chrono::milliseconds kReleaseBudget{2000};

  explicit Clusters(resolve::Process& process) : process_(process) {}
  ~Clusters() override;

  // The cluster of this pattern, for the configuration that is being built: the one that runs, one that another block
  // of the same configuration has asked for, or a new one. Blocks on the file system. etcd is not contacted before
  // accept(). `dns_port`: where this node answers. The error is one line. Valid until the configuration is refused, or
  // another one is accepted that does not ask for it.
  struct Joined {
    Cluster* cluster = nullptr;
    records::RecordStore* records = nullptr;  // from which the configuration answers
  };
  Result<Joined> join(const ClusterSettings& settings, uint16_t dns_port);

  // The cluster that runs with this table; null: there is none.
  Cluster* findRunning(const records::RecordStore& store) const;
  // `observer` is told of each change of a cluster that runs, from some moment after this on; see
  // RecordStore::addObserver(). Nothing, if none of them has this table: it may be gone.
  void observe(const records::RecordStore& store, std::shared_ptr<records::RecordObserver> observer);
  void forget(const records::RecordStore& store, const std::shared_ptr<const records::RecordObserver>& observer);

  void accept() override;
  void refuse() override;
  bool isSettling() const override { return !retirements_.empty() || leaving_ > 0 || droppings_ > 0; }
  std::string status() const override;  // the names that this node owns
  void release(std::chrono::milliseconds budget) override;
  void abandon() override;
  void stop() override;

 private:
  Cluster* find(const ClusterSettings& settings) const;
  bool isRunning(const Cluster* cluster) const;
  std::vector<const records::RecordStore*> tablesOf(const store::Store& store) const;
  Result<void> makeThread();
  Result<std::shared_ptr<peers::PeerGroup>> peerGroup(const ClusterSettings& settings, const node::NodeAddresses& node);
  // A step of a move, for the configuration that is being built.
  struct Change {
    Cluster* cluster = nullptr;
    ClusterSettings settings;
    ClusterSettings::Step step{};
    std::unique_ptr<ClusterStore> second;  // if there is to be one
    std::unique_ptr<etcd::Client> client;  // of that
    std::unique_ptr<records::RecordUnion> both;
    records::RecordStore* answered = nullptr;
  };
  Result<Joined> change(Cluster& cluster, const ClusterSettings& settings, ClusterSettings::Step step);
  Result<void> checkMoved(const Cluster& cluster) const;
  void apply(Change change);
  std::unique_ptr<ClusterStore> makeStore(const ClusterSettings& settings, const node::NodeAddresses& node) const;
  std::unique_ptr<etcd::Client> openStore(const ClusterSettings& settings, ClusterStore& store,
                                          const metrics::Scope& metrics);
  std::unique_ptr<records::RecordUnion> unite(const ClusterSettings& settings, const node::NodeAddresses& node,
                                              const ClusterStore& first, const ClusterStore& second,
                                              records::RecordUnion::Second counts);
  void onWriter(std::function<void()> work);
  void makeReports(Cluster& cluster);
  metrics::Scope scopeOf(const ClusterSettings& settings) const;
  metrics::Scope storeScope(const ClusterSettings& settings, bool at_peers) const;
  std::vector<peers::PeerGroup*> peerGroups() const;  // of those that run
  void start(Cluster& cluster);
  static bool isReady(ClusterStore& store);
  Result<Joined> add(const ClusterSettings& settings, uint16_t dns_port);
  Result<std::unique_ptr<Cluster>> make(const ClusterSettings& settings, uint16_t dns_port);
  void retire(std::unique_ptr<Cluster> cluster);
  void onRetired();
  void leave(uint16_t peers_port);
  void replaceLeft();
  void settle();

  resolve::Process& process_;
  std::unique_ptr<etcd::CompletionThread> etcd_thread_;
  std::vector<std::unique_ptr<Cluster>> running_;
  // For the configuration that is being built: those that are new, and those of running_ that it goes on with.
  std::vector<std::unique_ptr<Cluster>> added_;
  struct Kept {
    Cluster* cluster;
    bool only;  // see ClusterSettings
  };
  std::vector<Kept> kept_;
  std::vector<Change> changes_;
  // Those that a reload has dropped and that are giving up their names: gone when that is done.
  std::vector<std::weak_ptr<Cluster>> retirements_;
  size_t leaving_ = 0;    // groups whose members give up their names
  size_t droppings_ = 0;  // of stores from which a cluster has moved, or to which it does not any more
};

}  // namespace idetcd::directive
