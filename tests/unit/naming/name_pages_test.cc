#include "naming/name_pages.h"

#include <future>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "etcd/client.h"
#include "naming/keyspace.h"
#include "support/etcd_server.h"

namespace idetcd::naming {
namespace {

using test_support::EtcdServer;

class NamePagesTest : public testing::Test {
 protected:
  ~NamePagesTest() override { thread_.stop(); }

  runtime::Task<void> put(std::vector<std::string> keys, std::promise<void>& done) {
    for (size_t next = 0; next < keys.size();) {
      store::TxnRequest request;
      for (; next < keys.size() && request.success.size() < 100; ++next)
        request.success.emplace_back(store::PutOp{keys[next], "{}", 0});
      auto txn = client_.txn(std::move(request));
      const auto result = co_await txn;
      EXPECT_TRUE(result);
    }
    done.set_value();
  }
  void put(const std::string& prefix, int count, const std::string& suffix) {
    std::vector<std::string> keys;
    for (int i = 0; i < count; ++i) keys.push_back(prefix + std::to_string(100'000 + i) + suffix);
    std::promise<void> done;
    thread_.spawn(put(std::move(keys), done));
    done.get_future().wait();
  }

  runtime::Task<void> read(std::vector<store::KeyRange> ranges, std::promise<void>& done) {
    auto page = [this](std::vector<store::KeyValue>&& kvs) {
      ++pages_;
      for (const store::KeyValue& kv : kvs) isPath(kv.key) ? ++paths_ : ++names_;
      return true;
    };
    auto reading = readNamePages(client_, std::move(ranges), {}, 0, std::move(page));
    const auto result = co_await reading;
    EXPECT_TRUE(result);
    done.set_value();
  }
  void read(std::vector<store::KeyRange> ranges) {
    pages_ = names_ = paths_ = 0;
    std::promise<void> done;
    thread_.spawn(read(std::move(ranges), done));
    done.get_future().wait();
  }

  EtcdServer server_;
  const std::unique_ptr<etcd::CompletionThread> owned_thread_ = etcd::CompletionThread::make().value();
  etcd::CompletionThread& thread_ = *owned_thread_;
  etcd::Client client_{thread_, {.endpoints = {server_.endpoint()}, .tls = {}, .credentials = {}, .pinned = {}}, {}};
  int pages_ = 0;
  int names_ = 0;
  int paths_ = 0;
};

TEST_F(NamePagesTest, LeapsOverWhatIsBelowAPath) {
  put("host", 700, ".x.");
  put("other/", 20'000, "");
  put("worker", 50, ".x.");
  put("zoo/", 3'000, "");
  read({watchedRange()});
  EXPECT_EQ(names_, 750);
  EXPECT_LE(pages_, 6);
  EXPECT_LE(paths_, 5'000);
}

TEST_F(NamePagesTest, ManySmallPathsCostFewRequests) {
  for (int i = 0; i < 60; ++i) put("dir" + std::to_string(i) + "/", 100, "");
  put("worker", 50, ".x.");
  read({watchedRange()});
  EXPECT_EQ(names_, 50);
  EXPECT_LE(pages_, 8);
}

TEST_F(NamePagesTest, NamesAloneAreReadInLargePages) {
  put("host", 12'000, ".x.");
  read({watchedRange()});
  EXPECT_EQ(names_, 12'000);
  EXPECT_LE(pages_, 4);
}

TEST_F(NamePagesTest, AKeyBesideAPathIsNotLeaptOver) {
  put("other/", 300, "");
  put("other0", 1, ".x.");
  put("other-", 1, ".x.");
  put("other", 1, ".x.");
  read({watchedRange()});
  EXPECT_EQ(names_, 3);
}

TEST_F(NamePagesTest, SeveralRangesAndNothingBeside) {
  put("a", 10, ".x.");
  put("b", 10, ".x.");
  put("c", 10, ".x.");
  put("c/", 300, "");
  read({store::KeyRange::prefix("a"), store::KeyRange::prefix("c")});
  EXPECT_EQ(names_, 20);
  read({store::KeyRange{"b", "c0"}});
  EXPECT_EQ(names_, 10) << "the leap ends at the end of the range";
}

}  // namespace
}  // namespace idetcd::naming
