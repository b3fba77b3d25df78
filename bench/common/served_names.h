// A server's insides without its process: worker1 … workerN in a store, and a resolver that answers for them on every
// name of the zone; or, with `world`, as many names below that zone in its cache. One thread.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/names.h"
#include "records/record_store.h"
#include "resolve/resolver.h"

namespace idetcd::bench {

struct World {
  net::EventLoop& loop;
  dns::Name zone;
};

class ServedNames {
 public:
  ServedNames(uint32_t names, bool ipv6, const std::optional<World>& world = std::nullopt)
      : store_(epochs_, {.zone = dns::Name::parse(kZone).value(), .addresses = {}, .hash_seed = randomHashSeed()}) {
    for (uint32_t i = 1; i <= names; ++i) {
      records::HostAddresses addresses{.ipv4 = IpAddress::v4(addressV4(i)), .ipv6 = {}};
      if (ipv6) addresses.ipv6 = IpAddress::v6(addressV6(i));
      store_.put(dns::Name::parse(numberedName(i)).value(), addresses, 1);
    }
    store_.setFreshness(records::Freshness::kFresh);
    auto block = std::make_shared<resolve::ServerBlock>();
    block->cluster = std::make_shared<resolve::ClusterZone>(store_, resolve::ClusterZone::Options{});
    if (world) block->recursion = makeRecursion(names, *world);
    resolver_ = std::make_shared<resolve::Resolver>(
        std::vector<resolve::Resolver::Zone>{{.name = dns::Name(), .block = std::move(block)}}, store_.table().seed());
  }

  records::EpochDomain& epochs() { return epochs_; }
  const std::shared_ptr<resolve::Resolver>& resolver() const { return resolver_; }

 private:
  std::unique_ptr<resolve::Recursion> makeRecursion(uint32_t names, const World& world) const {
    auto cache = std::make_unique<resolve::Cache>(resolve::Cache::Options{.success = {.capacity = 2 * names}});
    for (uint32_t i = 1; i <= names; ++i) {
      const auto name = dns::Name::parse("worker" + std::to_string(i) + '.' + world.zone.toString()).value();
      dns::Query query;
      query.qtype = dns::code(dns::RrType::kA);
      query.qclass = dns::code(dns::RrClass::kIn);
      query.qname_size = static_cast<uint16_t>(name.size());
      std::copy_n(name.data(), name.size(), query.qname);
      query.hash = hashBytes(name.data(), name.size(), store_.table().seed());
      resolve::StoredResponse response;
      setAddress(i, response);
      cache->insert(query, response, BootClock::now());
    }
    return std::make_unique<resolve::Recursion>(world.loop, resolve::Recursion::Options{}, std::move(cache),
                                                std::vector<std::unique_ptr<resolve::Forwarder>>{}, nullptr, nullptr);
  }

  static void setAddress(uint32_t number, resolve::StoredResponse& response) {
    response.kind = resolve::ResponseKind::kPositive;
    response.ttl_seconds = 3600;
    response.body = {0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0x0e, 0x10, 0, 4};
    for (const uint8_t octet : addressV4(number)) response.body.push_back(octet);
    response.ttl_offsets = {6};
    response.sections.answers = 1;
    response.sections.answer_size = response.sections.authority_end = static_cast<uint16_t>(response.body.size());
    response.sections.body = response.body;
    response.sections.ttl_offsets = response.ttl_offsets;
  }

  records::EpochDomain epochs_;
  records::RecordStore store_;
  std::shared_ptr<resolve::Resolver> resolver_;
};

}  // namespace idetcd::bench
