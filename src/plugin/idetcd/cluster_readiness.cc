#include "plugin/idetcd/cluster_readiness.h"

namespace idetcd::plugin {

std::string ClusterReadiness::missing() const {
  const std::lock_guard lock(mutex_);
  if (store_ == nullptr) return {};
  const bool unread = records::isIncomplete(store_->freshness());
  const bool unnamed = !observes_ && !member_->ownership();
  if (unread && unnamed) return "names not read from etcd, own name not claimed";
  if (unread) return "names not read from etcd";
  return unnamed ? "own name not claimed" : "";
}

void ClusterReadiness::detach() {
  const std::lock_guard lock(mutex_);
  store_ = nullptr;
}

}  // namespace idetcd::plugin
