// What is proven against a real etcd, and what is not taken for a proof.
#include "cluster/confirmation.h"

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cluster/keyspace.h"
#include "cluster/vm_generation.h"
#include "support/etcd_server.h"
#include "unit/cluster/eventually.h"

namespace idetcd::cluster {
namespace {

using namespace std::chrono_literals;
using test_support::EtcdServer;

constexpr std::chrono::nanoseconds kLease = 2s;

// One node's confirmation, with the test in the place of mirror and keeper.
struct Node {
  explicit Node(const EtcdServer& server, std::chrono::nanoseconds lease = kLease)
      : client(thread, clientOptions(server), {}),
        confirmation(context, {.lease = lease, .beat_keys = {beatKey(watchedRange())}}) {
    confirmation.onPresent([this](BootClock::time_point) { ++presents; });
    confirmation.onHolder([this] { holder = confirmation.holder(); });
    thread.spawn(confirmation.run());
  }
  ~Node() {
    thread.post([this] {
      lifetime.stop();
      confirmation.stop();
    });
    thread.stop();
  }
  static etcd::Client::Options clientOptions(const EtcdServer& server) {
    etcd::Client::Options options;
    options.endpoints = {server.endpoint()};
    return options;
  }
  template <typename Work>
  void onThread(Work work) {
    std::promise<void> done;
    thread.post([&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }
  bool behind() {
    bool is = false;
    onThread([&] { is = confirmation.behind(); });
    return is;
  }
  bool becomes(Confirmation::Holder wanted) {
    return eventually([&] { return holder == wanted; });
  }

  Counters counters;
  Jitter jitter;
  etcd::CompletionThread thread;
  etcd::Client client;
  Lifetime lifetime{thread};
  EtcdTrouble trouble{Logger()};
  Context context{thread, client, lifetime, trouble, counters, jitter, {}};
  Confirmation confirmation;
  std::atomic<int> presents{0};
  std::atomic<Confirmation::Holder> holder{Confirmation::Holder::kUnconfirmed};
};

class ConfirmationTest : public testing::Test {
 protected:
  struct Place {
    int64_t revision = 0;
    uint64_t cluster_id = 0;
  };
  // Of the store now, as a snapshot finds it.
  Place place(Node& node) {
    std::promise<Place> found;
    node.thread.spawn(read(node.client, found));
    return found.get_future().get();
  }
  static etcd::Task<void> read(etcd::Client& client, std::promise<Place>& found) {
    etcd::KeyRange key = etcd::KeyRange::single("a");
    const auto answer = co_await client.range(std::move(key), {});
    found.set_value(answer ? Place{answer->revision, answer->cluster_id} : Place{});
  }
  void load(Node& node) {
    const Place at = place(node);
    ASSERT_NE(at.revision, 0);
    node.onThread([&] { node.confirmation.loaded(at.revision, at.cluster_id); });
  }
  int64_t grant() {
    const std::string granted = server_.ctl({"lease", "grant", "60"});
    return std::stoll(granted.substr(6, granted.find(' ', 6) - 6), nullptr, 16);
  }
  void hold(Node& node, int64_t lease) {
    node.onThread([&] { node.confirmation.hold("uuid", lease); });
  }
  std::string incarnation() { return server_.ctl({"get", "--print-value-only", incarnationKey("uuid")}); }

  EtcdServer server_;
};

TEST_F(ConfirmationTest, AQuietStoreIsConfirmedWithoutAWrite) {
  Node node(server_);
  load(node);
  EXPECT_TRUE(eventually([&] { return node.presents >= 6; }));
  EXPECT_EQ(node.counters.beats.value(), 0u);
  EXPECT_FALSE(node.behind());
  EXPECT_LE(node.counters.confirmations.value(), 10u) << "a few requests a lease";
}

TEST_F(ConfirmationTest, WhereOthersWriteTheWatchHasToShowTheBeat) {
  Node node(server_);
  load(node);
  ASSERT_TRUE(eventually([&] { return node.presents >= 1; }));
  server_.ctl({"put", "/others", "x"});
  ASSERT_TRUE(eventually([&] { return node.counters.beats.value() == 1; }));
  const int seen = node.presents;
  // Far ahead of the events, as etcd 3.4.23 may tell it.
  node.onThread([&] { node.confirmation.progressed(1'000'000); });
  ASSERT_TRUE(eventually([&] { return node.behind(); })) << "the beat is in the store and was not delivered";
  EXPECT_EQ(node.presents, seen) << "progress proves nothing";
  EXPECT_EQ(node.counters.beats.value(), 1u) << "one is enough to tell";
  const int64_t revision = place(node).revision;
  node.onThread([&] { node.confirmation.delivered(revision); });
  EXPECT_GT(node.presents, seen);
  EXPECT_FALSE(node.behind());
}

TEST_F(ConfirmationTest, OfManyNodesFewWriteTheBeat) {
  std::vector<std::unique_ptr<Node>> nodes;
  for (int i = 0; i < 20; ++i) {
    nodes.push_back(std::make_unique<Node>(server_));
    load(*nodes.back());
  }
  server_.ctl({"put", "/others", "x"});
  const auto beats = [&] {
    uint64_t sum = 0;
    for (const auto& node : nodes) sum += node->counters.beats.value();
    return sum;
  };
  ASSERT_TRUE(eventually([&] { return beats() > 0; }));
  const uint64_t confirmations = nodes.front()->counters.confirmations.value();
  ASSERT_TRUE(eventually([&] { return nodes.front()->counters.confirmations.value() >= confirmations + 4; }));
  EXPECT_EQ(beats(), 1u) << "who compares with the revision of before does not write";
}

TEST_F(ConfirmationTest, AnotherStoreConfirmsNothing) {
  Node node(server_);
  const Place at = place(node);
  node.onThread([&] { node.confirmation.loaded(at.revision, at.cluster_id + 1); });
  EXPECT_TRUE(eventually([&] { return node.behind(); }));
  node.onThread([&] { node.confirmation.loaded(at.revision + 1000, at.cluster_id); });
  EXPECT_TRUE(eventually([&] { return node.behind(); })) << "it went back";
  for (int i = 0; i < 3; ++i) server_.ctl({"put", "/on", "x"});
  node.onThread([&] { node.confirmation.watchOpened(); });
  EXPECT_TRUE(node.behind()) << "until the names are read anew, wherever it has gone since";
  EXPECT_EQ(node.presents, 0);
  load(node);
  EXPECT_TRUE(eventually([&] { return node.presents > 0; }));
  EXPECT_FALSE(node.behind());
}

TEST_F(ConfirmationTest, TheHolderOfALeaseWritesAnIncarnationUnderIt) {
  Node node(server_);
  const int64_t lease = grant();
  hold(node, lease);
  ASSERT_TRUE(node.becomes(Confirmation::Holder::kOurs));
  const std::string first = incarnation();
  EXPECT_FALSE(first.empty());
  node.onThread([&] { node.confirmation.watchOpened(); });
  EXPECT_TRUE(eventually([&] { return incarnation() != first; })) << "each connection has one of its own";
  ASSERT_TRUE(node.becomes(Confirmation::Holder::kOurs));
  // Deleted by an operator, or by a store that was set back: written anew.
  server_.ctl({"del", incarnationKey("uuid")});
  EXPECT_TRUE(eventually([&] { return !incarnation().empty(); }));
  server_.ctl({"lease", "revoke", fmt::format("{:x}", lease)});
  EXPECT_EQ(incarnation(), "");
}

// A claim that comes while a read is under way does not wait for the next one, a quarter of the lease later.
TEST_F(ConfirmationTest, AClaimIsConfirmedAtOnce) {
  Node node(server_, 300s);
  for (int i = 0; i < 20; ++i) {
    const int64_t lease = grant();
    const Place at = place(node);
    node.onThread([&] { node.confirmation.loaded(at.revision, at.cluster_id); });
    node.onThread([&] {
      node.holder = Confirmation::Holder::kUnconfirmed;
      node.confirmation.hold("uuid", lease);
    });
    ASSERT_TRUE(node.becomes(Confirmation::Holder::kOurs)) << i;
  }
}

TEST_F(ConfirmationTest, WhatAnEarlierProcessLeftIsReplaced) {
  server_.ctl({"put", fmt::format("--lease={:x}", grant()), incarnationKey("uuid"), "of before"});
  Node node(server_);
  hold(node, grant());
  EXPECT_TRUE(node.becomes(Confirmation::Holder::kOurs));
  EXPECT_NE(incarnation(), "of before\n");
}

// Two processes from one snapshot of memory: the same UUID, the same lease, and the same incarnation, as far as each
// knows. Both find a new connection; the first to write goes on.
TEST_F(ConfirmationTest, OfTwoClonesOneStops) {
  const int64_t lease = grant();
  Node a(server_);
  Node b(server_);
  hold(a, lease);
  hold(b, lease);
  using Holder = Confirmation::Holder;
  ASSERT_TRUE(eventually([&] {
    return (a.holder == Holder::kOurs && b.holder == Holder::kForeign) ||
           (b.holder == Holder::kOurs && a.holder == Holder::kForeign);
  }));
  Node& winner = a.holder == Holder::kOurs ? a : b;
  Node& loser = a.holder == Holder::kOurs ? b : a;
  const uint64_t confirmations = winner.counters.confirmations.value();
  ASSERT_TRUE(eventually([&] { return winner.counters.confirmations.value() >= confirmations + 3; }));
  EXPECT_EQ(winner.holder, Holder::kOurs);
  EXPECT_EQ(loser.holder, Holder::kForeign);
}

TEST(StandstillTest, ANewGenerationVoidsWhatWasCertain) {
  Standstill standstill;
  const Standstill::Mark before = standstill.mark();
  EXPECT_FALSE(standstill.since(before, 1s));
  standstill.noteGeneration();
  EXPECT_TRUE(standstill.since(before, 1s));
  EXPECT_FALSE(standstill.since(standstill.mark(), 1s));
  Standstill::Mark earlier = standstill.mark();
  earlier.wall_ahead -= 2s;
  EXPECT_TRUE(standstill.since(earlier, 1s)) << "the wall clock has jumped on";
  EXPECT_TRUE(standstill.since(Standstill::Mark::earlier(standstill.mark(), earlier), 1s));
  earlier.wall_ahead += 4s;
  EXPECT_FALSE(standstill.since(earlier, 1s)) << "and a clock that is set back shows no pause";
}

TEST(VmGenerationTest, OnlyTheKernelsOwnEventCounts) {
  using namespace std::string_view_literals;
  EXPECT_TRUE(VmGeneration::isNewGeneration(
      "change@/devices/LNXSYSTM:00/QEMUVGID:00\0ACTION=change\0SUBSYSTEM=platform\0NEW_VMGENID=1\0SEQNUM=7\0"sv));
  EXPECT_TRUE(VmGeneration::isNewGeneration("change@/x\0NEW_VMGENID=1"sv));
  EXPECT_FALSE(VmGeneration::isNewGeneration("change@/x\0SYNTH_ARG_NEW_VMGENID=1\0"sv));
  EXPECT_FALSE(VmGeneration::isNewGeneration("change@/NEW_VMGENID=1\0NEW_VMGENID=10\0"sv));
  EXPECT_FALSE(VmGeneration::isNewGeneration(""sv));
  EXPECT_FALSE(VmGeneration::isNewGeneration("\0\0"sv));
}

}  // namespace
}  // namespace idetcd::cluster
