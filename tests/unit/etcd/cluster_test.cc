#include "etcd/cluster.h"

#include "client_fixture.h"

namespace idetcd::etcd {
namespace {

// A client of one member, and its Cluster.
struct Member : BlockingClient {
  using BlockingClient::BlockingClient;
  template <typename T>
  StoreResult<T> wait(Task<StoreResult<T>> task) {
    return await(thread, std::move(task));
  }
  Cluster cluster{client};
};

class ClusterTest : public testing::Test {
 protected:
  std::string endpoint(size_t index) { return etcd_.member(index).endpoint(); }

  // etcd refuses a change of members in the first 5 s, else.
  EtcdCluster etcd_{3, {.tls = {}, .extra_arguments = {"--strict-reconfig-check=false"}}};
  Member any_{optionsFor(etcd_.endpoints())};
};

TEST_F(ClusterTest, MembersAreListedAndEachSaysHowItDoes) {
  const auto list = any_.wait(any_.cluster.memberList());
  ASSERT_TRUE(succeeded(list));
  ASSERT_EQ(list->members.size(), 3u);
  EXPECT_NE(list->cluster_id, 0u);
  const size_t leader = etcd_.leader();
  std::set<uint64_t> ids;
  uint64_t leader_id = 0;
  for (size_t i = 0; i < 3; ++i) {
    Member member(optionsFor({endpoint(i)}));
    const auto status = member.wait(member.cluster.status());
    ASSERT_TRUE(succeeded(status));
    ids.insert(status->id);
    if (i == leader) leader_id = status->id;
    EXPECT_EQ(status->cluster_id, list->cluster_id);
    EXPECT_NE(status->leader, 0u);
    EXPECT_GT(status->term, 0u);
    EXPECT_GT(status->index, 0u);
    EXPECT_GT(status->bytes, 0);
    EXPECT_GT(status->bytes_in_use, 0);
    EXPECT_LE(status->bytes_in_use, status->bytes);
    EXPECT_EQ(status->revision, 1);
    EXPECT_FALSE(status->is_learner);
    EXPECT_EQ(std::ranges::count(status->version, '.'), 2) << status->version;
    EXPECT_EQ(status->leader == status->id, i == leader);
  }
  EXPECT_TRUE(ids.contains(leader_id));
  for (const ClusterMember& member : list->members) {
    EXPECT_TRUE(ids.contains(member.id));
    EXPECT_EQ(member.name.substr(0, 1), "m");
    EXPECT_EQ(member.peer_urls.size(), 1u);
    const auto urls = etcd_.endpoints();
    ASSERT_EQ(member.client_urls.size(), 1u);
    EXPECT_NE(std::ranges::find(urls, member.client_urls[0]), urls.end());
    EXPECT_FALSE(member.is_learner);
  }
}

TEST_F(ClusterTest, ALearnerIsAddedMovedAndRemovedAndIsNotPromotedBeforeItHasCaughtUp) {
  const std::string url = "http://127.0.0.1:1";  // nobody is there
  const auto added = any_.wait(any_.cluster.memberAdd({url}, true));
  ASSERT_TRUE(succeeded(added));
  const auto find = [&] {
    const auto list = any_.wait(any_.cluster.memberList());
    const auto at = std::ranges::find(list->members, *added, &ClusterMember::id);
    return at == list->members.end() ? std::optional<ClusterMember>() : *at;
  };
  const ClusterMember expected{.id = *added, .name = "", .peer_urls = {url}, .client_urls = {}, .is_learner = true};
  EXPECT_EQ(find(), expected);
  EXPECT_FALSE(any_.wait(any_.cluster.memberPromote(*added)));
  EXPECT_TRUE(succeeded(any_.wait(any_.cluster.memberUpdate(*added, {"http://127.0.0.1:2"}))));
  EXPECT_EQ(find()->peer_urls, std::vector<std::string>{"http://127.0.0.1:2"});
  EXPECT_TRUE(succeeded(any_.wait(any_.cluster.memberRemove(*added))));
  EXPECT_EQ(find(), std::nullopt);
  EXPECT_TRUE(failedWith(any_.wait(any_.cluster.memberRemove(*added)), ErrorCode::kNotFound));
  EXPECT_TRUE(failedWith(any_.wait(any_.cluster.memberPromote(7)), ErrorCode::kNotFound));
}

TEST_F(ClusterTest, TheLeaderHandsOver) {
  const size_t leader = etcd_.leader();
  const size_t next = (leader + 1) % 3;
  Member heir(optionsFor({endpoint(next)}));
  const uint64_t heir_id = heir.wait(heir.cluster.status()).value().id;
  Member member(optionsFor({endpoint(leader)}));
  ASSERT_TRUE(succeeded(member.wait(member.cluster.moveLeader(heir_id))));
  EXPECT_EQ(heir.wait(heir.cluster.status()).value().leader, heir_id);
}

TEST(Maintenance, AFullStoreIsDisarmedAfterCompactionAndDefragmentation) {
  EtcdServer server({.tls = {}, .extra_arguments = {"--quota-backend-bytes=200000"}});
  Member etcd(server);
  EXPECT_EQ(etcd.wait(etcd.cluster.alarms()).value().size(), 0u);
  const std::string much(20000, 'x');
  for (StoreResult<int64_t> put = 0; put; put = etcd.put("k", much)) {
  }
  EXPECT_TRUE(failedWith(etcd.put("k", "v"), ErrorCode::kNoSpace));
  const auto alarms = etcd.wait(etcd.cluster.alarms());
  ASSERT_TRUE(succeeded(alarms));
  const MemberStatus before = etcd.wait(etcd.cluster.status()).value();
  EXPECT_TRUE(before.no_space);
  EXPECT_EQ(*alarms, (std::vector<Alarm>{{.member = before.id, .kind = Alarm::Kind::kNoSpace}}));
  ASSERT_TRUE(succeeded(etcd.wait(etcd.cluster.compact(before.revision))));
  ASSERT_TRUE(succeeded(etcd.wait(etcd.cluster.defragment(60s))));
  EXPECT_LT(etcd.wait(etcd.cluster.status()).value().bytes, before.bytes);
  ASSERT_TRUE(succeeded(etcd.wait(etcd.cluster.disarm(alarms->at(0)))));
  EXPECT_EQ(etcd.wait(etcd.cluster.alarms()).value().size(), 0u);
  EXPECT_FALSE(etcd.wait(etcd.cluster.status()).value().no_space);
  EXPECT_TRUE(succeeded(etcd.put("k", "v")));
}

}  // namespace
}  // namespace idetcd::etcd
