// Notices that another slot of the pattern has an address of this node: a machine image with a fixed address, a network
// that gives one address to two. Both names go on being served, as etcd has them, and each node says of the address
// that it is its own name; but a client that asks for one of the two names may reach the other machine, so this is
// logged. An address that two processes of one machine publish under different patterns is no such case, nor is a key
// without a lease, which was put there as another name for a node. Scheduler's thread only; no I/O.
#pragma once

#include <unordered_set>

#include "base/log.h"
#include "naming/counters.h"
#include "naming/record_codec.h"
#include "slots/name_pattern.h"
#include "store/store.h"

namespace idetcd::naming {

class SharedAddress {
 public:
  // `own`: what this node publishes, and its UUID, at present.
  SharedAddress(slots::NamePattern pattern, std::function<const NodeRecord&()> own, Counters& counters, Logger log)
      : pattern_(std::move(pattern)), own_(std::move(own)), counters_(counters), log_(std::move(log)) {}

  void put(const store::KeyValue& kv, const NodeRecord& record);
  void remove(std::string_view key);

 private:
  // Each is named once as long as it lasts; of those beyond, only the number is kept.
  static constexpr size_t kMaxNamed = 16;

  const slots::NamePattern pattern_;
  const std::function<const NodeRecord&()> own_;
  Counters& counters_;
  const Logger log_;
  std::unordered_set<std::string> named_;
};

}  // namespace idetcd::naming
