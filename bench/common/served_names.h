// A server's insides without its process: worker1 … workerN in a store, and a router that answers for them on every
// name of the zone; or, with `world`, as many names below that zone in its cache. One thread.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/names.h"
#include "directive/file/zone_handler.h"
#include "records/record_store.h"
#include "resolve/router.h"
#include "resolver/forwarding_resolver.h"
#include "zones/zone_builder.h"

namespace idetcd::bench {

struct World {
  net::EventLoop& loop;
  dns::Name zone;
  bool aliased;  // a CNAME leads to each address
};

class ServedNames {
 public:
  // `counted`: as in a block with `prometheus`.
  ServedNames(uint32_t names, bool ipv6, const std::optional<World>& world = std::nullopt, bool counted = false)
      : store_(epochs_, {.zone = dns::Name::parse(kZone).value(), .addresses = {}, .hash_seed = randomHashSeed()}) {
    for (uint32_t i = 1; i <= names; ++i) {
      records::HostAddresses addresses{.ipv4 = IpAddress::v4(addressV4(i)), .ipv6 = {}};
      if (ipv6) addresses.ipv6 = IpAddress::v6(addressV6(i));
      store_.put(dns::Name::parse(numberedName(i)).value(), addresses, 1);
    }
    store_.setFreshness(records::Freshness::kFresh);
    auto chain = std::make_shared<resolve::Chain>();
    chain->addCluster(std::make_shared<const resolve::ClusterZone>(store_, resolve::ClusterZone::Options{}));
    if (world) chain->add(makeForwarding(names, *world, *chain));
    router_ = std::make_shared<resolve::Router>(
        std::vector<resolve::Router::Zone>{{.name = dns::Name(),
                                            .chain = std::move(chain),
                                            .meter = counted ? std::make_shared<resolve::QueryMeter>() : nullptr}},
        store_.table().seed(), nullptr, std::make_shared<resolve::QuerySamples>());
  }

  // The same names from a zone, as `file` has it, in place of all that was answered before.
  void serveZone(uint32_t names) {
    const auto origin = dns::Name::parse(kZone).value();
    zones::ZoneBuilder builder(origin, store_.table().seed());
    const std::array<uint8_t, 22> soa{};  // two names that are the root's, and numbers
    const std::array<uint8_t, 1> ns{};
    bool added = builder.add({origin.wire(), 6, 60, soa}, {}) && builder.add({origin.wire(), 2, 60, ns}, {});
    for (uint32_t i = 1; i <= names; ++i) {
      const auto name = dns::Name::parse(numberedName(i)).value();
      added = added && builder.add({name.wire(), 1, 60, addressV4(i)}, {});
    }
    const auto set = std::make_shared<directive::ZoneSet>(store_.table().seed());
    if (auto zone = builder.build(); added && zone) set->put({origin, {}, std::move(*zone)});
    auto chain = std::make_shared<resolve::Chain>();
    chain->add(std::make_unique<directive::ZoneHandler>(set, false, std::vector<IpNetwork>(), nullptr));
    router_ = std::make_shared<resolve::Router>(
        std::vector<resolve::Router::Zone>{{.name = dns::Name(), .chain = std::move(chain), .meter = nullptr}},
        store_.table().seed(), nullptr, std::make_shared<resolve::QuerySamples>());
  }

  records::EpochDomain& epochs() { return epochs_; }
  const std::shared_ptr<resolve::Router>& router() const { return router_; }

 private:
  std::unique_ptr<resolver::ForwardingResolver> makeForwarding(uint32_t names, const World& world,
                                                               const resolve::Chain& chain) {
    auto cache = std::make_unique<resolver::Cache>(resolver::Cache::Options{.success = {.capacity = 2 * names}});
    for (uint32_t i = 1; i <= names; ++i) {
      const auto name = dns::Name::parse("worker" + std::to_string(i) + '.' + world.zone.toString()).value();
      dns::Query query;
      query.qtype = dns::code(dns::RrType::kA);
      query.qclass = dns::code(dns::RrClass::kIn);
      query.qname_size = static_cast<uint16_t>(name.size());
      std::copy_n(name.data(), name.size(), query.qname);
      query.hash = hashBytes(name.data(), name.size(), store_.table().seed());
      resolver::StoredResponse response;
      setAddress(i, world.aliased ? dns::kHeaderSize + name.size() + 4 : 0, response);
      cache->insert(query, response, BootClock::now());
    }
    resolver::ForwardingResolver::Options options;
    options.chain = &chain;
    options.epochs = &epochs_;
    options.hash_seed = store_.table().seed();
    return std::make_unique<resolver::ForwardingResolver>(world.loop, std::move(options), std::move(cache),
                                                          std::vector<std::unique_ptr<resolver::Forwarder>>{});
  }

  // `alias_at`: where a CNAME stands in the message, which leads to a name below the question's; 0: there is none.
  static void setAddress(uint32_t number, size_t alias_at, resolver::StoredResponse& response) {
    response.kind = resolver::ResponseKind::kPositive;
    response.ttl_seconds = 3600;
    std::vector<uint8_t> records;
    std::vector<uint16_t> ttl_offsets;
    const auto add = [&](size_t owner, dns::RrType type, std::initializer_list<uint8_t> rdata) {
      ttl_offsets.push_back(static_cast<uint16_t>(records.size() + 6));
      const auto pointer = dns::pointerTo(owner);
      records.insert(records.end(), {static_cast<uint8_t>(pointer >> 8), static_cast<uint8_t>(pointer), 0,
                                     static_cast<uint8_t>(dns::code(type)), 0, 1, 0, 0, 0x0e, 0x10, 0, 4});
      records.insert(records.end(), rdata);
    };
    if (alias_at != 0) add(dns::kHeaderSize, dns::RrType::kCname, {1, 'a', 0xc0, dns::kHeaderSize});
    const auto v4 = addressV4(number);
    add(alias_at != 0 ? alias_at + 12 : dns::kHeaderSize, dns::RrType::kA, {v4[0], v4[1], v4[2], v4[3]});
    const auto size = static_cast<uint16_t>(records.size());
    response.packed = dns::PackedResponse::make({.answers = static_cast<uint16_t>(ttl_offsets.size()),
                                                 .answer_size = size,
                                                 .proof_end = size,
                                                 .authority_end = size},
                                                records, ttl_offsets);
  }

  records::EpochDomain epochs_;
  records::RecordStore store_;
  std::shared_ptr<resolve::Router> router_;
};

}  // namespace idetcd::bench
