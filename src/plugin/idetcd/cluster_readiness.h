// What a cluster still lacks so that this node can answer for it: for `ready`. Any thread.
#pragma once

#include <mutex>
#include <string>

#include "naming/member.h"
#include "records/record_store.h"

namespace idetcd::plugin {

class ClusterReadiness {
 public:
  // `observes`: the node claims no name.
  ClusterReadiness(const records::RecordStore& store, const naming::Member& member, bool observes)
      : store_(&store), member_(&member), observes_(observes) {}

  // Empty: nothing.
  std::string missing() const;
  // Store and member go; nothing more is asked of them when this returns.
  void detach();

 private:
  mutable std::mutex mutex_;
  const records::RecordStore* store_;  // null: detached
  const naming::Member* const member_;
  const bool observes_;
};

}  // namespace idetcd::plugin
