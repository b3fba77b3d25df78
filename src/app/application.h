// The running server: it owns every component, wires them by constructor, and takes them down in order. Main thread.
#pragma once

#include <array>
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "app/plan.h"
#include "base/log.h"
#include "base/result.h"
#include "cluster/member.h"
#include "etcd/completion_thread.h"
#include "net/event_loop.h"
#include "records/epoch.h"
#include "records/record_store.h"
#include "server/server.h"

namespace idetcd::app {

class Application {
 public:
  // Handled from the constructor on, but acted upon in run().
  static constexpr std::array kHandledSignals{SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1};

  explicit Application(Logger log);
  ~Application();
  Application(const Application&) = delete;
  Application& operator=(const Application&) = delete;

  // Builds everything and opens the DNS sockets. etcd is not contacted yet. The error is one line.
  Result<void> open(const Plan& plan);

  // What HUP and USR1 go over to; without it they change nothing. Called on the loop's thread.
  void setReload(std::function<Result<Plan>()> read_plan) { read_plan_ = std::move(read_plan); }

  // Joins the clusters and serves until a signal or a fatal error ends it. Returns the exit status.
  //   TERM, INT  gives the names up (at most kReleaseBudget), closes the sockets: 0.   a second INT: 2, at once
  //   QUIT       at once: 0
  //   HUP, USR1  reads the Corefile again; a bad one changes nothing. A cluster whose pattern is still there keeps its
  //   name.
  int run();

  // One line a server, "zone.:port" and the addresses where not all are meant.
  const std::vector<std::string>& banner() const { return configuration_.banner; }

 private:
  // Together with what the completion thread takes to stop, under the five seconds that a drain may take.
  static constexpr std::chrono::milliseconds kReleaseBudget{2000};
  static constexpr std::chrono::milliseconds kFlushBudget{200};

  struct Cluster {
    ClusterPlan plan;
    std::unique_ptr<records::RecordStore> store;
    std::unique_ptr<cluster::Member> member;
    std::vector<std::weak_ptr<const resolve::Identity>> identities;  // those who ask the member for its name
  };

  // A server block as every loop sees it; what belongs to one loop is made for each.
  struct Block {
    BlockPlan plan;
    std::shared_ptr<const resolve::QueryLog> log;
    std::shared_ptr<resolve::ErrorLog> errors;
    std::shared_ptr<const resolve::Acl> acl;
    std::shared_ptr<const resolve::ClusterZone> cluster;
    std::shared_ptr<const resolve::Identity> identity;
    std::shared_ptr<const resolve::HostsSource> hosts;
    std::shared_ptr<resolve::LoopProbe> loop;  // made with the first instance
  };
  // What listens where: the zones of one address and port, each with the index of its block.
  struct Endpoint {
    server::Listen listen;
    std::vector<std::pair<dns::Name, size_t>> zones;
  };
  // All that a Corefile determines. Another one takes its place at a reload.
  struct Configuration {
    std::vector<Block> blocks;
    std::vector<Endpoint> endpoints;
    std::vector<std::unique_ptr<Cluster>> clusters;  // those that are new
    std::vector<Cluster*> kept;                      // and those of the configuration before
    std::vector<std::string> banner;
  };
  // The instances of the blocks that were made already, by worker and index.
  using Instances = std::map<std::pair<size_t, size_t>, std::shared_ptr<const resolve::ServerBlock>>;

  Result<Configuration> configure(const Plan& plan);
  Result<void> addBlock(Configuration& configuration, const BlockPlan& plan);
  static void addEndpoint(Configuration& configuration, const server::Listen& listen, const dns::Name& zone,
                          size_t block);
  Result<Block> buildBlock(Configuration& configuration, const BlockPlan& plan);
  static std::vector<dns::Name> endpointNames(const ClusterPlan& plan);
  static std::vector<dns::Name> namedZones(const BlockPlan& plan);
  Result<Cluster*> addCluster(Configuration& configuration, const ClusterPlan& plan, uint16_t dns_port);
  Cluster* findCluster(const Configuration& configuration, const ClusterPlan& plan) const;
  static std::shared_ptr<const resolve::Identity> makeIdentity(const BlockPlan& plan, Cluster* cluster);
  Result<void> listen(Configuration& configuration);
  Result<std::shared_ptr<const resolve::ServerBlock>> instantiate(const Configuration& configuration, Block& block,
                                                                  net::EventLoop& loop);
  void probeForLoops(Block& block, net::EventLoop& loop, resolve::Recursion& recursion);
  Result<std::unique_ptr<resolve::Recursion>> makeRecursion(const Configuration& configuration, const Block& block,
                                                            net::EventLoop& loop) const;
  void start(const Configuration& configuration);
  void onSignal(int signal);
  void reload();
  void retire(std::unique_ptr<Cluster> cluster);
  void onRetired();
  void joinRetired();
  [[noreturn]] void quit(int status);
  void shutDown(int status);
  void fatal(const std::string& line);

  Logger log_;
  const HashSeed hash_seed_;
  // All forwarders draw on it, those that a reload replaces too.
  const std::shared_ptr<net::DescriptorBudget> upstream_descriptors_;
  records::EpochDomain epochs_;
  std::vector<std::unique_ptr<Cluster>> clusters_;  // in use
  std::unique_ptr<etcd::CompletionThread> etcd_thread_;
  net::EventLoop loop_;
  std::vector<std::unique_ptr<net::SignalWatcher>> signals_;
  server::Server server_;
  Configuration configuration_;  // its clusters are in clusters_
  std::function<Result<Plan>()> read_plan_;
  // Gives up the name of a cluster that a reload has dropped, and is its owner until that is done.
  struct Retirement {
    std::weak_ptr<Cluster> cluster;
    std::thread thread;
  };
  std::vector<Retirement> retirements_;
  bool reload_waits_ = false;  // for all of these
  bool shutting_down_ = false;
  std::thread releaser_;  // stops the members while the loop goes on
  int status_ = 0;
};

}  // namespace idetcd::app
