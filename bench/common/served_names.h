// A server's insides without its process: worker1 … workerN in a store, and a resolver that answers for them on every
// name of the zone. One thread.
#pragma once

#include <memory>
#include <vector>

#include "common/names.h"
#include "records/record_store.h"
#include "resolve/resolver.h"

namespace idetcd::bench {

class ServedNames {
 public:
  ServedNames(uint32_t names, bool ipv6)
      : store_(epochs_, {.zone = dns::Name::parse(kZone).value(), .addresses = {}, .hash_seed = randomHashSeed()}) {
    for (uint32_t i = 1; i <= names; ++i) {
      records::HostAddresses addresses{.ipv4 = IpAddress::v4(addressV4(i)), .ipv6 = {}};
      if (ipv6) addresses.ipv6 = IpAddress::v6(addressV6(i));
      store_.put(dns::Name::parse(numberedName(i)).value(), addresses, 1);
    }
    store_.setFreshness(records::Freshness::kFresh);
    auto block = std::make_shared<resolve::ServerBlock>();
    block->cluster = std::make_shared<resolve::ClusterZone>(store_, resolve::ClusterZone::Options{});
    resolver_ = std::make_shared<resolve::Resolver>(
        std::vector<resolve::Resolver::Zone>{{.name = dns::Name(), .block = std::move(block)}}, store_.table().seed());
  }

  records::EpochDomain& epochs() { return epochs_; }
  const std::shared_ptr<resolve::Resolver>& resolver() const { return resolver_; }

 private:
  records::EpochDomain epochs_;
  records::RecordStore store_;
  std::shared_ptr<resolve::Resolver> resolver_;
};

}  // namespace idetcd::bench
