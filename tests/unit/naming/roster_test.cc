// What operators are told and may change, against a real etcd: all slots, one of them, drain and release.
#include "naming/roster.h"

#include <gtest/gtest.h>

#include "support/temporary_directory.h"
#include "unit/naming/member_fixture.h"

namespace idetcd::naming {
namespace {

class RosterTest : public MemberTest {
 protected:
  static Roster roster(Node& node) {
    Answer<store::StoreResult<Roster>> answer;
    node.member.readRoster(answer.done());
    return answer.get().value();
  }
  static std::optional<RosterSlot> slot(Node& node, const std::string& name) {
    Answer<store::StoreResult<std::optional<RosterSlot>>> answer;
    node.member.readSlot(name, answer.done());
    return answer.get().value();
  }
  static bool release(Node& node, const std::string& name, int64_t revision) {
    Answer<store::StoreResult<bool>> answer;
    node.member.releaseSlot(name, revision, answer.done());
    return answer.get().value();
  }
  static bool drain(Node& node, bool drained) {
    Answer<Member::Drained> answer;
    node.member.setDrained(drained, answer.done());
    return answer.get().published;
  }
};

TEST_F(RosterTest, ShowsWhoHasWhatAndForHowLong) {
  Node& first = start();
  ASSERT_TRUE(first.owns("worker1.tf.local."));
  // Of the Go plugin, of a hand, of another pattern, and what is no record.
  server_.ctl({"put", "worker7.tf.local.", R"({"ipv4":"198.51.100.7"})"});
  server_.ctl({"put", "--lease=" + lease("60"), "worker4.tf.local.", R"({"ipv4":"198.51.100.4","port":"53"})"});
  server_.ctl({"put", "worker5.tf.local.", "no record"});
  server_.ctl({"put", "worker11.tf.local.", "{}"});  // beyond the limit
  server_.ctl({"put", "worker1.other.", "{}"});
  Node& second = start();
  ASSERT_TRUE(second.owns("worker2.tf.local."));
  // Its own watch has to have shown the key for it to have an age.
  ASSERT_TRUE(eventually([&] { return roster(first).slots[1].age.has_value(); }));

  const std::vector<RosterSlot> all = roster(first).slots;
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0].id, 1);
  EXPECT_EQ(all[0].name, "worker1.tf.local.");
  EXPECT_EQ(all[0].addresses, (records::HostAddresses{IpAddress::parse("192.0.2.2"), IpAddress::parse("fd00::2")}));
  EXPECT_EQ(all[0].node, first.member.uuid());
  EXPECT_TRUE(all[0].own);
  EXPECT_FALSE(all[0].permanent);
  EXPECT_FALSE(all[0].drained);
  ASSERT_TRUE(all[0].lease_left);
  EXPECT_LE(*all[0].lease_left, 20s);
  EXPECT_EQ(all[1].node, second.member.uuid());
  EXPECT_FALSE(all[1].own);
  EXPECT_GE(*all[1].age, 0s);
  EXPECT_LT(*all[1].age, 60s);
  EXPECT_EQ(all[2].id, 4);
  EXPECT_EQ(all[2].node, "");
  EXPECT_FALSE(all[2].permanent);
  EXPECT_GT(*all[2].lease_left, 20s);
  EXPECT_EQ(all[3].id, 5);
  EXPECT_TRUE(all[3].permanent);
  EXPECT_FALSE(all[3].drained);
  EXPECT_EQ(all[4].id, 7);
  EXPECT_TRUE(all[4].permanent);
  EXPECT_FALSE(all[4].lease_left);
}

TEST_F(RosterTest, AskedForMoreLeasesThanAtOnce) {
  Node& node = start(options(server_.endpoint(), 100));
  ASSERT_TRUE(node.ownsSomething());
  for (int id = 11; id < 11 + 2 * static_cast<int>(RosterReader::kAtOnce); ++id) {
    server_.ctl({"put", "--lease=" + lease("600"), "worker" + std::to_string(id) + ".tf.local.", "{}"});
  }
  const std::vector<RosterSlot> all = roster(node).slots;
  ASSERT_EQ(all.size(), 1 + 2 * RosterReader::kAtOnce);
  for (const RosterSlot& one : all) EXPECT_TRUE(one.lease_left) << one.name;
  EXPECT_GT(all.back().lease_left, 60s);
}

TEST_F(RosterTest, ADrainedNodeKeepsItsNameWithoutAddresses) {
  Node& node = start();
  ASSERT_TRUE(node.owns("worker1.tf.local."));
  Node& other = start();
  const int64_t created = createRevision("worker1.tf.local.");
  ASSERT_TRUE(drain(node, true));
  EXPECT_TRUE(node.member.isDrained());
  // Published when the answer comes: etcd has it.
  EXPECT_EQ(keys("worker1.")["worker1.tf.local."], R"({"port":"53","id":")" + node.member.uuid() + R"(","slot":1})");
  EXPECT_TRUE(other.sees("worker1.tf.local.", "no data"));
  EXPECT_TRUE(slot(other, "worker1.tf.local.")->drained);
  EXPECT_EQ(node.name(), "worker1.tf.local.");

  ASSERT_TRUE(drain(node, false));
  EXPECT_FALSE(node.member.isDrained());
  EXPECT_TRUE(other.sees("worker1.tf.local.", "192.0.2.2 fd00::2"));
  EXPECT_EQ(createRevision("worker1.tf.local."), created) << "it is the same key all the while";
}

TEST_F(RosterTest, ADrainOutlivesTheProcess) {
  const TemporaryDirectory directory;
  const auto made = [&] {
    NodeOptions with_state = options(server_.endpoint());
    with_state.state = node::StateDirectory::open({.directory = directory / "state", .pattern = kPattern}, {}).value();
    return with_state;
  };
  Node& before = start(made());
  ASSERT_TRUE(before.owns("worker1.tf.local."));
  ASSERT_TRUE(drain(before, true));
  before.member.stop(5s);
  Node& after = start(made());
  ASSERT_TRUE(after.owns("worker1.tf.local."));
  EXPECT_TRUE(after.member.isDrained());
  EXPECT_TRUE(after.sees("worker1.tf.local.", "no data"));
  ASSERT_TRUE(drain(after, false));
  after.member.stop(5s);
  Node& last = start(made());
  ASSERT_TRUE(last.owns("worker1.tf.local."));
  EXPECT_TRUE(last.sees("worker1.tf.local.", "192.0.2.2 fd00::2"));
  EXPECT_FALSE(last.member.isDrained());
}

TEST_F(RosterTest, ASlotIsReleasedUnlessItHasChanged) {
  Node& node = start();
  ASSERT_TRUE(node.owns("worker1.tf.local."));
  EXPECT_FALSE(slot(node, "worker3.tf.local."));
  EXPECT_FALSE(slot(node, "worker99.tf.local."));
  server_.ctl({"put", "worker3.tf.local.", R"({"ipv4":"198.51.100.3"})"});
  const auto seen = slot(node, "worker3.tf.local.");
  ASSERT_TRUE(seen);
  EXPECT_TRUE(seen->permanent);
  server_.ctl({"put", "worker3.tf.local.", R"({"ipv4":"198.51.100.33"})"});
  EXPECT_FALSE(release(node, "worker3.tf.local.", seen->revision));
  EXPECT_EQ(keys("worker3.").size(), 1u);
  EXPECT_TRUE(release(node, "worker3.tf.local.", slot(node, "worker3.tf.local.")->revision));
  EXPECT_TRUE(keys("worker3.").empty());
  EXPECT_FALSE(release(node, "worker3.tf.local.", seen->revision));
}

TEST_F(RosterTest, ANodeWhoseNameIsReleasedMovesDown) {
  std::vector<Node*> made;
  for (const char* name : {"worker1.tf.local.", "worker2.tf.local.", "worker3.tf.local."}) {
    made.push_back(&start());
    ASSERT_TRUE(made.back()->owns(name));
  }
  made[0]->member.stop(5s);
  server_.ctl({"del", "worker3.tf.local."});  // no operator's word: it comes back to the same
  ASSERT_TRUE(eventually([&] { return createRevision("worker3.tf.local.") > 0; }));
  ASSERT_TRUE(made[2]->owns("worker3.tf.local."));
  ASSERT_TRUE(release(*made[1], "worker3.tf.local.", slot(*made[1], "worker3.tf.local.")->revision));
  EXPECT_TRUE(made[2]->owns("worker1.tf.local."));
  EXPECT_TRUE(keys("worker3.").empty());
  EXPECT_EQ(made[1]->name(), "worker2.tf.local.");
}

TEST_F(RosterTest, ANodeOfAPatternThatOverlapsIsForeign) {
  Node& node = start();
  ASSERT_TRUE(node.owns("worker1.tf.local."));
  NodeOptions other = options(server_.endpoint());
  other.pattern = slots::NamePattern::parse("worker{{.ID}}0.tf.local.", 5).value();
  ASSERT_TRUE(start(other).owns("worker10.tf.local."));
  const std::vector<RosterSlot> held = roster(node).slots;
  ASSERT_EQ(held.size(), 2u);
  EXPECT_FALSE(held[0].foreign);
  EXPECT_EQ(held[1].name, "worker10.tf.local.");
  EXPECT_TRUE(held[1].foreign);
  EXPECT_EQ(roster(*nodes_.back()).slots.size(), 1u);
  EXPECT_FALSE(roster(*nodes_.back()).slots[0].foreign);
}

TEST_F(RosterTest, ANodeThatLivesClaimsAnewWhatWasReleased) {
  Node& node = start();
  ASSERT_TRUE(node.owns("worker1.tf.local."));
  Node& other = start();
  const int64_t token = node.member.ownership()->token;
  ASSERT_TRUE(release(other, "worker1.tf.local.", slot(other, "worker1.tf.local.")->revision));
  EXPECT_TRUE(eventually([&] { return node.member.ownership() && node.member.ownership()->token > token; }));
}

}  // namespace
}  // namespace idetcd::naming
