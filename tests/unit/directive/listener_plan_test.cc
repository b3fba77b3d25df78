#include "directive/xdp/listener_plan.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace idetcd::directive {
namespace {

using kernel::kHeldOnly;
using kernel::kRecursion;
using kernel::kWhole;

dns::Name name(std::string_view text) { return dns::Name::parse(text).value(); }
SocketAddress at(std::string_view text, uint16_t port = 53) {
  return {.ip = IpAddress::parse(text).value(), .port = port};
}

class Nobody final : public resolve::Handler {
 public:
  resolve::QueryOutcome answer(const dns::Query&, const resolve::Request&, uint16_t) override {
    return resolve::QueryOutcome::next();
  }
};

class AllowAll final : public resolve::Gate {
 public:
  AclVerdict judge(const std::optional<IpAddress>&, std::span<const uint8_t>, std::optional<uint16_t>) const override {
    return AclVerdict::kAllow;
  }
};

class ListenerPlanTest : public testing::Test {
 protected:
  using Options = resolve::ClusterZone::Options;

  std::shared_ptr<resolve::Chain> chainOf(const records::RecordStore& store, Options options = {}) {
    auto chain = std::make_shared<resolve::Chain>();
    chain->parts.in_kernel = true;
    chain->addCluster(std::make_shared<const resolve::ClusterZone>(store, std::move(options)));
    return chain;
  }
  std::shared_ptr<resolve::Chain> otherChain() {
    auto chain = std::make_shared<resolve::Chain>();
    chain->add(std::make_unique<Nobody>());
    return chain;
  }
  using Zones = std::vector<resolve::Router::Zone>;
  // "ZONE FLAGS" of each zone, then "ptr" if there is who answers that.
  std::string plan(Zones zones) {
    routes_ = {{.address = at("192.0.2.1"), .zones = std::move(zones)}};
    std::string text;
    for (const PlannedListener& listener : planListeners(routes_)) {
      for (const PlannedZone& zone : listener.zones)
        text += zone.store->zone().toString() + " " + std::to_string(zone.flags) + " ";
      for (const PlannedZone& zone : listener.reverse) text += "ptr of " + zone.store->zone().toString();
    }
    return text;
  }

  records::EpochDomain epochs_;
  records::RecordStore tf_{epochs_, {.zone = name("tf.local."), .addresses = {}}};
  records::RecordStore deep_{epochs_, {.zone = name("x.tf.local."), .addresses = {}}};
  records::RecordStore root_{epochs_, {.zone = name("."), .addresses = {}}};
  std::vector<resolve::ListenerRoutes> routes_;
};

TEST_F(ListenerPlanTest, AZoneThatIsAnsweredFromTheTableAlone) {
  EXPECT_EQ(plan({{name("."), chainOf(tf_)}}), "tf.local. 2 ptr of tf.local.");
  EXPECT_EQ(plan({{name("local."), chainOf(tf_)}}), "tf.local. 2 ");
  EXPECT_EQ(plan({{name("tf.local."), chainOf(tf_)}}), "tf.local. 2 ");
  EXPECT_EQ(plan({{name("arpa."), chainOf(tf_)}}), "ptr of tf.local.");
  EXPECT_EQ(plan({{name("."), chainOf(root_)}}), "");
}

TEST_F(ListenerPlanTest, WhateverComesFirstComesFirst) {
  const auto gated = chainOf(tf_);
  gated->parts.gate = std::make_shared<const AllowAll>();
  EXPECT_EQ(plan({{name("."), gated}}), "");
  const auto with_cookies = chainOf(tf_);
  with_cookies->parts.requires_cookie = true;
  EXPECT_EQ(plan({{name("."), with_cookies}}), "");
  const auto unasked = chainOf(tf_);
  unasked->parts.in_kernel = false;
  EXPECT_EQ(plan({{name("."), unasked}}), "");
  auto behind = std::make_shared<resolve::Chain>();
  behind->parts.in_kernel = true;
  behind->add(std::make_unique<Nobody>());
  behind->addCluster(std::make_shared<const resolve::ClusterZone>(tf_, Options{}));
  EXPECT_EQ(plan({{name("."), behind}}), "");
}

TEST_F(ListenerPlanTest, NamesOfAnotherBlockAreItsOwn) {
  EXPECT_EQ(plan({{name("."), chainOf(tf_)}, {name("example."), otherChain()}}), "tf.local. 2 ptr of tf.local.");
  EXPECT_EQ(plan({{name("."), chainOf(tf_)}, {name("x.tf.local."), otherChain()}}), "ptr of tf.local.");
  EXPECT_EQ(plan({{name("."), chainOf(tf_)}, {name("tf.local."), otherChain()}}), "ptr of tf.local.");
  EXPECT_EQ(plan({{name("."), chainOf(tf_)}, {name("in-addr.arpa."), otherChain()}}), "tf.local. 2 ");
  EXPECT_EQ(plan({{name("."), chainOf(tf_)}, {name("2.0.192.in-addr.arpa."), otherChain()}}), "tf.local. 2 ");
  EXPECT_EQ(plan({{name("tf.local."), chainOf(tf_)}, {name("."), otherChain()}}), "tf.local. 2 ");
}

TEST_F(ListenerPlanTest, TheLongestZoneIsTriedFirst) {
  EXPECT_EQ(plan({{name("."), chainOf(tf_)}, {name("example."), chainOf(deep_)}}), "tf.local. 2 ptr of tf.local.");
  records::RecordStore other(epochs_, {.zone = name("longer.example."), .addresses = {}});
  EXPECT_EQ(plan({{name("tf.local."), chainOf(tf_)}, {name("example."), chainOf(other)}}),
            "longer.example. 2 tf.local. 2 ");
}

TEST_F(ListenerPlanTest, WhatIsNotThereMayBeElsewhere) {
  EXPECT_EQ(plan({{name("."), chainOf(tf_, {.fallthrough = {name("x.tf.local.")}})}}), "tf.local. 0 ptr of tf.local.");
  EXPECT_EQ(plan({{name("."), chainOf(tf_, {.fallthrough = {name(".")}})}}), "tf.local. 0 ptr of tf.local.");
  EXPECT_EQ(plan({{name("."), chainOf(tf_, {.fallthrough = {name("example.")}})}}), "tf.local. 2 ptr of tf.local.");
  EXPECT_EQ(plan({{name("tf.local."), chainOf(tf_, {.sources = {name("etcd1.tf.local.")}})}}),
            "tf.local. " + std::to_string(kHeldOnly) + " ");
  const auto forwarding = chainOf(tf_);
  forwarding->parts.recursion_available = true;
  EXPECT_EQ(plan({{name("tf.local."), forwarding}}), "tf.local. " + std::to_string(kWhole | kRecursion) + " ");
}

// "ADDRESS:PORT%INTERFACE"
std::vector<std::string> textsOf(const std::vector<kernel::ListenerKey>& keys) {
  std::vector<std::string> texts;
  for (const kernel::ListenerKey& key : keys) {
    const SocketAddress address{.ip = IpAddress::fromBytes(key.address).unmapped(), .port = ntohs(key.port)};
    texts.push_back(address.toString() + "%" + std::to_string(key.interface));
  }
  return texts;
}

TEST(ListenerKeys, AListenerHasItsOwnAddressOrAllThatNobodyElseHas) {
  using Texts = std::vector<std::string>;
  const auto ip = [](std::string_view text) { return IpAddress::parse(text).value(); };
  const std::vector<net::AssignedAddress> assigned{{ip("127.0.0.1"), 1}, {ip("192.0.2.1"), 2}, {ip("192.0.2.2"), 1},
                                                   {ip("::1"), 1},       {ip("fe80::1"), 2},   {ip("2001:db8::1"), 3}};
  const std::vector<SocketAddress> alone{at("0.0.0.0"), at("::")};
  EXPECT_EQ(textsOf(keysOf(at("192.0.2.7"), alone, assigned)), Texts{"192.0.2.7:53%1"});
  EXPECT_EQ(textsOf(keysOf(at("192.0.2.1"), alone, assigned)), (Texts{"192.0.2.1:53%1", "192.0.2.1:53%2"}));
  EXPECT_EQ(textsOf(keysOf(at("192.0.2.2"), alone, assigned)), Texts{"192.0.2.2:53%1"});
  EXPECT_EQ(textsOf(keysOf(at("fe80::1"), alone, assigned)), Texts{});
  EXPECT_EQ(textsOf(keysOf(at("0.0.0.0"), alone, assigned)),
            (Texts{"127.0.0.0:53%1", "127.0.0.1:53%1", "192.0.2.1:53%1", "192.0.2.1:53%2", "192.0.2.2:53%1"}));
  EXPECT_EQ(textsOf(keysOf(at("::"), alone, assigned)),
            (Texts{"[::1]:53%1", "[2001:db8::1]:53%1", "[2001:db8::1]:53%3"}));
  const std::vector<SocketAddress> shared{at("0.0.0.0"), at("192.0.2.2"), at("127.0.0.53"), at("192.0.2.1", 54)};
  EXPECT_EQ(textsOf(keysOf(at("0.0.0.0"), shared, assigned)),
            (Texts{"127.0.0.1:53%1", "192.0.2.1:53%1", "192.0.2.1:53%2"}));
}

}  // namespace
}  // namespace idetcd::directive
