// Whole members against a real etcd: the claim, the name kept and lost, and what is left behind in etcd.
#include "naming/member.h"

#include <algorithm>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "node/uuid.h"
#include "unit/naming/member_fixture.h"
#include "unit/naming/tcp_proxy.h"

namespace idetcd::naming {
namespace {

using records::Freshness;

TEST(RandomUuid, IsOfVersion4AndDiffers) {
  KernelRandom random;
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const std::string uuid = node::randomUuid(random);
    ASSERT_EQ(uuid.size(), 36u);
    EXPECT_EQ(uuid[14], '4');
    EXPECT_NE(std::string("89ab").find(uuid[19]), std::string::npos) << uuid;
    EXPECT_TRUE(seen.insert(uuid).second);
  }
}

// --- claiming ---

TEST_F(MemberTest, ClaimsTheFirstNameInFourRequests) {
  NodeOptions made = options(server_.endpoint());
  made.uuid = "5ad1f9b2-7c64-4a0e-9d35-1be0c8a2f713";
  Node& node = start(made);
  ASSERT_TRUE(node.owns("worker1.tf.local."));
  EXPECT_EQ(node.member.ownership()->id, 1);
  EXPECT_GT(node.member.ownership()->token, 0);
  EXPECT_TRUE(node.sees("worker1.tf.local.", "192.0.2.2 fd00::2"));
  EXPECT_EQ(node.counted("idetcd_claim_requests_total"), 4u);
  const std::string value = R"({"ipv4":"192.0.2.2","ipv6":"fd00::2","port":"53","id":")" + made.uuid + R"(","slot":1})";
  EXPECT_EQ(keys(""), (std::map<std::string, std::string>{{"worker1.tf.local.", value}}));
  EXPECT_EQ(leases(), 1u);
}

TEST_F(MemberTest, FiftyAtOnceAreDenseWithoutCollision) {
  constexpr size_t kNodes = 50;
  NodeOptions made = options(server_.endpoint(), 100);
  made.lease = 120s;
  made.call_timeout = 60s;  // however busy the machine is, no lease is asked for twice
  for (size_t i = 0; i < kNodes; ++i) start(made);
  for (const auto& node : nodes_) ASSERT_TRUE(node->ownsSomething());
  std::set<int64_t> ids;
  uint64_t requests = 0;
  for (const auto& node : nodes_) {
    ids.insert(node->member.ownership()->id);
    requests += node->counted("idetcd_claim_requests_total");
    EXPECT_EQ(node->counted("idetcd_claims_total"), 1u);
    EXPECT_EQ(node->counted("idetcd_claim_collisions_total"), 0u);
  }
  EXPECT_EQ(ids.size(), kNodes);
  EXPECT_EQ(*ids.begin(), 1);
  EXPECT_EQ(*ids.rbegin(), static_cast<int64_t>(kNodes));
  EXPECT_LT(requests, 8 * kNodes) << "four each, and those that a busy machine did not answer in time";
  EXPECT_TRUE(keys(kQueue).empty());
  EXPECT_EQ(leases(), kNodes);
  for (const auto& node : nodes_) EXPECT_TRUE(node->sees("worker50.tf.local.", "192.0.2.2 fd00::2"));
}

TEST_F(MemberTest, TheLimitRefusesAndLeavesNothing) {
  NodeOptions made = options(server_.endpoint(), 2);
  made.exit_when_full = true;
  ASSERT_TRUE(start(made).ownsSomething());
  ASSERT_TRUE(start(made).ownsSomething());
  Node& third = start(made);
  std::future<std::string> fatal = third.fatal.get_future();
  ASSERT_EQ(fatal.wait_for(60s), std::future_status::ready);
  EXPECT_EQ(fatal.get(), "Could not have more than 2 nodes in your cluster.");
  EXPECT_TRUE(keys(kQueue).empty());
  EXPECT_EQ(leases(), 2u);
  EXPECT_EQ(third.name(), "");
  EXPECT_TRUE(third.sees("worker2.tf.local.", "192.0.2.2 fd00::2"));
}

TEST_F(MemberTest, OneTooManyAtOnceRefusesExactlyOne) {
  constexpr int kLimit = 5;
  std::vector<std::future<std::string>> refused;
  NodeOptions made = options(server_.endpoint(), kLimit);
  made.exit_when_full = true;
  for (int i = 0; i < kLimit + 1; ++i) refused.push_back(start(made).fatal.get_future());
  ASSERT_TRUE(eventually([&] {
    size_t decided = 0;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const bool gave_up = refused[i].wait_for(0s) == std::future_status::ready;
      if (gave_up || !nodes_[i]->name().empty()) ++decided;
    }
    return decided == nodes_.size();
  }));
  EXPECT_EQ(keys("worker").size(), static_cast<size_t>(kLimit));
  EXPECT_TRUE(keys(kQueue).empty());
  EXPECT_EQ(leases(), static_cast<size_t>(kLimit));
}

TEST_F(MemberTest, ANameOfTheGoPluginIsTaken) {
  server_.ctl({"put", "worker1.tf.local.", R"({"ipv4":"192.0.2.77","port":"53"})"});
  Node& node = start();
  ASSERT_TRUE(node.owns("worker2.tf.local."));
  EXPECT_TRUE(node.sees("worker1.tf.local.", "192.0.2.77"));
  EXPECT_EQ(keys("worker").at("worker1.tf.local."), R"({"ipv4":"192.0.2.77","port":"53"})");
}

TEST_F(MemberTest, AGapIsFilledFirst) {
  for (const char* key : {"worker1.tf.local.", "worker3.tf.local.", "worker22.tf.local.", "worker2.tf.local"}) {
    server_.ctl({"put", key, "{}"});
  }
  EXPECT_TRUE(start().owns("worker2.tf.local."));
  EXPECT_TRUE(start().owns("worker4.tf.local."));
}

TEST_F(MemberTest, APatternWithoutAPrefixWorksToo) {
  server_.ctl({"put", "1.x.", "{}"});
  NodeOptions made = options(server_.endpoint());
  made.pattern = slots::NamePattern::parse("{{.ID}}.x.", 10).value();
  EXPECT_TRUE(start(made).owns("2.x."));
}

TEST_F(MemberTest, AnOlderTicketKeepsItsPlaceWhileItLives) {
  const std::string dead = lease("600");
  server_.ctl({"put", std::string(kQueue) + kPattern + "/somebody", "", "--lease=" + dead});
  EXPECT_TRUE(start().owns("worker2.tf.local."));
  server_.ctl({"lease", "revoke", dead});
  EXPECT_TRUE(start().owns("worker1.tf.local."));
}

TEST_F(MemberTest, TheLastSlotGoesOnWhenTheOneAheadDies) {
  const std::string dead = lease("600");
  server_.ctl({"put", std::string(kQueue) + kPattern + "/somebody", "", "--lease=" + dead});
  NodeOptions made = options(server_.endpoint(), 1);
  made.lease = 2s;  // the wait is longer than that: the lease is kept alive meanwhile
  Node& node = start(made);
  ASSERT_TRUE(eventually([&] { return node.counted("idetcd_claim_requests_total") >= 5; }));
  EXPECT_EQ(node.name(), "");
  server_.ctl({"lease", "revoke", dead});
  EXPECT_TRUE(node.owns("worker1.tf.local."));
}

TEST_F(MemberTest, WhoeverWaitsForASlotAsksSeldom) {
  const std::string dead = lease("600");
  NodeOptions made = options(server_.endpoint(), 1);
  made.lease = 20s;
  server_.ctl({"put", ticketPrefix(made.pattern) + "somebody", "", "--lease=" + dead});
  std::vector<Node*> crowd;
  for (int i = 0; i < 20; ++i) crowd.push_back(&start(made));
  std::this_thread::sleep_for(5s);  // what must not happen has no event to wait for
  for (const Node* node : crowd) {
    // Lease, ticket, a look, and another to be sure; one behind the first snapshot, and one behind the comparison.
    EXPECT_LE(node->counted("idetcd_claim_requests_total"), 6u);
  }
  server_.ctl({"lease", "revoke", dead});
  EXPECT_TRUE(eventually(
      [&] { return std::any_of(crowd.begin(), crowd.end(), [](Node* node) { return !node->name().empty(); }); }));
}

// --- a full cluster ---

// The slot goes from one to the next, oldest ticket first, as soon as it is free.
TEST_F(MemberTest, AFullClusterIsWaitedForInOrder) {
  constexpr size_t kWaiting = 4;
  NodeOptions made = options(server_.endpoint(), 1);
  made.lease = 60s;
  ASSERT_TRUE(start(made).owns("worker1.tf.local."));
  for (size_t i = 1; i <= kWaiting; ++i) {
    Node& node = start(made);
    ASSERT_TRUE(eventually([&] { return node.counted("idetcd_claims_refused_total") == 1; }));
    ASSERT_TRUE(eventually([&] { return keys(kQueue).size() == i; }));
    ASSERT_TRUE(eventually([&] { return node.counted("idetcd_claim_requests_total") >= 3; }));
    EXPECT_EQ(node.counted("idetcd_spare"), 1u);
  }
  for (size_t i = 0; i < kWaiting; ++i) {
    nodes_[i]->member.stop(10s);
    const auto freed = std::chrono::steady_clock::now();
    ASSERT_TRUE(nodes_[i + 1]->owns("worker1.tf.local.")) << i;
    EXPECT_EQ(nodes_[i + 1]->counted("idetcd_spare"), 0u);
    EXPECT_LT(std::chrono::steady_clock::now() - freed, 40s) << "not by asking now and then, after 45 s";
    EXPECT_EQ(keys(kQueue).size(), kWaiting - i - 1);
  }
}

TEST_F(MemberTest, OneFreedSlotBringsOneNodeToEtcd) {
  constexpr size_t kWaiting = 12;
  NodeOptions made = options(server_.endpoint(), 2);
  made.lease = 60s;
  made.call_timeout = 60s;  // however busy the machine is, nothing is asked for twice
  for (size_t i = 0; i < 2 + kWaiting; ++i) start(made);
  ASSERT_TRUE(eventually([&] { return keys(kQueue).size() == kWaiting && keys("worker").size() == 2; }));
  const auto requests = [this] {
    uint64_t sum = 0;
    for (const auto& node : nodes_) sum += node->counted("idetcd_claim_requests_total");
    return sum;
  };
  const auto holder = [this] {
    return std::find_if(nodes_.begin(), nodes_.end(), [](const auto& node) { return !node->name().empty(); });
  };
  ASSERT_TRUE(eventually([&] { return holder() != nodes_.end() && requests() >= 2 * 3 + 3 * kWaiting; }));
  // Who saw no name in its first snapshot looks again when it first compares, and then for about a minute not.
  ASSERT_TRUE(eventually([&] {
    return std::ranges::all_of(nodes_, [](const auto& node) { return node->counted("idetcd_comparisons_total") >= 1; });
  }));
  uint64_t before = 0;
  while (before != requests()) {  // what they have begun they may end
    before = requests();
    std::this_thread::sleep_for(1s);
  }
  (*holder())->member.stop(10s);
  ASSERT_TRUE(eventually([&] { return keys(kQueue).size() == kWaiting - 1 && keys("worker").size() == 2; }));
  std::this_thread::sleep_for(500ms);  // what must not happen has no event to wait for
  EXPECT_LE(requests() - before, 4u) << "one takes the slot, the next in the queue looks where it stands";
}

TEST_F(MemberTest, WhoWaitsMovesUpWhenTheOneAheadGivesUp) {
  NodeOptions made = options(server_.endpoint(), 1);
  made.lease = 60s;
  for (size_t i = 0; i < 3; ++i) {
    Node& node = start(made);
    ASSERT_TRUE(i == 0 ? node.ownsSomething() : eventually([&] { return keys(kQueue).size() == i; }));
  }
  ASSERT_TRUE(eventually([&] { return nodes_[2]->counted("idetcd_claim_requests_total") >= 3; }));
  nodes_[1]->member.stop(10s);
  nodes_[0]->member.stop(10s);
  const auto freed = std::chrono::steady_clock::now();
  ASSERT_TRUE(nodes_[2]->owns("worker1.tf.local."));
  EXPECT_LT(std::chrono::steady_clock::now() - freed, 40s) << "not by asking now and then, after 45 s";
}

TEST_F(MemberTest, AKeyWithoutALeaseIsNamedInTheRefusal) {
  server_.ctl({"put", "worker2.tf.local.", "{}"});
  NodeOptions made = options(server_.endpoint(), 2);
  made.exit_when_full = true;
  ASSERT_TRUE(start(made).owns("worker1.tf.local."));
  std::future<std::string> fatal = start(made).fatal.get_future();
  ASSERT_EQ(fatal.wait_for(60s), std::future_status::ready);
  EXPECT_EQ(fatal.get(),
            "Could not have more than 2 nodes in your cluster. Held by keys without a lease, which no node has: "
            "worker2.tf.local.");
}

// --- what others do between two steps of a claim ---

// Calls `act` before the first request that contains `text` goes on to etcd.
void interpose(TcpProxy& proxy, std::string text, std::function<void()> act) {
  const auto done = std::make_shared<std::atomic<bool>>(false);
  proxy.setFilter([text = std::move(text), act = std::move(act), done](std::string_view bytes) {
    if (bytes.find(text) != std::string_view::npos && !done->exchange(true)) act();
    return true;
  });
}

TEST_F(MemberTest, ASlotThatIsTakenMeanwhileIsLeftToTheOther) {
  const std::string theirs = R"({"ipv4":"192.0.2.77","id":"6c3e0000-somebody"})";
  TcpProxy proxy(server_.clientPort());
  interpose(proxy, "worker1.tf.local.", [&] {
    server_.ctl({"put", "worker1.tf.local.", theirs, "--lease=" + lease("600")});
  });
  Node& node = start(options(proxy.endpoint()));
  ASSERT_TRUE(node.owns("worker2.tf.local."));
  EXPECT_EQ(keys("worker").at("worker1.tf.local."), theirs);
  EXPECT_EQ(node.counted("idetcd_claim_collisions_total"), 1u);
  EXPECT_EQ(node.counted("idetcd_claims_total"), 1u);
}

TEST_F(MemberTest, AClaimWhoseTicketIsGoneMeanwhileQueuesAgain) {
  TcpProxy proxy(server_.clientPort());
  interpose(proxy, "worker1.tf.local.", [&] { server_.ctl({"del", "--prefix", kQueue}); });
  Node& node = start(options(proxy.endpoint()));
  ASSERT_TRUE(node.owns("worker1.tf.local."));
  EXPECT_EQ(node.counted("idetcd_claim_collisions_total"), 1u);
  EXPECT_EQ(node.counted("idetcd_claim_requests_total"), 8u);
  EXPECT_TRUE(keys(kQueue).empty());
}

TEST_F(MemberTest, ATicketThatWasThereBeforeKeepsItsRank) {
  NodeOptions made = options(server_.endpoint());
  KernelRandom random;
  made.uuid = node::randomUuid(random);
  const std::string queue = std::string(kQueue) + kPattern + "/";
  server_.ctl({"put", ticketPrefix(made.pattern) + made.uuid, "", "--lease=" + lease("600")});
  server_.ctl({"put", queue + "somebody", "", "--lease=" + lease("600")});  // as older nodes put theirs
  Node& node = start(made);
  ASSERT_TRUE(node.owns("worker1.tf.local."));
  EXPECT_EQ(node.counted("idetcd_claim_collisions_total"), 0u) << "and did not try another first";
}

TEST_F(MemberTest, AnObserverServesAndClaimsNothing) {
  server_.ctl({"put", "worker1.tf.local.", R"({"ipv4":"192.0.2.77"})"});
  NodeOptions made = options(server_.endpoint());
  made.observe = true;
  Node& node = start(made);
  EXPECT_TRUE(eventually([&] { return node.store.freshness() == Freshness::kFresh; }));
  EXPECT_EQ(node.view.at("worker1.tf.local."), "192.0.2.77");
  EXPECT_EQ(leases(), 0u);
  node.member.stop(5s);
}

TEST_F(MemberTest, ClaimsWhenEtcdComes) {
  server_.stop();
  Node& node = start();
  EXPECT_EQ(node.name(), "");
  EXPECT_EQ(node.store.freshness(), Freshness::kLoading);
  server_.start();
  EXPECT_TRUE(node.owns("worker1.tf.local."));
  // A name may be owned before all names have been read.
  EXPECT_TRUE(eventually([&] { return node.store.freshness() == Freshness::kFresh; }));
}

// What it claims in the first store may be another's in the second, which has left the first.
TEST_F(MemberTest, WhoHasNoNameWhenItIsGivenASecondStoreOwnsOnlyWhatBothSay) {
  EtcdServer other;
  other.ctl({"put", "worker1.tf.local.", R"({"ipv4":"192.0.2.77"})"});
  server_.stop();
  Node& node = start();
  const auto second = std::make_shared<records::RecordStore>(node.epochs, records::RecordStore::Options{});
  node.member.addSecond(clientOf(thread_, options(other.endpoint())), second, {}, false);
  node.member.startSecond();
  server_.start();
  ASSERT_TRUE(node.sees("worker1.tf.local.", "192.0.2.2 fd00::2"));
  EXPECT_EQ(node.name(), "");
  EXPECT_FALSE(node.member.hadName()) << "nothing is lost: it is still to come";
  other.ctl({"del", "worker1.tf.local."});
  EXPECT_TRUE(node.owns("worker1.tf.local."));
  EXPECT_TRUE(eventually([&node] { return node.member.hadName(); }));
  node.member.stop(5s);
}

TEST_F(MemberTest, AStepOfAMoveWhileItStopsLeavesNothingInEitherStore) {
  EtcdServer other;
  Node& node = start();
  ASSERT_TRUE(node.owns("worker1.tf.local."));
  const auto second = std::make_shared<records::RecordStore>(node.epochs, records::RecordStore::Options{});
  node.member.addSecond(clientOf(thread_, options(other.endpoint())), second, {}, false);
  node.member.startSecond();
  ASSERT_TRUE(eventually([&node] { return node.member.second() && node.member.second()->owned; }));
  std::thread step([&node] { node.member.keep(Member::Which::kSecond, 60s); });
  node.member.stop(60s);
  step.join();
  EXPECT_TRUE(keys("worker").empty());
  EXPECT_EQ(other.ctl({"get", "--prefix", "worker", "--keys-only"}), "");
}

// The answer to the claim is lost, in the two ways that it can be.

// The claim is the first request that names the slot. From there on the client hears nothing.
void muteAtClaim(TcpProxy& proxy) {
  proxy.setFilter([&proxy](std::string_view bytes) {
    if (bytes.find("worker1.tf.local.") != std::string_view::npos) proxy.mute(true);
    return true;
  });
}

void letThrough(TcpProxy& proxy) {
  proxy.setFilter(nullptr);
  proxy.cut();
  proxy.restore();
}

TEST_F(MemberTest, AClaimThatWasAppliedUnheardIsReadBack) {
  TcpProxy proxy(server_.clientPort());
  muteAtClaim(proxy);
  Node& node = start(options(proxy.endpoint()));
  ASSERT_TRUE(eventually([&] { return keys("worker").size() == 1; }));
  EXPECT_EQ(node.name(), "");
  const int64_t created = createRevision("worker1.tf.local.");
  letThrough(proxy);
  ASSERT_TRUE(node.owns("worker1.tf.local."));
  EXPECT_EQ(createRevision("worker1.tf.local."), created) << "the claim of before, not another one";
  EXPECT_EQ(node.member.ownership()->token, created);
  EXPECT_EQ(node.counted("idetcd_claims_total"), 1u);
  EXPECT_EQ(keys("").size(), 1u);
  EXPECT_EQ(leases(), 1u);
}

TEST_F(MemberTest, AClaimThatWasAppliedUnheardAndOverwrittenIsNotOurs) {
  TcpProxy proxy(server_.clientPort());
  muteAtClaim(proxy);
  Node& node = start(options(proxy.endpoint()));
  ASSERT_TRUE(eventually([&] { return keys("worker").size() == 1; }));
  const std::string value = keys("worker").at("worker1.tf.local.");
  server_.ctl({"put", "worker1.tf.local.", value});  // the same, and no lease of ours
  letThrough(proxy);
  ASSERT_TRUE(node.owns("worker2.tf.local."));
  EXPECT_EQ(node.counted("idetcd_claims_total"), 1u);
  EXPECT_EQ(node.counted("idetcd_conflicts_total"), 0u);
  EXPECT_EQ(keys("worker").at("worker1.tf.local."), value);
}

TEST_F(MemberTest, AClaimThatWasLostOnTheWayIsMadeAgain) {
  TcpProxy proxy(server_.clientPort());
  std::promise<void> lost;
  std::atomic<bool> once{false};
  proxy.setFilter([&](std::string_view bytes) {
    if (bytes.find("worker1.tf.local.") == std::string_view::npos || once.exchange(true)) return true;
    lost.set_value();
    return false;
  });
  Node& node = start(options(proxy.endpoint()));
  ASSERT_EQ(lost.get_future().wait_for(60s), std::future_status::ready);
  EXPECT_TRUE(keys("worker").empty());
  proxy.restore();
  EXPECT_TRUE(node.owns("worker1.tf.local."));
  EXPECT_EQ(keys("").size(), 1u);
  EXPECT_EQ(leases(), 1u);
}

TEST_F(MemberTest, APauseInTheMiddleOfManyClaimsLeavesOneSlotEach) {
  constexpr size_t kNodes = 20;
  for (size_t i = 0; i < kNodes; ++i) start(options(server_.endpoint(), 100));
  ASSERT_TRUE(eventually([&] {
    return std::any_of(nodes_.begin(), nodes_.end(),
                       [](const auto& node) { return node->counted("idetcd_claims_total") > 0; });
  }));
  server_.restart();  // whatever was under way is unclear now
  for (const auto& node : nodes_) ASSERT_TRUE(node->ownsSomething());
  const auto slots = slotsByUuid();
  EXPECT_EQ(slots.size(), kNodes);
  std::set<std::string> names;
  for (const auto& node : nodes_) names.insert(node->name());
  for (const auto& [uuid, held] : slots) {
    EXPECT_EQ(held.size(), 1u) << uuid;
    EXPECT_EQ(names.erase(held.front()), 1u) << held.front();
  }
  EXPECT_TRUE(keys(kQueue).empty());
}

// --- giving up ---

TEST_F(MemberTest, StopFreesTheNameAtOnce) {
  Node& first = start();
  ASSERT_TRUE(first.owns("worker1.tf.local."));
  Node& second = start();
  ASSERT_TRUE(second.owns("worker2.tf.local."));
  first.member.stop(10s);
  EXPECT_EQ(first.name(), "");
  EXPECT_EQ(keys("").size(), 1u);
  EXPECT_EQ(leases(), 1u);
  EXPECT_TRUE(second.sees("worker1.tf.local.", "none"));
  EXPECT_TRUE(start().owns("worker1.tf.local."));
}

TEST_F(MemberTest, StopInTheMiddleOfAClaimLeavesNothing) {
  for (int round = 0; round < 20; ++round) {
    Node& node = start();
    const auto requests = static_cast<uint64_t>(round % 4);
    ASSERT_TRUE(
        eventually([&] { return node.counted("idetcd_claim_requests_total") >= std::min<uint64_t>(requests, 3); }));
    node.member.stop(10s);
  }
  EXPECT_TRUE(keys("").empty());
  EXPECT_EQ(leases(), 0u);
}

TEST_F(MemberTest, StopDoesNotWaitForAnAbsentEtcdBeyondItsBudget) {
  Node& node = start();
  ASSERT_TRUE(node.ownsSomething());
  server_.pause();
  const auto begin = std::chrono::steady_clock::now();
  node.member.stop(200ms);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
  EXPECT_EQ(node.name(), "");
  server_.resume();
}

TEST_F(MemberTest, StopTwiceAndWithoutStartIsFine) {
  Node& node = start();
  node.member.stop(10s);
  node.member.stop(10s);
  records::EpochDomain epochs;
  records::RecordStore store(epochs, {});
  const NodeOptions made = options(server_.endpoint());
  Member never(thread_, clientOf(thread_, made), store, made, {}, nullptr);
  never.stop(10s);
  EXPECT_FALSE(never.ownership());
}

TEST_F(MemberTest, AStartAfterTheStopDoesNothing) {
  records::EpochDomain epochs;
  records::RecordStore store(epochs, {});
  const NodeOptions made = options(server_.endpoint());
  Member late(thread_, clientOf(thread_, made), store, made, {}, nullptr);
  late.stop(10s);
  late.start();
  EXPECT_TRUE(start().owns("worker1.tf.local.")) << "nobody is in the queue before it";
  EXPECT_FALSE(late.ownership());
}

// --- a cluster that was founded ---

TEST_F(MemberTest, FoundersTakeTheirNumbersWhateverTheOrderOfTheirClaims) {
  constexpr int64_t kFounders = 10;
  for (int64_t number = kFounders; number > 0; --number) {
    NodeOptions made = options(server_.endpoint(), kFounders);
    made.number = number;
    made.token_base = 1'000'000;
    start(made);
  }
  for (int64_t number = kFounders; number > 0; --number) {
    const Node& node = *nodes_[static_cast<size_t>(kFounders - number)];
    ASSERT_TRUE(node.owns(fmt::format("worker{}.tf.local.", number)));
    EXPECT_EQ(node.counted("idetcd_claim_requests_total"), 4u);
    EXPECT_GT(node.member.ownership()->token, 1'000'000) << "above all that were before the cluster";
  }
}

// Whatever it has asked etcd for: the answer to a watch that it opens comes when its records are gone.
TEST_F(MemberTest, ADestroyedMemberTouchesItsStoreNoMore) {
  for (int i = 0; i < 20; ++i) {
    auto node = std::make_unique<Node>(thread_, options(server_.endpoint()));
    if (i % 4 == 0) {
      ASSERT_TRUE(node->ownsSomething());
    }
    while (i % 4 == 1 && node->counted("idetcd_snapshots_total") == 0) std::this_thread::yield();
    node.reset();  // ~Member stops; then the store goes
    server_.ctl({"put", "a.x.", "{}"});
  }
}

// --- keeping and losing ---

TEST_F(MemberTest, TheLeaseIsKeptAlive) {
  NodeOptions made = options(server_.endpoint());
  made.lease = 10s;
  Node& node = start(made);
  ASSERT_TRUE(node.ownsSomething());
  const int64_t token = node.member.ownership()->token;
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(eventually([&] { return node.counted("idetcd_keepalives_total") >= 3; }));
  EXPECT_GT(std::chrono::steady_clock::now() - begin, 10s);  // two a lease, less the jitter
  ASSERT_TRUE(node.member.ownership());
  EXPECT_EQ(node.member.ownership()->token, token);
  EXPECT_EQ(node.counted("idetcd_claims_total"), 1u);
}

// Clocks may drift apart, and between reading one and acting on it time passes.
TEST_F(MemberTest, OwnershipEndsATenthOfTheLeaseBeforeTheLeaseDoes) {
  NodeOptions made = options(server_.endpoint());
  made.lease = 10s;
  Node& node = start(made);
  ASSERT_TRUE(node.ownsSomething());
  const BootClock::time_point deadline = node.member.ownership()->deadline;
  EXPECT_LE(deadline, BootClock::now() + 9s);
  ASSERT_TRUE(eventually([&] { return node.member.ownership()->deadline > deadline; }));
  EXPECT_LE(node.member.ownership()->deadline, BootClock::now() + 9s);
}

// Two copies of one process, resumed from a snapshot of memory: this one finds that the other was faster.
TEST_F(MemberTest, WhoFindsAForeignIncarnationUnderItsLeaseBecomesAnotherNode) {
  NodeOptions made = options(server_.endpoint());
  made.lease = 5s;  // longer than it takes to write the key below
  Node& node = start(made);
  ASSERT_TRUE(node.owns("worker1.tf.local."));
  const std::string uuid = uuidOf("worker1.tf.local.");
  const std::string lease = lines({"lease", "list"}).at(1);
  server_.ctl({"put", "--lease=" + lease, "/idetcd/incarnation/" + uuid, "the other copy's"});
  ASSERT_TRUE(node.owns("worker2.tf.local."));
  EXPECT_NE(uuidOf("worker2.tf.local."), uuid);
  EXPECT_EQ(node.counted("idetcd_clones_total"), 1u);
  // The other copy keeps the lease alive; this node does not: it was neither used on nor revoked.
  EXPECT_TRUE(eventually([&] { return keys("worker1").empty(); }));
  EXPECT_TRUE(node.owns("worker2.tf.local."));  // with a short lease nobody is certain of it at every moment
}

TEST_F(MemberTest, ADeletedKeyIsClaimedAgain) {
  Node& node = start();
  ASSERT_TRUE(node.owns("worker1.tf.local."));
  const int64_t token = node.member.ownership()->token;
  server_.ctl({"del", "worker1.tf.local."});
  ASSERT_TRUE(eventually([&] { return node.counted("idetcd_keys_lost_total") == 1; }));
  ASSERT_TRUE(eventually([&] {
    const auto owned = node.member.ownership();
    return owned && owned->token > token;
  }));
  EXPECT_EQ(node.name(), "worker1.tf.local.");
  EXPECT_EQ(leases(), 1u);
  EXPECT_TRUE(keys(kQueue).empty());
}

TEST_F(MemberTest, ARevokedLeaseIsReplaced) {
  Node& node = start();
  ASSERT_TRUE(node.owns("worker1.tf.local."));
  const int64_t token = node.member.ownership()->token;
  server_.ctl({"lease", "revoke", lines({"lease", "list"}).at(1)});
  ASSERT_TRUE(eventually([&] {
    const auto owned = node.member.ownership();
    return owned && owned->token > token;
  }));
  EXPECT_EQ(node.name(), "worker1.tf.local.");
  // Whichever it hears first: of the lease or of the key that went with it.
  EXPECT_EQ(node.counted("idetcd_leases_lost_total") + node.counted("idetcd_keys_lost_total"), 1u);
}

TEST_F(MemberTest, AnOverwrittenKeyIsLeftToTheOther) {
  Node& node = start();
  ASSERT_TRUE(node.owns("worker1.tf.local."));
  const std::string theirs = R"({"ipv4":"192.0.2.77","port":"53"})";
  server_.ctl({"put", "worker1.tf.local.", theirs});
  ASSERT_TRUE(node.owns("worker2.tf.local."));
  EXPECT_EQ(node.counted("idetcd_conflicts_total"), 1u);
  EXPECT_EQ(keys("worker").at("worker1.tf.local."), theirs);
  EXPECT_TRUE(node.sees("worker1.tf.local.", "192.0.2.77"));
  EXPECT_EQ(leases(), 1u);
}

TEST_F(MemberTest, AKeyThatIsOverwrittenMeanwhileIsNotUpdated) {
  const std::string theirs = R"({"ipv4":"192.0.2.77","port":"53"})";
  TcpProxy proxy(server_.clientPort());
  interpose(proxy, "192.0.2.99", [&] { server_.ctl({"put", "worker1.tf.local.", theirs}); });
  NodeOptions made = options(proxy.endpoint());
  const auto claimed = std::make_shared<std::promise<void>>();
  made.find_addresses = [ready = claimed->get_future().share()]() -> Result<node::NodeAddresses> {
    ready.wait_for(60s);
    return node::NodeAddresses{{{IpAddress::parse("192.0.2.99"), std::nullopt}, {}}, {}, {}};
  };
  made.on_ownership = [claimed, first = true](const std::optional<Ownership>&) mutable {
    if (std::exchange(first, false)) claimed->set_value();
  };
  Node& node = start(made);
  ASSERT_TRUE(node.owns("worker2.tf.local."));
  EXPECT_EQ(keys("worker").at("worker1.tf.local."), theirs);
  EXPECT_EQ(node.counted("idetcd_address_updates_total"), 0u);
  node.member.stop(10s);  // before the proxy goes
}

TEST_F(MemberTest, OwnershipEndsAtTheDeadlineAndComesBackWithTheLease) {
  NodeOptions made = options(server_.endpoint());
  made.lease = 3s;
  Node& node = start(made);
  ASSERT_TRUE(node.ownsSomething());
  server_.pause();
  ASSERT_TRUE(eventually([&] { return node.name().empty(); }));
  EXPECT_EQ(node.view.at("worker1.tf.local."), "192.0.2.2 fd00::2");  // what is known is served on
  EXPECT_TRUE(eventually([&] { return node.counted("idetcd_keepalive_failures_total") > 0; }));
  ASSERT_TRUE(eventually([&] { return node.store.freshness() == Freshness::kStale; }));
  server_.resume();
  EXPECT_TRUE(node.owns("worker1.tf.local."));
  EXPECT_TRUE(eventually([&] { return node.store.freshness() == Freshness::kFresh; }));
}

// --- what on_ownership is called with ---

// "+worker1.tf.local." and "-", in order.
class OwnershipLog {
 public:
  auto recorder() {
    return [state = state_](const std::optional<Ownership>& owned) {
      const std::lock_guard lock(state->mutex);
      state->changes.push_back(owned ? "+" + owned->name : "-");
    };
  }
  std::vector<std::string> all() const {
    const std::lock_guard lock(state_->mutex);
    return state_->changes;
  }
  bool becomes(const std::vector<std::string>& wanted) const {
    return eventually([&] { return all() == wanted; });
  }

 private:
  struct State {
    std::mutex mutex;
    std::vector<std::string> changes;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();  // the member may outlive a test that fails
};

TEST_F(MemberTest, TheObserverHearsOfTheClaimAndOfTheLossAndOfStop) {
  OwnershipLog log;
  NodeOptions made = options(server_.endpoint());
  made.on_ownership = log.recorder();
  Node& node = start(made);
  ASSERT_TRUE(log.becomes({"+worker1.tf.local."}));
  server_.ctl({"del", "worker1.tf.local."});
  ASSERT_TRUE(log.becomes({"+worker1.tf.local.", "-", "+worker1.tf.local."}));
  node.member.stop(10s);
  EXPECT_EQ(log.all(), (std::vector<std::string>{"+worker1.tf.local.", "-", "+worker1.tf.local.", "-"}));
}

TEST_F(MemberTest, TheObserverHearsThatTheDeadlinePassedAndNothingOfRenewals) {
  OwnershipLog log;
  NodeOptions made = options(server_.endpoint());
  made.lease = 9s;
  made.on_ownership = log.recorder();
  Node& node = start(made);
  ASSERT_TRUE(eventually([&] { return node.counted("idetcd_keepalives_total") >= 2; }));
  EXPECT_EQ(log.all(), (std::vector<std::string>{"+worker1.tf.local."}));
  const auto owned = node.member.ownership();
  ASSERT_TRUE(owned);
  EXPECT_TRUE(eventually([&] {
    const auto now = node.member.ownership();
    return now && now->deadline > owned->deadline;
  }));
  server_.pause();
  ASSERT_TRUE(log.becomes({"+worker1.tf.local.", "-"}));
  EXPECT_EQ(node.name(), "");
  server_.resume();
  EXPECT_TRUE(log.becomes({"+worker1.tf.local.", "-", "+worker1.tf.local."}));
}

TEST_F(MemberTest, ARestartOfEtcdKeepsTheSlot) {
  Node& node = start();
  ASSERT_TRUE(node.owns("worker1.tf.local."));
  const int64_t token = node.member.ownership()->token;
  const uint64_t keepalives = node.counted("idetcd_keepalives_total");
  server_.restart();
  ASSERT_TRUE(eventually([&] { return node.counted("idetcd_keepalives_total") > keepalives; }));
  EXPECT_EQ(node.member.ownership()->token, token);
  EXPECT_EQ(node.counted("idetcd_claims_total"), 1u);
}

TEST_F(MemberTest, ALostStoreIsClaimedAnew) {
  NodeOptions made = options(server_.endpoint());
  made.lease = 3s;
  Node& node = start(made);
  ASSERT_TRUE(node.owns("worker1.tf.local."));
  server_.kill();
  server_.wipe();
  server_.start();
  ASSERT_TRUE(eventually([&] { return node.counted("idetcd_claims_total") == 2; }));
  EXPECT_TRUE(node.owns("worker1.tf.local."));
  EXPECT_EQ(keys("worker").size(), 1u);
  EXPECT_TRUE(keys(kQueue).empty());
}

TEST_F(MemberTest, ANodeThatFindsNoSlotAgainGoesOnWithout) {
  Node& node = start(options(server_.endpoint(), 1));
  std::future<std::string> fatal = node.fatal.get_future();
  ASSERT_TRUE(node.owns("worker1.tf.local."));
  server_.ctl({"put", "worker1.tf.local.", "{}"});
  ASSERT_TRUE(eventually([&] { return node.counted("idetcd_claims_refused_total") >= 1; }));
  EXPECT_EQ(fatal.wait_for(0s), std::future_status::timeout);
  EXPECT_EQ(node.name(), "");
  EXPECT_TRUE(node.sees("worker1.tf.local.", "no data"));
}

TEST(MemberWithoutSpace, StaysUnclaimedAndResolves) {
  EtcdServer::Options small;
  small.extra_arguments = {"--quota-backend-bytes=1048576"};
  EtcdServer server(small);
  server.ctl({"put", "worker1.tf.local.", R"({"ipv4":"192.0.2.77"})"});
  const auto thread = etcd::CompletionThread::make().value();
  Node holder(*thread, options(server.endpoint()));
  ASSERT_TRUE(holder.owns("worker2.tf.local."));
  const std::string big(100'000, 'x');
  for (int i = 0; server.ctl({"alarm", "list"}).find("NOSPACE") == std::string::npos; ++i) {
    ASSERT_LT(i, 100);
    try {
      server.ctl({"put", "/filler" + std::to_string(i), big});
    } catch (const std::exception&) {
      // the one that raises the alarm
    }
  }
  Node late(*thread, options(server.endpoint()));
  EXPECT_TRUE(late.sees("worker2.tf.local.", "192.0.2.2 fd00::2"));
  ASSERT_TRUE(eventually([&] { return late.counted("idetcd_claim_requests_total") >= 1; }));
  EXPECT_EQ(late.name(), "");
  EXPECT_EQ(holder.name(), "worker2.tf.local.");
  late.member.stop(1s);
  holder.member.stop(10s);
  thread->stop();
}

}  // namespace
}  // namespace idetcd::naming
