// Makes the stores of clusters, and has the thread on which they are asked and their tables are written.
#pragma once

#include "directive/idetcd/cluster.h"
#include "etcd/completion_thread.h"
#include "resolve/directive.h"

namespace idetcd::directive {

class ClusterStores {
 public:
  explicit ClusterStores(resolve::Process& process) : process_(process) {}

  // The thread is there from then on, until stop(). REQUIRED by all that follows.
  Result<void> begin();
  etcd::CompletionThread& thread() { return *thread_; }
  void stop(std::chrono::nanoseconds grace);  // see CompletionThread::stop()

  std::unique_ptr<ClusterStore> make(const ClusterSettings& settings, const node::NodeAddresses& node) const;
  // Its client, which asks nothing by itself. `peers` of the store is set.
  std::unique_ptr<etcd::Client> open(const ClusterSettings& settings, ClusterStore& store,
                                     const metrics::Scope& metrics);
  std::unique_ptr<records::RecordUnion> unite(const ClusterSettings& settings, const node::NodeAddresses& node,
                                              const ClusterStore& first, const ClusterStore& second,
                                              records::RecordUnion::Second counts);
  // Blocks until the writer of the tables has done `work`, which is not done if it has ended: it writes nothing any more.
  void onWriter(std::function<void()> work);

  metrics::Scope scopeOf(const ClusterSettings& settings) const;
  // Of numbers that each store of a cluster that moves has for itself.
  metrics::Scope scopeOf(const ClusterSettings& settings, bool at_peers) const;

 private:
  resolve::Process& process_;
  std::unique_ptr<etcd::CompletionThread> thread_;
};

}  // namespace idetcd::directive
