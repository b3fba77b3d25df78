// The addresses that this node publishes under its name. They follow those of the machine while the machine has any:
// one that is off the network for a moment keeps what it has published, as loopback would send every client to itself.
#pragma once

#include "base/log.h"
#include "base/result.h"
#include "node/addresses.h"
#include "records/member_data.h"

namespace idetcd::naming {

class PublishedAddresses {
 public:
  PublishedAddresses(records::MemberAddresses first, Logger log) : log_(std::move(log)), addresses_(std::move(first)) {}

  records::MemberAddresses get() const;  // any thread

  // The machine's current addresses. True: they are published from now on. One thread.
  bool update(const Result<node::NodeAddresses>& found);

 private:
  const Logger log_;
  std::string trouble_;   // as logged
  std::string missing_;   // of networks, as logged
  mutable std::mutex mutex_;
  records::MemberAddresses addresses_;  // guarded by mutex_
};

}  // namespace idetcd::naming
