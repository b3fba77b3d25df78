#include <string>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "client_fixture.h"

namespace idetcd::etcd {
namespace {

using KvTest = ClientTest;

TEST_F(KvTest, PutsAndReads) {
  const auto revision = etcd_.put("worker1.tf.local.", R"({"ipv4":"192.0.2.1"})");
  ASSERT_TRUE(succeeded(revision));
  EXPECT_EQ(*revision, 2);
  const auto result = etcd_.range(KeyRange::single("worker1.tf.local."));
  ASSERT_TRUE(succeeded(result));
  ASSERT_EQ(result->kvs.size(), 1u);
  const KeyValue& kv = result->kvs[0];
  EXPECT_EQ(kv.key, "worker1.tf.local.");
  EXPECT_EQ(kv.value, R"({"ipv4":"192.0.2.1"})");
  EXPECT_EQ(kv.create_revision, 2);
  EXPECT_EQ(kv.mod_revision, 2);
  EXPECT_EQ(kv.version, 1);
  EXPECT_EQ(kv.lease, 0);
  EXPECT_EQ(result->revision, 2);
  EXPECT_FALSE(result->more);
}

TEST_F(KvTest, KeepsBytesAsTheyAre) {
  const std::string key("k\0\xff\x80", 4);
  const std::string value("\0\n\xfe", 3);
  ASSERT_TRUE(succeeded(etcd_.put(key, value)));
  EXPECT_EQ(etcd_.value(key), value);
}

TEST_F(KvTest, ReadsRangesWithTheirOptions) {
  for (const char* key : {"b", "c", "a", "/path", "d"}) ASSERT_TRUE(succeeded(etcd_.put(key, "v")));

  const auto keys = [&](KeyRange range, RangeOptions options = {}) {
    const auto result = etcd_.range(std::move(range), options);
    EXPECT_TRUE(succeeded(result));
    std::string joined;
    for (const auto& kv : result->kvs) joined += kv.key + kv.value + " ";
    if (result->more) joined += "…";
    return joined;
  };
  EXPECT_EQ(keys({"a", "c"}), "av bv ");
  EXPECT_EQ(keys({"0", std::string(1, '\0')}), "av bv cv dv ");
  EXPECT_EQ(keys(KeyRange::prefix("")), "/pathv av bv cv dv ");
  EXPECT_EQ(keys(KeyRange::single("nothing")), "");
  EXPECT_EQ(keys({"c", "a"}), "");
  RangeOptions options;
  options.limit = 2;
  EXPECT_EQ(keys({"a", "z"}, options), "av bv …");
  options = {};
  options.keys_only = true;
  EXPECT_EQ(keys({"a", "c"}, options), "a b ");
  options = {};
  options.sort_by_create_revision = true;
  EXPECT_EQ(keys({"a", "z"}, options), "bv cv av dv ");
  options = {};
  options.revision = 3;
  EXPECT_EQ(keys({"a", "z"}, options), "bv cv ");
  options = {};
  options.serializable = true;
  EXPECT_EQ(keys({"a", "c"}, options), "av bv ");
}

TEST_F(KvTest, RefusesRevisionsThatAreNotThere) {
  RangeOptions options;
  options.revision = 1000;
  const auto future = etcd_.range(KeyRange::single("a"), options);
  EXPECT_TRUE(failedWith(future, ErrorCode::kOther));
  EXPECT_FALSE(future.error().ambiguous());

  for (int i = 0; i < 5; ++i) ASSERT_TRUE(succeeded(etcd_.put("a", "v")));
  server_.ctl({"compaction", "5"});
  options.revision = 3;
  EXPECT_TRUE(failedWith(etcd_.range(KeyRange::single("a"), options), ErrorCode::kCompacted));
}

TEST_F(KvTest, Deletes) {
  for (const char* key : {"a", "b", "c"}) ASSERT_TRUE(succeeded(etcd_.put(key, "v")));
  auto removed = etcd_.remove({"a", "c"});
  ASSERT_TRUE(succeeded(removed));
  EXPECT_EQ(removed->deleted, 2);
  removed = etcd_.remove(KeyRange::single("a"));
  ASSERT_TRUE(succeeded(removed));
  EXPECT_EQ(removed->deleted, 0);
  EXPECT_EQ(etcd_.value("c"), "v");
}

TEST_F(KvTest, RefusesWhatEtcdRefuses) {
  const auto empty_key = etcd_.put("", "v");
  EXPECT_TRUE(failedWith(empty_key, ErrorCode::kOther));
  EXPECT_NE(empty_key.error().message.find("key is not provided"), std::string::npos);
  const auto no_lease = etcd_.put("k", "v", 4711);
  EXPECT_TRUE(failedWith(no_lease, ErrorCode::kLeaseNotFound));
  EXPECT_FALSE(no_lease.error().ambiguous());
  const auto too_large = etcd_.put("k", std::string(4 << 20, 'x'));
  EXPECT_FALSE(too_large);
  EXPECT_EQ(etcd_.value("k"), std::nullopt);
}

TEST_F(KvTest, TellsThatItIsNotAuthenticated) {
  server_.ctl({"user", "add", "root:secret"});
  server_.ctl({"user", "grant-role", "root", "root"});
  server_.ctl({"auth", "enable"});
  EXPECT_TRUE(failedWith(etcd_.range(KeyRange::single("k")), ErrorCode::kStaleToken));
  const auto write = etcd_.put("k", "v");
  EXPECT_TRUE(failedWith(write, ErrorCode::kStaleToken));
  EXPECT_FALSE(write.error().ambiguous());
  auto watch = etcd_.watch(KeyRange::single("k"), 1);
  EXPECT_TRUE(failedWith(watch, ErrorCode::kStaleToken));
}

Compare createRevisionIs(std::string key, int64_t revision) {
  return {std::move(key), Compare::Target::kCreateRevision, revision};
}

TEST_F(KvTest, TxnTakesAKeyOnce) {
  TxnRequest request;
  request.compares = {createRevisionIs("slot", 0)};
  request.success = {PutOp{"slot", "first", 0}, RangeOp{KeyRange::single("slot"), {}}};
  request.failure = {RangeOp{KeyRange::single("slot"), {}}};
  const auto first = etcd_.txn(request);
  ASSERT_TRUE(succeeded(first));
  EXPECT_TRUE(first->succeeded);
  ASSERT_EQ(first->results.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<PutResult>(first->results[0]));
  const auto& seen = std::get<RangeResult>(first->results[1]);
  ASSERT_EQ(seen.kvs.size(), 1u) << "a range in a Txn sees its writes";
  EXPECT_EQ(seen.kvs[0].create_revision, first->revision);
  EXPECT_EQ(seen.revision, first->revision);

  request.success[0] = PutOp{"slot", "second", 0};
  const auto second = etcd_.txn(request);
  ASSERT_TRUE(succeeded(second));
  EXPECT_FALSE(second->succeeded);
  ASSERT_EQ(second->results.size(), 1u);
  EXPECT_EQ(std::get<RangeResult>(second->results[0]).kvs[0].value, "first");
}

TEST_F(KvTest, TxnComparesEveryTarget) {
  const auto lease = etcd_.grant(30s);
  ASSERT_TRUE(succeeded(lease));
  const auto revision = etcd_.put("k", "m", lease->id);
  ASSERT_TRUE(succeeded(revision));
  using Target = Compare::Target;
  const struct {
    Compare compare;
    bool holds;
  } cases[] = {
      {{"k", Target::kCreateRevision, *revision}, true},
      {{"k", Target::kCreateRevision, *revision + 1}, false},
      {{"k", Target::kModRevision, *revision}, true},
      {{"k", Target::kModRevision, 0}, false},
      {{"k", Target::kLease, lease->id}, true},
      {{"k", Target::kLease, 0}, false},
      {{"k", Target::kValue, 0, "m"}, true},
      {{"k", Target::kValue, 0, ""}, false},
      {{.key = "k", .target = Target::kLease, .number = lease->id, .differs = true}, false},
      {{.key = "k", .target = Target::kLease, .number = lease->id + 1, .differs = true}, true},
      {{.key = "nothing", .target = Target::kLease, .number = lease->id, .differs = true}, true},
      {{"nothing", Target::kCreateRevision, 0}, true},
      {{"nothing", Target::kValue, 0, ""}, false},
  };
  for (const auto& test : cases) {
    TxnRequest request;
    request.compares = {test.compare};
    const auto result = etcd_.txn(request);
    ASSERT_TRUE(succeeded(result));
    EXPECT_EQ(result->succeeded, test.holds) << "case " << (&test - cases);
    EXPECT_TRUE(result->results.empty());
  }
}

TEST_F(KvTest, TxnDeletesAndIsAllOrNothing) {
  ASSERT_TRUE(succeeded(etcd_.put("ticket", "t")));
  TxnRequest request;
  request.success = {PutOp{"slot", "s", 0}, DeleteOp{KeyRange::single("ticket")}};
  const auto result = etcd_.txn(request);
  ASSERT_TRUE(succeeded(result));
  EXPECT_TRUE(result->succeeded) << "no compare holds always";
  EXPECT_EQ(std::get<DeleteResult>(result->results.at(1)).deleted, 1);

  request.success = {PutOp{"x", "1", 0}, PutOp{"y", "1", 4711}};
  EXPECT_TRUE(failedWith(etcd_.txn(request), ErrorCode::kLeaseNotFound));
  EXPECT_EQ(etcd_.value("x"), std::nullopt);
  request.success = {PutOp{"x", "1", 0}, PutOp{"x", "2", 0}};
  EXPECT_TRUE(failedWith(etcd_.txn(request), ErrorCode::kOther));
  request.success.assign(129, RangeOp{KeyRange::single("x"), {}});
  EXPECT_TRUE(failedWith(etcd_.txn(request), ErrorCode::kOther));
}

TEST_F(KvTest, ReportsThatTheSpaceIsFull) {
  EtcdServer::Options options;
  options.extra_arguments = {"--quota-backend-bytes=1048576"};
  EtcdServer small(options);
  BlockingClient etcd(small);
  const std::string value(200'000, 'x');
  // etcd sees how much it holds when it next writes to disk, every 100 ms.
  StoreResult<int64_t> last = 0;
  const auto isFull = [&, i = 0]() mutable { return !(last = etcd.put("k" + std::to_string(i++), value)); };
  ASSERT_TRUE(eventually(isFull));
  EXPECT_TRUE(failedWith(last, ErrorCode::kNoSpace));
  EXPECT_TRUE(last.error().ambiguous());
  EXPECT_TRUE(succeeded(etcd.range(KeyRange::single("k0")))) << "reads work";
}

// --- whose answers ---

TEST(ClusterId, EveryAnswerTellsIt) {
  EtcdServer server;
  EtcdServer other;
  BlockingClient etcd(server);
  const auto read = etcd.range(KeyRange::single("k"));
  ASSERT_TRUE(succeeded(read));
  const uint64_t id = read->cluster_id;
  EXPECT_NE(id, 0u);
  TxnRequest request;
  request.success.push_back(RangeOp{KeyRange::single("k"), {}});
  const auto txn = etcd.txn(request);
  ASSERT_TRUE(succeeded(txn));
  EXPECT_EQ(txn->cluster_id, id);
  EXPECT_EQ(std::get<RangeResult>(txn->results.at(0)).cluster_id, id);
  auto watch = etcd.watch(KeyRange::single("k"), 2);
  ASSERT_TRUE(succeeded(watch));
  EXPECT_EQ((*watch)->clusterId(), id);
  ASSERT_TRUE(succeeded(etcd.put("k", "v")));
  const auto batch = etcd.next(*watch);
  ASSERT_TRUE(succeeded(batch));
  EXPECT_EQ(batch->cluster_id, id);

  BlockingClient elsewhere(other);
  const auto another = elsewhere.range(KeyRange::single("k"));
  ASSERT_TRUE(succeeded(another));
  EXPECT_NE(another->cluster_id, id);
}

TEST(ClusterId, AnAnswerOfAnotherClusterIsRefused) {
  EtcdServer server;
  BlockingClient etcd(server);
  RangeOptions options;
  options.cluster_id = etcd.range(KeyRange::single("k"))->cluster_id;
  EXPECT_TRUE(succeeded(etcd.range(KeyRange::single("k"), options)));
  options.cluster_id ^= 1;
  EXPECT_TRUE(failedWith(etcd.range(KeyRange::single("k"), options), ErrorCode::kOtherCluster));
}

TEST(ClusterId, PagesOfTwoClustersAreNotMixed) {
  EtcdServer server;
  EtcdServer other;
  for (const auto* filled : {&server, &other}) {
    BlockingClient writer(*filled);
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(succeeded(writer.put("k" + std::to_string(i), "v")));
  }
  BlockingClient etcd(optionsFor({server.endpoint(), other.endpoint()}));
  int pages = 0;
  auto page = [&](std::vector<KeyValue>&&) {
    if (++pages == 2) server.kill();
    return true;
  };
  const auto revision = await(etcd.thread, rangePaginated(etcd.client, KeyRange::prefix("k"), {}, 3, page));
  EXPECT_TRUE(failedWith(revision, ErrorCode::kUnavailable)) << "the other one is not asked";
  EXPECT_EQ(pages, 2);
}

TEST(ClusterId, TheClusterOfMostEndpointsIsTheOneThatIsUsed) {
  EtcdServer server;
  EtcdServer stranger;
  BlockingClient etcd(server);
  const uint64_t ours = etcd.range(KeyRange::single("k"))->cluster_id;
  const std::string again = "localhost:" + std::to_string(server.clientPort());
  BlockingClient most(optionsFor({stranger.endpoint(), server.endpoint(), again}));
  BlockingClient tie(optionsFor({server.endpoint(), stranger.endpoint()}));
  for (BlockingClient* client : {&most, &tie}) {
    const auto read = client->range(KeyRange::single("k"));
    ASSERT_TRUE(succeeded(read));
    EXPECT_EQ(read->cluster_id, ours);
  }
  ASSERT_TRUE(succeeded(most.put("k", "v")));
  EXPECT_EQ(BlockingClient(stranger).range(KeyRange::single("k"))->kvs.size(), 0u);
}

// --- pages ---

class PagesTest : public ClientTest {
 protected:
  void putKeys(int count, const std::string& value) {
    for (int i = 0; i < count; ++i) {
      char key[16];
      std::snprintf(key, sizeof key, "k%05d", i);
      ASSERT_TRUE(succeeded(etcd_.put(key, value)));
    }
  }

  StoreResult<int64_t> readPages(int64_t page_size, std::function<bool(std::vector<KeyValue>&&)> page,
                                 RangeOptions options = {}) {
    return await(etcd_.thread,
                 rangePaginated(etcd_.client, KeyRange::prefix("k"), options, page_size, std::move(page)));
  }
};

TEST_F(PagesTest, ReadsEveryKeyOnceWhateverThePageSize) {
  putKeys(25, "v");
  for (const int64_t page_size : {1, 5, 7, 24, 25, 26, 0, -1}) {
    std::vector<std::string> keys;
    const auto revision = readPages(page_size, [&](std::vector<KeyValue>&& page) {
      if (page_size > 0) {
        EXPECT_LE(page.size(), static_cast<size_t>(page_size));
      }
      for (auto& kv : page) keys.push_back(kv.key);
      return true;
    });
    ASSERT_TRUE(succeeded(revision));
    EXPECT_EQ(*revision, 26);
    ASSERT_EQ(keys.size(), 25u);
    for (size_t i = 1; i < keys.size(); ++i) EXPECT_LT(keys[i - 1], keys[i]);
  }
}

// etcd counts what is left of the range for every page: a fixed page would make a long range cost its square.
TEST_F(PagesTest, ALongRangeComesInLargerPages) {
  constexpr size_t kKeys = 120'000;
  constexpr size_t kBatch = 120;
  for (size_t first = 0; first < kKeys; first += kBatch) {
    TxnRequest puts;
    for (size_t i = first; i < first + kBatch; ++i) puts.success.push_back(PutOp{"k" + std::to_string(i), "v", 0});
    ASSERT_TRUE(succeeded(etcd_.txn(std::move(puts))));
  }
  std::vector<size_t> pages;
  std::unordered_set<std::string> keys;
  const auto revision = readPages(0, [&](std::vector<KeyValue>&& page) {
    pages.push_back(page.size());
    for (auto& kv : page) keys.insert(std::move(kv.key));
    return true;
  });
  ASSERT_TRUE(succeeded(revision));
  EXPECT_EQ(keys.size(), kKeys);
  EXPECT_EQ(pages.front(), 10'000u);
  EXPECT_EQ(pages.at(1), 12'000u);
  EXPECT_LE(pages.size(), 11u);
}

TEST_F(PagesTest, AnEmptyRangeIsOneEmptyPage) {
  int pages = 0;
  const auto revision = readPages(10, [&](std::vector<KeyValue>&& page) {
    ++pages;
    EXPECT_TRUE(page.empty());
    return true;
  });
  ASSERT_TRUE(succeeded(revision));
  EXPECT_EQ(*revision, 1);
  EXPECT_EQ(pages, 1);
}

TEST_F(PagesTest, StopsWhenAsked) {
  putKeys(10, "v");
  int pages = 0;
  ASSERT_TRUE(succeeded(readPages(3, [&](std::vector<KeyValue>&&) { return ++pages < 2; })));
  EXPECT_EQ(pages, 2);
}

TEST_F(PagesTest, StaysAtOneRevisionWhileOthersWrite) {
  putKeys(20, "old");
  size_t seen = 0;
  const auto revision = readPages(4, [&](std::vector<KeyValue>&& page) {
    for (const auto& kv : page) {
      EXPECT_EQ(kv.value, "old");
      ++seen;
    }
    // A change before, at and behind where the walk is.
    server_.ctl({"put", "k00000", "new"});
    server_.ctl({"put", "k00015", "new"});
    server_.ctl({"del", "k00019"});
    server_.ctl({"put", "k00019x", "new"});
    return true;
  });
  ASSERT_TRUE(succeeded(revision));
  EXPECT_EQ(*revision, 21);
  EXPECT_EQ(seen, 20u);
}

TEST_F(PagesTest, SaysThatTheRevisionWasCompactedBetweenPages) {
  putKeys(20, "v");
  int pages = 0;
  const auto revision = readPages(4, [&](std::vector<KeyValue>&&) {
    if (++pages == 2) {
      server_.ctl({"put", "other", "v"});
      server_.ctl({"compaction", "22"});
    }
    return true;
  });
  EXPECT_TRUE(failedWith(revision, ErrorCode::kCompacted));
  EXPECT_EQ(pages, 2);
}

TEST_F(PagesTest, ShrinksThePageUntilHugeValuesFit) {
  putKeys(70, std::string(1 << 20, 'x'));  // 70 MiB: more than one answer may hold
  const auto at_once = etcd_.range(KeyRange::prefix("k"));
  EXPECT_TRUE(failedWith(at_once, ErrorCode::kTooLarge));
  size_t keys = 0;
  ASSERT_TRUE(succeeded(readPages(100, [&](std::vector<KeyValue>&& page) {
    keys += page.size();
    return true;
  })));
  EXPECT_EQ(keys, 70u);
}

}  // namespace
}  // namespace idetcd::etcd
