// The clusters that this process belongs to: for each pattern one name, one table of records, one watch, whatever
// blocks of the Corefile serve it. They go on through a reload that still has their pattern. The first loop's thread,
// but for join() and refuse(), which run on the executor: beside them release(), abandon() and leave() may run, and start().
#pragma once

#include "directive/idetcd/cluster.h"
#include "directive/idetcd/cluster_stores.h"
#include "resolve/directive.h"

namespace idetcd::directive {

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
  bool isSettling() const override { return giving_up_ > 0; }
  std::string status() const override;  // the names that this node owns
  void release(std::chrono::milliseconds budget) override;
  void abandon() override;
  void stop() override;

 private:
  // A step of a move.
  struct Change {
    ClusterSettings::Step step{};
    std::unique_ptr<ClusterStore> second = {};  // if there is to be one
    std::unique_ptr<etcd::Client> client = {};  // of that
    std::unique_ptr<records::RecordUnion> both = {};
    records::RecordStore* answered = nullptr;
  };
  // The use that the configuration that is being built makes of a pattern.
  struct Asked {
    ClusterSettings settings;
    Cluster* cluster = nullptr;
    records::RecordStore* records = nullptr;
    std::unique_ptr<Cluster> made = {};  // null: it goes on with the one that runs,
    std::optional<Change> change = {};   // by this step
  };
  Result<Asked> ask(const ClusterSettings& settings, uint16_t dns_port);
  Result<Asked> askNew(Asked asked, const ClusterSettings& settings, uint16_t dns_port);
  Result<Change> prepare(Cluster& cluster, const ClusterSettings& settings, ClusterSettings::Step step);
  Result<std::shared_ptr<peers::PeerGroup>> peerGroup(const ClusterSettings& settings, const node::NodeAddresses& node);
  Result<std::unique_ptr<Cluster>> make(const ClusterSettings& settings, uint16_t dns_port);
  std::vector<const records::RecordStore*> tablesOf(const store::Store& store) const;
  void makeReports(Cluster& cluster);

  std::vector<peers::PeerGroup*> peerGroups() const;  // of those that run
  void apply(Cluster& cluster, ClusterSettings settings, Change change);
  void giveUp(std::function<void()> work);
  void retire(std::unique_ptr<Cluster> cluster);
  void leave(uint16_t peers_port);
  void replaceLeft();

  resolve::Process& process_;
  ClusterStores stores_{process_};
  std::vector<std::unique_ptr<Cluster>> running_;
  std::vector<Asked> asked_;
  std::vector<std::weak_ptr<Cluster>> retirements_;  // those that a reload has dropped, while they give up their names
  size_t giving_up_ = 0;                             // of members and stores
  const std::shared_ptr<Executor::Strand> later_ = process_.executor->makeStrand();
  bool is_replacing_ = false;  // and is to look again later
  std::optional<BootClock::time_point> release_end_;  // of release(), which comes before stop()
};

}  // namespace idetcd::directive
