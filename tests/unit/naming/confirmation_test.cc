// What is proven against a real etcd, and what is not taken for a proof.
#include "naming/confirmation.h"

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "etcd/client.h"
#include "naming/keyspace.h"
#include "naming/record_codec.h"
#include "node/vm_generation.h"
#include "support/etcd_server.h"
#include "support/eventually.h"
#include "support/manual_scheduler.h"
#include "unit/naming/on_thread.h"
#include "unit/naming/tcp_proxy.h"

namespace idetcd::naming {
namespace {

using namespace std::chrono_literals;
using test_support::EtcdServer;

constexpr std::chrono::nanoseconds kLease = 2s;

// One node's confirmation, with the test in the place of mirror and keeper.
struct Node {
  explicit Node(const EtcdServer& server, std::chrono::nanoseconds lease = kLease)
      : Node(server.endpoint(), lease, false) {}
  Node(const std::string& endpoint, std::chrono::nanoseconds lease, bool watches_elsewhere)
      : client(thread, clientOptions(endpoint), {}),
        confirmation(context, {.lease = lease,
                               .beat_keys = {beatKey(watchedRange())},
                               .watches_elsewhere = [watches_elsewhere] { return watches_elsewhere; }}) {
    confirmation.onCurrent([this](BootClock::time_point) { ++presents; });
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
  static etcd::Client::Options clientOptions(const std::string& endpoint) {
    etcd::Client::Options options;
    options.endpoints = {endpoint};
    return options;
  }
  bool behind() {
    bool is = false;
    onThread(thread, [&] { is = confirmation.behind(); });
    return is;
  }
  bool becomes(Confirmation::Holder wanted) {
    return eventually([&] { return holder == wanted; });
  }

  Counters counters;
  KernelRandom random;
  Jitter jitter{random};
  RoundTrip round_trip{kLease, {}};
  const std::unique_ptr<etcd::CompletionThread> owned_thread = etcd::CompletionThread::make().value();
  etcd::CompletionThread& thread = *owned_thread;
  etcd::Client client;
  Lifetime lifetime{thread};
  ErrorLogThrottle trouble{Logger()};
  Context context{thread, client, lifetime, trouble, counters, random, jitter, round_trip, {}};
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
  static runtime::Task<void> read(etcd::Client& client, std::promise<Place>& found) {
    store::KeyRange key = store::KeyRange::single("a");
    const auto answer = co_await client.range(std::move(key), {});
    found.set_value(answer ? Place{answer->revision, answer->cluster_id} : Place{});
  }
  void load(Node& node) {
    const Place at = place(node);
    ASSERT_NE(at.revision, 0);
    onThread(node.thread, [&] { node.confirmation.loaded(at.revision, at.cluster_id); });
  }
  int64_t grant() {
    const std::string granted = server_.ctl({"lease", "grant", "60"});
    return std::stoll(granted.substr(6, granted.find(' ', 6) - 6), nullptr, 16);
  }
  void hold(Node& node, int64_t lease) {
    onThread(node.thread,
             [&] { node.confirmation.hold("uuid", lease, {}, {}, node.confirmation.standstill().mark()); });
  }
  std::string incarnation() { return server_.ctl({"get", "--print-value-only", incarnationKey("uuid")}); }

  EtcdServer server_;
};

// As long as there is no snapshot.
TEST_F(ConfirmationTest, TheKeyIsOursOnlyWithOurUuid) {
  const int64_t lease = grant();
  const std::string name = "worker1.tf.local.";
  server_.ctl({"put", "--lease", fmt::format("{:x}", lease), name, encodeRecord({{}, {}, "53", "uuid"})});
  Node node(server_);
  const int64_t revision = place(node).revision;
  onThread(node.thread, [&] {
    node.confirmation.hold("uuid", lease, {name, revision}, {}, node.confirmation.standstill().mark());
  });
  const auto isSeen = [&] {
    bool is = false;
    onThread(node.thread, [&] { is = node.confirmation.slotAsOf().has_value(); });
    return is;
  };
  ASSERT_TRUE(eventually(isSeen));
  server_.ctl({"put", "--ignore-lease", name, encodeRecord({{}, {}, "53", "by hand"})});
  EXPECT_TRUE(eventually([&] { return !isSeen(); }));
}

// The mirror has found that the store was set back: what it shows may be older than the claim.
TEST_F(ConfirmationTest, AKeyThatTheWatchDoesNotTellOfIsReadThoughItIsOpen) {
  const int64_t lease = grant();
  Node node(server_);
  load(node);
  onThread(node.thread, [&] {
    node.confirmation.watchOpened(true);
    node.confirmation.hold("uuid", lease, {"worker1.tf.local.", 1, true}, {}, node.confirmation.standstill().mark());
  });
  EXPECT_TRUE(eventually([&] {
    bool is = false;
    onThread(node.thread, [&] { is = node.confirmation.slotIsGone(); });
    return is;
  }));
}

// Found by tools/simulate: a store was set back to a time before the claim, and had come as far again when a node that
// had been cut off was back. Its watch went on, and had nothing to show.
TEST_F(ConfirmationTest, BehindANewWatchTheKeyIsReadOnceMore) {
  const int64_t lease = grant();
  const std::string name = "worker1.tf.local.";
  const std::string value = encodeRecord({{}, {}, "53", "uuid"});
  server_.ctl({"put", "--lease", fmt::format("{:x}", lease), name, value});
  Node node(server_);
  const int64_t revision = place(node).revision;
  load(node);
  std::atomic<int> changes{0};
  onThread(node.thread, [&] {
    node.confirmation.onHolder([&] { ++changes; });
    node.confirmation.hold("uuid", lease, {name, revision}, {}, node.confirmation.standstill().mark());
  });
  const auto isMissing = [&] {
    bool is = false;
    onThread(node.thread, [&] { is = node.confirmation.slotIsMissing(); });
    return is;
  };
  ASSERT_TRUE(eventually([&] { return changes > 0; }));
  EXPECT_FALSE(isMissing());
  onThread(node.thread, [&] {
    node.confirmation.watchOpened(false);
    EXPECT_TRUE(node.confirmation.slotIsMissing()) << "names were old: it does not count before it is read";
  });
  ASSERT_TRUE(eventually([&] { return !isMissing(); }));
  changes = 0;
  server_.ctl({"del", name});
  onThread(node.thread, [&] { node.confirmation.watchOpened(true); });
  EXPECT_TRUE(eventually(isMissing));
  EXPECT_TRUE(eventually([&] { return changes >= 1; })) << "the keeper hears of it";
}

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
  // Far ahead of the events, as etcd 3.4.23 may report it.
  onThread(node.thread, [&] { node.confirmation.progressed(1'000'000); });
  ASSERT_TRUE(eventually([&] { return node.behind(); })) << "the beat is in the store and was not delivered";
  EXPECT_EQ(node.presents, seen) << "progress proves nothing";
  EXPECT_EQ(node.counters.beats.value(), 1u) << "one is enough";
  const int64_t revision = place(node).revision;
  onThread(node.thread, [&] { node.confirmation.delivered(revision); });
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

TEST_F(ConfirmationTest, AfterAFailureThereIsAPauseThoughABeatIsDue) {
  Node node(server_, 8s);
  load(node);
  ASSERT_TRUE(eventually([&] { return node.presents >= 1; }));
  server_.ctl({"put", "/others", "x"});
  const uint64_t before = node.counters.confirmations.value();
  ASSERT_TRUE(eventually([&] { return node.counters.confirmations.value() > before; }));
  server_.kill();  // the beat is due within a second; a call to a port that is closed fails at once
  ASSERT_TRUE(eventually([&] { return node.counters.confirmation_failures.value() >= 3; }));
  std::this_thread::sleep_for(2s);  // what must not happen has no event to wait for
  EXPECT_EQ(node.counters.beats.value(), 0u);
  EXPECT_LE(node.counters.confirmation_failures.value(), 40u) << "0.1 s to 0.5 s between two";
}

TEST_F(ConfirmationTest, AnotherStoreConfirmsNothing) {
  Node node(server_);
  const Place at = place(node);
  onThread(node.thread, [&] { node.confirmation.loaded(at.revision, at.cluster_id + 1); });
  EXPECT_TRUE(eventually([&] { return node.behind(); }));
  onThread(node.thread, [&] { node.confirmation.loaded(at.revision + 1000, at.cluster_id); });
  EXPECT_TRUE(eventually([&] { return node.behind(); })) << "it went back";
  for (int i = 0; i < 3; ++i) server_.ctl({"put", "/on", "x"});
  onThread(node.thread, [&] { node.confirmation.watchOpened(true); });
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
  const uint64_t confirmations = node.counters.confirmations.value();
  onThread(node.thread, [&] {
    node.confirmation.watchEnded(false);
    node.confirmation.watchOpened(true);
  });
  ASSERT_TRUE(eventually([&] { return node.counters.confirmations.value() > confirmations; }));
  EXPECT_EQ(incarnation(), first) << "a watch that is opened again writes nothing";
  onThread(node.thread, [&] { node.confirmation.watchEnded(true); });
  EXPECT_TRUE(eventually([&] { return incarnation() != first; })) << "each connection has one of its own";
  ASSERT_TRUE(node.becomes(Confirmation::Holder::kOurs));
  // Deleted by an operator, or by a store that was set back: written anew.
  server_.ctl({"del", incarnationKey("uuid")});
  EXPECT_TRUE(eventually([&] { return !incarnation().empty(); }));
  server_.ctl({"lease", "revoke", fmt::format("{:x}", lease)});
  EXPECT_EQ(incarnation(), "");
}

// A claim that comes while a read is under way does not wait for the next one, half of the lease later.
TEST_F(ConfirmationTest, AClaimIsConfirmedAtOnce) {
  Node node(server_, 300s);
  for (int i = 0; i < 20; ++i) {
    const int64_t lease = grant();
    const Place at = place(node);
    onThread(node.thread, [&] { node.confirmation.loaded(at.revision, at.cluster_id); });
    onThread(node.thread, [&] {
      node.holder = Confirmation::Holder::kUnconfirmed;
      node.confirmation.hold("uuid", lease, {}, {}, node.confirmation.standstill().mark());
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

// As a copy of this process finds its connections. Where the names come from a relay, no watch shows it.
TEST_F(ConfirmationTest, WhereTheWatchIsElsewhereABrokenConnectionIsAnsweredByAnIncarnation) {
  TcpProxy proxy(server_.clientPort());
  Node node(proxy.endpoint(), kLease, true);
  const int64_t lease = grant();
  hold(node, lease);
  load(node);
  ASSERT_TRUE(node.becomes(Confirmation::Holder::kOurs));
  const std::string before = incarnation();
  std::promise<bool> renewed;
  auto renew = [&node, lease, &renewed]() -> runtime::Task<void> {
    const auto answer = co_await node.client.leaseKeepAlive(lease, 60s);
    renewed.set_value(answer.has_value());
  };
  node.thread.spawn(renew());
  ASSERT_TRUE(renewed.get_future().get());
  const auto breaks = [&node] {
    uint64_t number = 0;
    onThread(node.thread, [&] { number = node.client.breaks(); });
    return number;
  };
  ASSERT_EQ(breaks(), 0u);
  proxy.cut();
  ASSERT_TRUE(eventually([&] { return breaks() > 0; }));
  proxy.restore();
  EXPECT_TRUE(eventually([&] { return incarnation() != before; }));
}

// Found by tools/simulate: a copy of the process had claimed another name, and the first kept its own without ever
// owning it again.
TEST_F(ConfirmationTest, OfTwoLeasesUnderOneUuidTheOlderOneGoes) {
  const int64_t first_lease = grant();
  const int64_t second_lease = grant();
  using Holder = Confirmation::Holder;
  Node first(server_);
  hold(first, first_lease);
  ASSERT_TRUE(first.becomes(Holder::kOurs));
  Node second(server_);
  hold(second, second_lease);
  ASSERT_TRUE(second.becomes(Holder::kOurs));
  EXPECT_TRUE(first.becomes(Holder::kDuplicateNodeId));
  const uint64_t confirmations = second.counters.confirmations.value();
  ASSERT_TRUE(eventually([&] { return second.counters.confirmations.value() >= confirmations + 3; }));
  EXPECT_EQ(second.holder, Holder::kOurs);
}

// In a store that was set back, and for ever: it neither owned its name nor gave it up.
TEST_F(ConfirmationTest, AForeignIncarnationThatIsOlderIsBelievedAfterALease) {
  const int64_t lease = grant();
  Node node(server_);
  onThread(node.thread, [&] {
    node.confirmation.hold("uuid", lease, {}, {.value = "ours", .revision = 1'000'000, .as_of = node.thread.now()},
                           node.confirmation.standstill().mark());
  });
  server_.ctl({"put", incarnationKey("uuid"), "theirs", fmt::format("--lease={:x}", grant())});
  EXPECT_TRUE(node.becomes(Confirmation::Holder::kDuplicateNodeId));
}

// An etcd without space, as full as it gets.
struct FullEtcd {
  FullEtcd() : server({.tls = {}, .extra_arguments = {"--quota-backend-bytes=1048576"}}) {
    const std::string granted = server.ctl({"lease", "grant", "60"});
    lease = std::stoll(granted.substr(6, granted.find(' ', 6) - 6), nullptr, 16);
  }
  void fill() {
    const std::string large(100'000, 'x');  // what one argument may have
    EXPECT_ANY_THROW({
      for (int i = 0; i < 100; ++i) server.ctl({"put", fmt::format("k{}", i), large});
    });
  }
  EtcdServer server;
  int64_t lease = 0;
};

// Found by tools/simulate: two copies of a process went on under the incarnation that both had, until there was space.
TEST_F(ConfirmationTest, AfterAStandstillAnIncarnationThatCannotBeWrittenConfirmsNothing) {
  FullEtcd full;
  Node node(full.server);
  hold(node, full.lease);
  ASSERT_TRUE(node.becomes(Confirmation::Holder::kOurs));
  full.fill();
  uint64_t confirmations = 0;
  onThread(node.thread, [&] {
    node.confirmation.standstill().noteGeneration();
    node.confirmation.suspect();
    confirmations = node.counters.confirmations.value();
  });
  ASSERT_TRUE(eventually([&] { return node.counters.confirmations.value() >= confirmations + 3; })) << "reads work";
  onThread(node.thread, [&] { EXPECT_EQ(node.confirmation.heldMark().generation, 0u); });
}

// Found by tools/simulate: a copy of a process that was told to end before it had found the other revoked the lease of both.
TEST_F(ConfirmationTest, WhetherACopyMayHaveTheLeaseIsInDoubtFromAStandstillToTheNextIncarnation) {
  Node node(server_);
  hold(node, grant());
  ASSERT_TRUE(node.becomes(Confirmation::Holder::kOurs));
  onThread(node.thread, [&] {
    EXPECT_FALSE(node.confirmation.isInDoubt());
    node.confirmation.standstill().noteGeneration();
    EXPECT_TRUE(node.confirmation.isInDoubt()) << "before anything has looked at the clocks";
    node.confirmation.suspect();
    EXPECT_TRUE(node.confirmation.isInDoubt());
  });
  EXPECT_TRUE(eventually([&] {
    bool in_doubt = true;
    onThread(node.thread, [&] { in_doubt = node.confirmation.isInDoubt(); });
    return !in_doubt;
  }));
}

// Found by tools/simulate: names were called fresh by the progress of a watch that had lost events and was left for it.
TEST_F(ConfirmationTest, ProgressOfAWatchThatHasEndedCountsNoMore) {
  FullEtcd full;
  full.fill();
  Node node(full.server);
  const Place at = place(node);
  onThread(node.thread, [&] { node.confirmation.loaded(at.revision - 1, at.cluster_id); });
  const auto confirms_on = [&] {
    const uint64_t before = node.counters.confirmations.value();
    return eventually([&] { return node.counters.confirmations.value() >= before + 4; });
  };
  ASSERT_TRUE(confirms_on());
  onThread(node.thread, [&] {
    node.confirmation.progressed(at.revision);
    node.confirmation.watchEnded(false);
  });
  const int seen = node.presents;
  ASSERT_TRUE(confirms_on());
  EXPECT_EQ(node.presents, seen);
  onThread(node.thread, [&] { node.confirmation.progressed(at.revision); });
  EXPECT_TRUE(eventually([&] { return node.presents > seen; }));
}

TEST(StandstillTest, ANewGenerationVoidsWhatWasCertain) {
  test_support::ManualScheduler machine;
  node::Standstill standstill(machine);
  const node::Standstill::Mark before = standstill.mark();
  EXPECT_FALSE(standstill.since(before, 1s));
  standstill.noteGeneration();
  EXPECT_TRUE(standstill.since(before, 1s));
  EXPECT_FALSE(standstill.since(standstill.mark(), 1s));
  const node::Standstill::Mark earlier = standstill.mark();
  machine.setWallClock(1s);
  EXPECT_FALSE(standstill.since(earlier, 1s));
  machine.setWallClock(1s);
  EXPECT_TRUE(standstill.since(earlier, 1s)) << "the wall clock has jumped on";
  EXPECT_TRUE(standstill.since(node::Standstill::Mark::earlier(standstill.mark(), earlier), 1s));
  machine.setWallClock(-4s);
  EXPECT_FALSE(standstill.since(earlier, 1s)) << "and a clock that is set back shows no pause";
}

TEST(VmGenerationTest, OnlyTheKernelsOwnEventCounts) {
  using namespace std::string_view_literals;
  EXPECT_TRUE(node::VmGeneration::isNewGeneration(
      "change@/devices/LNXSYSTM:00/QEMUVGID:00\0ACTION=change\0SUBSYSTEM=platform\0NEW_VMGENID=1\0SEQNUM=7\0"sv));
  EXPECT_TRUE(node::VmGeneration::isNewGeneration("change@/x\0NEW_VMGENID=1"sv));
  EXPECT_FALSE(node::VmGeneration::isNewGeneration("change@/x\0SYNTH_ARG_NEW_VMGENID=1\0"sv));
  EXPECT_FALSE(node::VmGeneration::isNewGeneration("change@/NEW_VMGENID=1\0NEW_VMGENID=10\0"sv));
  EXPECT_FALSE(node::VmGeneration::isNewGeneration(""sv));
  EXPECT_FALSE(node::VmGeneration::isNewGeneration("\0\0"sv));
}

}  // namespace
}  // namespace idetcd::naming
