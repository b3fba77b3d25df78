#include <vector>

#include "client_fixture.h"

namespace idetcd::etcd {
namespace {

using LeaseTest = ClientTest;

TEST_F(LeaseTest, GrantsKeepsAliveAndRevokes) {
  const auto before = BootClock::now();
  const auto lease = etcd_.grant(20s);
  ASSERT_TRUE(succeeded(lease));
  EXPECT_NE(lease->id, 0);
  EXPECT_EQ(lease->ttl, 20s);
  EXPECT_GE(lease->sent_at, before);
  EXPECT_LE(lease->sent_at, BootClock::now());
  ASSERT_TRUE(succeeded(etcd_.put("k", "v", lease->id)));
  EXPECT_EQ(etcd_.range(KeyRange::single("k"))->kvs.at(0).lease, lease->id);

  const auto renewed = etcd_.keepAlive(lease->id);
  ASSERT_TRUE(succeeded(renewed));
  EXPECT_EQ(renewed->id, lease->id);
  EXPECT_EQ(renewed->ttl, 20s);
  EXPECT_GT(renewed->sent_at, lease->sent_at);

  ASSERT_TRUE(succeeded(etcd_.revoke(lease->id)));
  EXPECT_EQ(etcd_.value("k"), std::nullopt);
  EXPECT_TRUE(failedWith(etcd_.revoke(lease->id), ErrorCode::kLeaseNotFound));
  EXPECT_TRUE(failedWith(etcd_.keepAlive(lease->id), ErrorCode::kLeaseNotFound));
}

TEST_F(LeaseTest, RefusesWhatEtcdRefuses) {
  EXPECT_TRUE(failedWith(etcd_.grant(10'000'000'000s), ErrorCode::kOther));  // over etcd's maximum
  EXPECT_TRUE(failedWith(etcd_.keepAlive(4711), ErrorCode::kLeaseNotFound));
  const auto shortest = etcd_.grant(1s);
  ASSERT_TRUE(succeeded(shortest));
  EXPECT_GE(shortest->ttl, 1s) << "etcd raises what is below its election time";
}

TEST_F(LeaseTest, ExpiresWhenNotKeptAlive) {
  const auto lease = etcd_.grant(6s);
  ASSERT_TRUE(succeeded(lease));
  const auto revision = etcd_.put("k", "v", lease->id);
  ASSERT_TRUE(succeeded(revision));
  auto watch = etcd_.watch(KeyRange::single("k"), *revision + 1);
  ASSERT_TRUE(succeeded(watch));
  const auto batch = etcd_.next(*watch, 60s);
  ASSERT_TRUE(succeeded(batch));
  ASSERT_EQ(batch->events.size(), 1u);
  EXPECT_EQ(batch->events[0].type, WatchEvent::Type::kDelete);
  EXPECT_GE(BootClock::now(), lease->sent_at + lease->ttl) << "never before sent_at + ttl";
  EXPECT_TRUE(failedWith(etcd_.keepAlive(lease->id), ErrorCode::kLeaseNotFound));
}

// However late the answer comes: the lease is sure to live for its time from when it was asked for, not from then on.
TEST_F(LeaseTest, ARenewalCountsFromItsRequest) {
  const auto lease = etcd_.grant(30s);
  ASSERT_TRUE(succeeded(lease));
  ASSERT_TRUE(succeeded(etcd_.keepAlive(lease->id)));  // the stream is open
  server_.pause();
  auto answer = start(etcd_.thread, etcd_.client.leaseKeepAlive(lease->id, 60s));
  std::this_thread::sleep_for(1s);  // the length of the fault
  const BootClock::time_point resumed = BootClock::now();
  server_.resume();
  const auto renewed = answer.get();
  ASSERT_TRUE(succeeded(renewed));
  EXPECT_LT(renewed->sent_at, resumed - 500ms);
}

TEST_F(LeaseTest, ManyLeasesShareTheStream) {
  std::vector<int64_t> ids;
  for (int i = 0; i < 20; ++i) {
    const auto lease = etcd_.grant(std::chrono::seconds(30 + i));
    ASSERT_TRUE(succeeded(lease));
    ids.push_back(lease->id);
  }
  ids.push_back(4711);  // not there
  std::vector<std::future<StoreResult<Lease>>> answers;
  for (int round = 0; round < 5; ++round) {
    for (const int64_t id : ids) answers.push_back(start(etcd_.thread, etcd_.client.leaseKeepAlive(id, 5s)));
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    const size_t which = i % ids.size();
    const auto answer = answers[i].get();
    if (ids[which] == 4711) {
      EXPECT_TRUE(failedWith(answer, ErrorCode::kLeaseNotFound));
      continue;
    }
    ASSERT_TRUE(succeeded(answer));
    EXPECT_EQ(answer->id, ids[which]);
    EXPECT_EQ(answer->ttl, std::chrono::seconds(30 + which));
  }
}

TEST_F(LeaseTest, KeepsAliveOverARestartOfEtcd) {
  const auto lease = etcd_.grant(30s);
  ASSERT_TRUE(succeeded(lease));
  ASSERT_TRUE(succeeded(etcd_.keepAlive(lease->id)));
  server_.kill();
  const auto failed = etcd_.keepAlive(lease->id);
  EXPECT_TRUE(failedWith(failed, ErrorCode::kUnavailable));
  server_.start();
  StoreResult<Lease> renewed = failed;
  const auto deadline = SteadyClock::now() + 30s;
  while (!renewed && SteadyClock::now() < deadline) {
    await(etcd_.thread, etcd_.thread.sleepFor(20ms));
    renewed = etcd_.keepAlive(lease->id);
  }
  ASSERT_TRUE(succeeded(renewed));
  EXPECT_EQ(renewed->id, lease->id);
}

TEST_F(LeaseTest, ASilentEtcdIsATimeOutAndTheLateAnswerIsNotTakenForANewOne) {
  const auto lease = etcd_.grant(30s);
  ASSERT_TRUE(succeeded(lease));
  ASSERT_TRUE(succeeded(etcd_.keepAlive(lease->id)));
  server_.pause();
  const auto begin = SteadyClock::now();
  EXPECT_TRUE(failedWith(etcd_.keepAlive(lease->id, 300ms), ErrorCode::kDeadlineExceeded));
  EXPECT_GE(SteadyClock::now() - begin, 300ms);
  EXPECT_LT(SteadyClock::now() - begin, 20s);
  server_.resume();
  const auto renewed = etcd_.keepAlive(lease->id);
  ASSERT_TRUE(succeeded(renewed));
  EXPECT_EQ(renewed->id, lease->id);
}

TEST_F(LeaseTest, RevokesAsTheLastThingBeforeStop) {
  const auto lease = etcd_.grant(30s);
  ASSERT_TRUE(succeeded(lease));
  ASSERT_TRUE(succeeded(etcd_.put("k", "v", lease->id)));
  BlockingClient leaving(server_);
  auto revoked = start(leaving.thread, leaving.client.leaseRevoke(lease->id));
  leaving.thread.stop(60s);
  EXPECT_TRUE(succeeded(revoked.get()));
  EXPECT_EQ(etcd_.value("k"), std::nullopt);
}

TEST_F(LeaseTest, RevokesAfterStopBegan) {
  const auto lease = etcd_.grant(30s);
  ASSERT_TRUE(succeeded(lease));
  BlockingClient leaving(server_);
  const auto keeper = [](CompletionThread& thread, Client& client, int64_t id) -> Task<StoreResult<void>> {
    while (true) {
      const bool slept = co_await thread.sleepFor(1h);
      if (!slept) break;
    }
    EXPECT_TRUE(thread.stopping());
    const auto refused = co_await client.leaseGrant(1s);
    EXPECT_TRUE(failedWith(refused, ErrorCode::kCancelled));
    EXPECT_FALSE(refused.error().ambiguous());
    co_return co_await client.leaseRevoke(id);
  };
  auto revoked = start(leaving.thread, keeper(leaving.thread, leaving.client, lease->id));
  leaving.thread.stop(60s);
  EXPECT_TRUE(succeeded(revoked.get()));
  EXPECT_TRUE(failedWith(etcd_.keepAlive(lease->id), ErrorCode::kLeaseNotFound));
}

TEST_F(LeaseTest, ARevocationDoesNotHoldStopForLong) {
  const auto lease = etcd_.grant(30s);
  ASSERT_TRUE(succeeded(lease));
  server_.pause();
  auto revoked = start(etcd_.thread, etcd_.client.leaseRevoke(lease->id));
  const auto begin = SteadyClock::now();
  etcd_.thread.stop();
  EXPECT_LT(SteadyClock::now() - begin, 20s) << "a call may take 60 s";
  EXPECT_FALSE(revoked.get());
  server_.resume();
}

TEST_F(LeaseTest, ARevocationHoldsStopForAsLongAsItSaysOnly) {
  const auto lease = etcd_.grant(30s);
  ASSERT_TRUE(succeeded(lease));
  server_.pause();
  auto revoked = start(etcd_.thread, etcd_.client.leaseRevoke(lease->id));
  const auto begin = SteadyClock::now();
  etcd_.thread.stop(0s);
  EXPECT_LT(SteadyClock::now() - begin, etcd::CompletionThread::kStopGrace);
  EXPECT_FALSE(revoked.get());
  server_.resume();
}

}  // namespace
}  // namespace idetcd::etcd
