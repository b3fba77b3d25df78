#include "cli/slots.h"

#include <gtest/gtest.h>

#include "cli/roster.h"

namespace idetcd::cli {
namespace {

using nlohmann::json;

// IDs 1, 2 (drained), 3 (another cluster's), 4 (this node), 5 (no record), out of order.
Cluster cluster() {
  return clustersOf(json{{"clusters",
                          {{{"pattern", "worker{{.ID}}.tf.local."},
                            {"limit", 10},
                            {"slots",
                             {{{"id", 4}, {"name", "worker4.tf.local."}, {"addresses", {"192.0.2.4"}}, {"own", true}},
                              {{"id", 5}, {"name", "worker5.tf.local."}, {"addresses", json::array()}},
                              {{"id", 1}, {"name", "worker1.tf.local."}, {"addresses", {"192.0.2.1"}}},
                              {{"id", 2}, {"name", "worker2.tf.local."}, {"drained", true}},
                              {{"id", 3}, {"name", "worker3.tf.local."}, {"addresses", {"192.0.2.3"}}, {"foreign", true}}}}}}}})
      .at(0);
}

TEST(Launchers, SlotsAreInTheOrderOfTheirIds) {
  const Cluster read = cluster();
  EXPECT_EQ(read.pattern, "worker{{.ID}}.tf.local.");
  EXPECT_EQ(read.limit, 10);
  ASSERT_EQ(read.slots.size(), 5u);
  EXPECT_EQ(read.slots[0].id, 1);
  EXPECT_EQ(read.slots[0].addresses, std::vector<std::string>{"192.0.2.1"});
  EXPECT_EQ(read.slots[0].node, std::nullopt);
  EXPECT_EQ(read.slots[1].state(), "drained or sick") << "its record does not say which";
  EXPECT_EQ(read.slots[2].state(), "of another pattern");
  EXPECT_EQ(read.slots[3].state(), "this node");
  EXPECT_EQ(read.slots[4].state(), "without a valid record");
  const auto own = [](bool sick) { return HeldSlot::of({{"drained", true}, {"sick", sick}, {"own", true}}).state(); };
  EXPECT_EQ(own(false), "this node, drained");
  EXPECT_EQ(own(true), "this node, sick");
}

TEST(Launchers, ExactlyTheMembersAskedFor) {
  EXPECT_EQ(exactly(cluster(), std::nullopt)->size(), 2u)
      << "those that are drained, of another cluster or without a record do not count";
  EXPECT_EQ(exactly(cluster(), 2)->size(), 2u);
  const auto wrong = exactly(cluster(), 3);
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().message, "2 names are held, not 3");
  EXPECT_EQ(wrong.error().code, kNo);
  EXPECT_TRUE(wrong.error().may_pass);
  EXPECT_FALSE(exactly(cluster(), 1).has_value()) << "one too many";
  EXPECT_FALSE(exactly(Cluster{}, std::nullopt).has_value());
}

TEST(Launchers, AnIndexIsThePositionAmongTheNamesHeld) {
  EXPECT_EQ(ownIndex(cluster().usable()), 1u);
  EXPECT_FALSE(ownIndex({}).has_value());
}

TEST(Launchers, TensorFlow) {
  EXPECT_EQ(
      tensorflowConfig(cluster().usable(), 1, "worker", 2222),
      json::parse(
          R"({"cluster":{"worker":["worker1.tf.local:2222","worker4.tf.local:2222"]},"task":{"type":"worker","index":1}})"));
}

TEST(Launchers, Mpi) {
  EXPECT_EQ(hostfile(cluster().usable(), 8), "worker1.tf.local slots=8\nworker4.tf.local slots=8\n");
  EXPECT_EQ(hostfile(cluster().usable(), std::nullopt), "worker1.tf.local\nworker4.tf.local\n");
  EXPECT_EQ(hostfileAsJson(cluster().usable(), 8),
            json::parse(R"([{"name":"worker1.tf.local","slots":8},{"name":"worker4.tf.local","slots":8}])"));
}

TEST(Launchers, PyTorch) {
  EXPECT_EQ(asEnvironment(torchrunVariables(cluster().usable(), 1, 29500)),
            "RANK=1\nWORLD_SIZE=2\nMASTER_ADDR=worker1.tf.local\nMASTER_PORT=29500\n");
  EXPECT_EQ(asEnvironment({{"A", "$(rm x)'"}}), "A='$(rm x)'\\'''\n") << "no name runs anything in a shell";
}

TEST(Launchers, OfSeveralClustersOneIsChosen) {
  EXPECT_EQ(onlyCluster(json{{"clusters", {{{"pattern", "a"}}, {{"pattern", "b"}}}}}).error().message,
            "there are several clusters: choose one with --pattern: a b");
  EXPECT_FALSE(onlyCluster(json::object()).has_value());
  EXPECT_EQ(onlyCluster(json{{"clusters", {{{"pattern", "a"}}}}})->pattern, "a");
}

TEST(Launchers, MembersAreCalledByNetworkAndAddress) {
  const json slot = json::parse(R"({"id":1,"name":"worker1.tf.local.","addresses":["192.0.2.1","fd00::1"],"own":true,
    "networks":{"fabric":{"name":"worker1.fabric.tf.local.","addresses":["fd01::1"]}}})");
  const std::vector<HeldSlot> slots{HeldSlot::of(slot)};
  EXPECT_EQ(slots[0].addressText(), "192.0.2.1 fd00::1, fabric fd01::1");
  const auto hosts = [&slots](const Calling& calling) {
    const auto found = called(slots, calling);
    return found ? hostfile(*found, std::nullopt) : found.error().message;
  };
  EXPECT_EQ(hosts({}), "worker1.tf.local\n");
  EXPECT_EQ(hosts({.network = {}, .by_address = true}), "192.0.2.1\n");
  EXPECT_EQ(hosts({.network = "fabric", .by_address = false}), "worker1.fabric.tf.local\n");
  EXPECT_EQ(hosts({.network = "fabric", .by_address = true}), "fd01::1\n");
  EXPECT_EQ(hosts({.network = "storage", .by_address = true}), "worker1.tf.local is not in the network storage");
  const auto found = called(slots, {.network = "fabric", .by_address = true});
  EXPECT_EQ(tensorflowConfig(*found, 0, "w", 1)["cluster"]["w"], json({"[fd01::1]:1"}));
  EXPECT_EQ(called({HeldSlot::of(json{{"name", "worker4.tf.local."}})}, {.network = {}, .by_address = true}).error().message,
            "worker4.tf.local has no address");
}

}  // namespace
}  // namespace idetcd::cli
