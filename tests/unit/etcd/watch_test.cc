#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "client_fixture.h"

namespace idetcd::etcd {
namespace {

class WatchTest : public ClientTest {
 protected:
  // Takes batches until there are `count` events; checks that revisions only rise and that resume_revision follows.
  std::vector<WatchEvent> events(const std::unique_ptr<WatchStream>& stream, size_t count) {
    std::vector<WatchEvent> all;
    while (all.size() < count) {
      auto batch = etcd_.next(stream);
      EXPECT_TRUE(succeeded(batch));
      if (!batch) break;
      for (auto& event : batch->events) {
        if (!all.empty()) {
          EXPECT_LE(all.back().kv.mod_revision, event.kv.mod_revision);
        }
        all.push_back(std::move(event));
      }
      if (!batch->events.empty()) {
        EXPECT_GE(batch->resume_revision, all.back().kv.mod_revision);
      }
      last_resume_ = batch->resume_revision;
    }
    return all;
  }
  int64_t last_resume_ = 0;
};

TEST_F(WatchTest, TellsPutsAndDeletesOfItsRangeOnly) {
  auto watch = etcd_.watch({"0", std::string(1, '\0')}, 2);
  ASSERT_TRUE(succeeded(watch));
  EXPECT_EQ((*watch)->createdRevision(), 1);
  ASSERT_TRUE(succeeded(etcd_.put("/private", "v")));
  ASSERT_TRUE(succeeded(etcd_.put("a", "1")));
  ASSERT_TRUE(succeeded(etcd_.put("a", "2")));
  ASSERT_TRUE(succeeded(etcd_.remove(KeyRange::single("a"))));
  const auto seen = events(*watch, 3);
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0].type, WatchEvent::Type::kPut);
  EXPECT_EQ(seen[0].kv.key, "a");
  EXPECT_EQ(seen[0].kv.value, "1");
  EXPECT_EQ(seen[0].kv.create_revision, 3);
  EXPECT_EQ(seen[0].kv.mod_revision, 3);
  EXPECT_EQ(seen[1].kv.value, "2");
  EXPECT_EQ(seen[1].kv.create_revision, 3);
  EXPECT_EQ(seen[1].kv.version, 2);
  EXPECT_EQ(seen[2].type, WatchEvent::Type::kDelete);
  EXPECT_EQ(seen[2].kv.key, "a");
  EXPECT_EQ(seen[2].kv.mod_revision, 5);
  EXPECT_EQ(last_resume_, 6);
}

TEST_F(WatchTest, StartsInThePastAndKeepsATxnTogether) {
  ASSERT_TRUE(succeeded(etcd_.put("a", "old")));
  TxnRequest request;
  for (int i = 0; i < 100; ++i) request.success.emplace_back(PutOp{"k" + std::to_string(i), "v", 0});
  const auto txn = etcd_.txn(request);
  ASSERT_TRUE(succeeded(txn));
  ASSERT_TRUE(succeeded(etcd_.put("z", "new")));
  auto watch = etcd_.watch(KeyRange::prefix(""), txn->revision);
  ASSERT_TRUE(succeeded(watch));
  EXPECT_EQ((*watch)->createdRevision(), txn->revision + 1);
  const auto seen = events(*watch, 101);
  ASSERT_EQ(seen.size(), 101u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)].kv.mod_revision, txn->revision);
  EXPECT_EQ(seen[100].kv.key, "z");
}

TEST_F(WatchTest, PutsFragmentsTogether) {
  constexpr int kKeys = 24;
  constexpr size_t kBytes = 1 << 20;
  for (int i = 0; i < kKeys; ++i) ASSERT_TRUE(succeeded(etcd_.put("k" + std::to_string(i), std::string(kBytes, 'x'))));
  auto watch = etcd_.watch(KeyRange::prefix("k"), 2);
  ASSERT_TRUE(succeeded(watch));
  const auto seen = events(*watch, kKeys);
  ASSERT_EQ(seen.size(), static_cast<size_t>(kKeys));
  for (int i = 0; i < kKeys; ++i) {
    EXPECT_EQ(seen[static_cast<size_t>(i)].kv.key, "k" + std::to_string(i));
    EXPECT_EQ(seen[static_cast<size_t>(i)].kv.value.size(), kBytes);
  }
  EXPECT_EQ(last_resume_, kKeys + 2);
  // And it goes on.
  ASSERT_TRUE(succeeded(etcd_.put("k", "small")));
  EXPECT_EQ(events(*watch, 1).at(0).kv.value, "small");
}

// A response that is delivered in parts, since it is too large for the inbox: where one part ends within a revision, a
// watch that is resumed there must bring that revision again.
TEST_F(WatchTest, AResumeAfterAPartSkipsNothing) {
  constexpr int kRevisions = 24;
  constexpr int kKeys = 5;  // of each revision; with seven to a fragment no part ends with a revision
  const std::string value(290'000, 'x');
  for (int i = 0; i < kRevisions; ++i) {
    TxnRequest request;
    for (int k = 0; k < kKeys; ++k) request.success.emplace_back(PutOp{"k" + std::to_string(k), value, 0});
    ASSERT_TRUE(succeeded(etcd_.txn(request)));
  }
  auto watch = etcd_.watch(KeyRange::prefix("k"), 2);
  ASSERT_TRUE(succeeded(watch));
  int events = 0;
  int cuts = 0;
  int64_t last_revision = 1;
  int64_t resume_revision = 2;
  while (events < kRevisions * kKeys) {
    const auto batch = etcd_.next(*watch);
    ASSERT_TRUE(succeeded(batch));
    if (batch->events.empty()) continue;
    const int64_t first = batch->events.front().kv.mod_revision;
    EXPECT_LE(resume_revision, first) << "it skips what has not been delivered";
    if (first == last_revision) ++cuts;
    events += static_cast<int>(batch->events.size());
    last_revision = batch->events.back().kv.mod_revision;
    resume_revision = batch->resume_revision;
  }
  EXPECT_GT(cuts, 0) << "no part ended within a revision: the test shows nothing";
  EXPECT_EQ(resume_revision, kRevisions + 2);
}

TEST_F(WatchTest, SeveralRangesOverOneStream) {
  std::vector<WatchRange> ranges{{KeyRange::prefix("a"), 2}, {KeyRange::prefix("c"), 2}};
  auto watch = await(etcd_.thread, etcd_.client.watch(std::move(ranges)));
  ASSERT_TRUE(succeeded(watch));
  ASSERT_TRUE(succeeded(etcd_.put("c1", "v")));
  ASSERT_TRUE(succeeded(etcd_.put("b1", "v")));
  ASSERT_TRUE(succeeded(etcd_.put("a1", "v")));
  std::vector<std::string> seen(2);
  for (int i = 0; i < 2; ++i) {
    const auto batch = etcd_.next(*watch);
    ASSERT_TRUE(succeeded(batch));
    ASSERT_EQ(batch->events.size(), 1u);
    seen.at(batch->range) = batch->events[0].kv.key;
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"a1", "c1"}));
}

TEST_F(WatchTest, ASlowReaderLosesNothing) {
  auto watch = etcd_.watch(KeyRange::prefix("k"), 2);
  ASSERT_TRUE(succeeded(watch));
  constexpr int kEvents = 500;  // far more batches than are kept
  const std::string value(10'000, 'x');
  for (int i = 0; i < kEvents; ++i) ASSERT_TRUE(succeeded(etcd_.put("k" + std::to_string(i), value)));
  const auto seen = events(*watch, kEvents);
  ASSERT_EQ(seen.size(), static_cast<size_t>(kEvents));
  for (int i = 0; i < kEvents; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)].kv.mod_revision, i + 2);
}

TEST_F(WatchTest, AQuietWatchIsKnownToLive) {
  auto watch = etcd_.watch(KeyRange::prefix("k"), 2);
  ASSERT_TRUE(succeeded(watch));
  ASSERT_TRUE(succeeded(etcd_.put("other", "v")));
  for (int i = 0; i < 2; ++i) {
    const auto batch = etcd_.next(*watch, 12s);  // half of it for the answer to the progress request
    ASSERT_TRUE(succeeded(batch));
    EXPECT_TRUE(batch->events.empty());
    EXPECT_EQ(batch->revision, 2);
    EXPECT_EQ(batch->resume_revision, 2) << "an answer to a progress request promises nothing";
  }
  ASSERT_TRUE(succeeded(etcd_.put("k", "v")));
  EXPECT_EQ(events(*watch, 1).at(0).kv.key, "k");
}

TEST_F(WatchTest, ASilentEtcdIsATimeOut) {
  auto watch = etcd_.watch(KeyRange::prefix("k"), 2);
  ASSERT_TRUE(succeeded(watch));
  server_.pause();
  const auto begin = SteadyClock::now();
  EXPECT_TRUE(failedWith(etcd_.next(*watch, 400ms), ErrorCode::kDeadlineExceeded));
  EXPECT_GE(SteadyClock::now() - begin, 390ms);
  EXPECT_LT(SteadyClock::now() - begin, 20s);
  EXPECT_TRUE(failedWith(etcd_.next(*watch, 400ms), ErrorCode::kDeadlineExceeded)) << "the stream has ended";
  server_.resume();
  auto again = etcd_.watch(KeyRange::prefix("k"), 2);
  ASSERT_TRUE(succeeded(again));
  ASSERT_TRUE(succeeded(etcd_.put("k", "v")));
  EXPECT_EQ(events(*again, 1).at(0).kv.mod_revision, 2);
}

TEST_F(WatchTest, SurvivesAShortPause) {
  auto watch = etcd_.watch(KeyRange::prefix("k"), 2);
  ASSERT_TRUE(succeeded(watch));
  auto next = start(etcd_.thread, (*watch)->next(60s));
  server_.pause();
  EXPECT_EQ(next.wait_for(1s), std::future_status::timeout);
  server_.resume();
  server_.ctl({"put", "k", "v"});
  const auto batch = next.get();
  ASSERT_TRUE(succeeded(batch));
  EXPECT_EQ(batch->events.size(), 1u);
}

TEST_F(WatchTest, ResumesAfterARestartOfEtcdWithoutALostEvent) {
  auto watch = etcd_.watch(KeyRange::prefix("k"), 2);
  ASSERT_TRUE(succeeded(watch));
  ASSERT_TRUE(succeeded(etcd_.put("k1", "v")));
  events(*watch, 1);
  server_.kill();
  EXPECT_TRUE(failedWith(etcd_.next(*watch), ErrorCode::kUnavailable));
  server_.start();
  server_.ctl({"put", "k2", "v"});
  auto again = etcd_.watch(KeyRange::prefix("k"), last_resume_);
  const auto deadline = SteadyClock::now() + 30s;
  while (!again && SteadyClock::now() < deadline) {
    await(etcd_.thread, etcd_.thread.sleepFor(20ms));
    again = etcd_.watch(KeyRange::prefix("k"), last_resume_);
  }
  ASSERT_TRUE(succeeded(again));
  const auto seen = events(*again, 1);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].kv.key, "k2");
}

TEST_F(WatchTest, SaysThatItsRevisionWasCompacted) {
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(succeeded(etcd_.put("k", "v")));
  server_.ctl({"compaction", "8"});
  auto watch = etcd_.watch(KeyRange::prefix("k"), 3);
  if (watch) {
    EXPECT_TRUE(failedWith(etcd_.next(*watch), ErrorCode::kCompacted));
    EXPECT_TRUE(failedWith(etcd_.next(*watch), ErrorCode::kCompacted)) << "and goes on saying it";
  } else {
    EXPECT_TRUE(failedWith(watch, ErrorCode::kCompacted));
  }
  auto behind = etcd_.watch(KeyRange::prefix("k"), 9);
  ASSERT_TRUE(succeeded(behind));
  EXPECT_EQ(events(*behind, 3).size(), 3u);
}

TEST_F(WatchTest, ShowsAStoreThatWentBack) {
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(succeeded(etcd_.put("k", "v")));
  server_.kill();
  server_.wipe();
  server_.start();
  const auto deadline = SteadyClock::now() + 30s;
  auto watch = etcd_.watch(KeyRange::prefix("k"), 12);
  while (!watch && SteadyClock::now() < deadline) {
    await(etcd_.thread, etcd_.thread.sleepFor(20ms));
    watch = etcd_.watch(KeyRange::prefix("k"), 12);
  }
  ASSERT_TRUE(succeeded(watch));
  EXPECT_EQ((*watch)->createdRevision(), 1);
}

TEST_F(WatchTest, ManyWatchesAtOnceAndAMovedStream) {
  std::vector<std::unique_ptr<WatchStream>> watches;
  for (int i = 0; i < 20; ++i) {
    auto watch = etcd_.watch(KeyRange::single("k" + std::to_string(i)), 2);
    ASSERT_TRUE(succeeded(watch));
    watches.push_back(std::move(*watch));
  }
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(succeeded(etcd_.put("k" + std::to_string(i), "v")));
  for (int i = 0; i < 20; ++i) {
    const auto seen = events(watches[static_cast<size_t>(i)], 1);
    ASSERT_EQ(seen.size(), 1u);
    EXPECT_EQ(seen[0].kv.key, "k" + std::to_string(i));
  }
  watches[0] = std::move(watches[1]);  // ends the first
  ASSERT_TRUE(succeeded(etcd_.put("k1", "w")));
  EXPECT_EQ(events(watches[0], 1).at(0).kv.value, "w");
}

TEST_F(WatchTest, StopEndsWatchesInEveryState) {
  auto idle = etcd_.watch(KeyRange::prefix("k"), 2);
  auto waiting = etcd_.watch(KeyRange::prefix("k"), 2);
  ASSERT_TRUE(succeeded(idle));
  ASSERT_TRUE(succeeded(waiting));
  auto next = start(etcd_.thread, (*waiting)->next(1h));
  server_.pause();
  auto opening = start(etcd_.thread, etcd::watch(etcd_.client, KeyRange::prefix("k"), 2));
  const auto begin = SteadyClock::now();
  etcd_.thread.stop();
  EXPECT_LT(SteadyClock::now() - begin, 20s);
  EXPECT_TRUE(failedWith(next.get(), ErrorCode::kCancelled));
  EXPECT_TRUE(failedWith(opening.get(), ErrorCode::kCancelled));
  server_.resume();
}

}  // namespace
}  // namespace idetcd::etcd
