// A copy of the names, as those see it who take their names from it, over a real etcd.
#include "naming/name_cache.h"

#include <future>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "etcd/client.h"
#include "naming/keyspace.h"
#include "naming/name_pages.h"
#include "support/etcd_server.h"
#include "support/eventually.h"
#include "unit/naming/forwarding_store.h"
#include "unit/naming/on_thread.h"
#include "unit/naming/tcp_proxy.h"

namespace idetcd::naming {
namespace {

using namespace std::chrono_literals;
using runtime::Task;
using store::StoreResult;
using test_support::EtcdServer;

template <typename T>
Task<void> fulfilled(std::shared_ptr<std::promise<T>> promise, Task<T> task) {
  T value = co_await task;
  promise->set_value(std::move(value));
}

// Its watch does not deliver the next change of one key.
class LosingStore final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  Task<StoreResult<std::unique_ptr<store::WatchStream>>> watch(std::vector<store::WatchRange> ranges) override {
    auto opened = co_await client_.watch(std::move(ranges));
    if (!opened) co_return tl::unexpected(opened.error());
    co_return std::make_unique<Stream>(lost, std::move(*opened));
  }
  std::string lost;

 private:
  class Stream final : public store::WatchStream {
   public:
    Stream(std::string& lost, std::unique_ptr<store::WatchStream> inner) : lost_(lost), inner_(std::move(inner)) {}
    Task<StoreResult<store::WatchBatch>> next(std::chrono::nanoseconds timeout) override {
      while (true) {
        auto batch = co_await inner_->next(timeout);
        if (!batch) co_return std::move(batch);
        if (batch->events.empty() && lost_at_ > 0) batch->resume_revision = std::min(batch->resume_revision, lost_at_);
        if (batch->events.empty() || batch->events.front().kv.key != lost_) co_return std::move(batch);
        lost_.clear();
        lost_at_ = batch->events.front().kv.mod_revision;
      }
    }
    int64_t createdRevision() const override { return inner_->createdRevision(); }
    uint64_t clusterId() const override { return inner_->clusterId(); }
    bool isAtCurrentEndpoint() const override { return inner_->isAtCurrentEndpoint(); }
    void doubt(std::chrono::nanoseconds patience) override { inner_->doubt(patience); }
    void leave(const std::string& why) override { inner_->leave(why); }

   private:
    std::string& lost_;
    int64_t lost_at_ = 0;  // 0: nothing yet
    const std::unique_ptr<store::WatchStream> inner_;
  };
};

class NameCacheTest : public testing::Test {
 protected:
  explicit NameCacheTest(bool over_proxy = false) {
    etcd::Client::Options options;
    if (over_proxy) proxy_ = std::make_unique<TcpProxy>(server_.clientPort());
    options.endpoints = {proxy_ ? proxy_->endpoint() : server_.endpoint()};
    client_ = std::make_unique<etcd::Client>(*thread_, options, Logger());
    store_ = std::make_unique<LosingStore>(*client_);
    cache_ = std::make_shared<NameCache>(*thread_, *store_, jitter_, std::vector{watchedRange()}, Logger());
  }
  ~NameCacheTest() override {
    onThread(*thread_, [this] {
      cache_->stop();
      stream_.reset();
    });
    thread_->stop();
  }

  void run() {
    thread_->spawn(cache_->run());
    EXPECT_TRUE(eventually([this] {
      bool is_ready = false;
      onThread(*thread_, [&] { is_ready = cache_->isReady(); });
      return is_ready;
    }));
  }
  template <typename T>
  T await(Task<T> task) {
    auto promise = std::make_shared<std::promise<T>>();
    auto value = promise->get_future();
    thread_->spawn(fulfilled<T>(promise, std::move(task)));
    return value.get();
  }
  StoreResult<store::RangeResult> names(int64_t revision = 0, int64_t limit = 0) {
    return await(cache_->range(watchedRange(), {.revision = revision, .limit = limit}));
  }
  bool reaches(int64_t revision) {
    return eventually([&] { return names(revision).has_value(); });
  }
  ErrorCode watch(int64_t start) {
    std::vector<store::WatchRange> ranges{{watchedRange(), start}};
    auto opened = await(cache_->watch(std::move(ranges)));
    if (!opened) return opened.error().code;
    onThread(*thread_, [&] { stream_ = std::move(*opened); });
    return ErrorCode::kOther;
  }
  StoreResult<store::WatchBatch> next() { return await(stream_->next(60s)); }
  // Of `count` changes, as text.
  std::vector<std::string> changes(size_t count) {
    std::vector<std::string> seen;
    while (seen.size() < count) {
      const auto batch = next();
      if (!batch) {
        seen.push_back(batch.error().message);
        break;
      }
      for (const store::WatchEvent& event : batch->events) {
        const bool is_put = event.type == store::WatchEvent::Type::kPut;
        seen.push_back((is_put ? event.kv.value + " at " : "no ") + event.kv.key);
      }
    }
    return seen;
  }
  int64_t revision() { return await(client_->range(store::KeyRange::single("a"), {}))->revision; }

  EtcdServer server_;
  std::unique_ptr<TcpProxy> proxy_;
  const std::unique_ptr<etcd::CompletionThread> thread_ = etcd::CompletionThread::make().value();
  KernelRandom random_;
  Jitter jitter_{random_};
  std::unique_ptr<etcd::Client> client_;
  std::unique_ptr<LosingStore> store_;
  std::shared_ptr<NameCache> cache_;
  std::unique_ptr<store::WatchStream> stream_;
};

TEST_F(NameCacheTest, HasNamesAndTheirChanges) {
  server_.ctl({"put", "a.", "1"});
  server_.ctl({"put", "b.", "2"});
  server_.ctl({"put", "registry/pods", "no name"});
  const int64_t before = revision();
  run();
  const auto all = names(before);
  ASSERT_TRUE(all);
  ASSERT_EQ(all->kvs.size(), 2u);
  EXPECT_EQ(all->kvs[1].key, "b.");
  EXPECT_EQ(all->count, 2);
  EXPECT_EQ(all->revision, before);
  EXPECT_EQ(names(before, 1)->kvs.size(), 1u);
  EXPECT_TRUE(names(before, 1)->more);

  ASSERT_EQ(watch(before + 1), ErrorCode::kOther);
  EXPECT_EQ(stream_->createdRevision(), before);
  server_.ctl({"del", "a."});
  server_.ctl({"put", "c.", "3"});
  EXPECT_EQ(changes(2), (std::vector<std::string>{"no a.", "3 at c."}));
  // A later reader has them too, and who comes from before them.
  ASSERT_TRUE(reaches(before + 2));
  EXPECT_EQ(names(before + 2)->kvs.front().key, "b.");
  ASSERT_EQ(watch(before + 1), ErrorCode::kOther);
  EXPECT_EQ(changes(2), (std::vector<std::string>{"no a.", "3 at c."}));
  ASSERT_EQ(watch(before + 2), ErrorCode::kOther);
  EXPECT_EQ(changes(1), std::vector<std::string>{"3 at c."});
  // What was before it began, it does not have.
  EXPECT_EQ(watch(before), ErrorCode::kCompacted);
}

TEST_F(NameCacheTest, PagesAreSmall) {
  constexpr int kNames = 1500;
  for (int first = 0; first < kNames; first += 100) {
    store::TxnRequest puts;
    for (int i = first; i < first + 100; ++i) puts.success.emplace_back(store::PutOp{fmt::format("{:04}.", i), "x", 0});
    ASSERT_TRUE(await(client_->txn(std::move(puts))));
  }
  run();
  const auto page = names(revision());
  ASSERT_TRUE(page);
  EXPECT_EQ(page->kvs.size(), 1000u);
  EXPECT_TRUE(page->more);
  EXPECT_GE(page->count, kNames);
  std::set<std::string> all;
  const auto take = [&all](std::vector<store::KeyValue>&& kvs) {
    for (const store::KeyValue& kv : kvs) all.insert(kv.key);
    return true;
  };
  ASSERT_TRUE(await(readNamePages(*cache_, {watchedRange()}, {.revision = revision()}, 0, take)));
  EXPECT_EQ(all.size(), static_cast<size_t>(kNames));
}

TEST_F(NameCacheTest, SaysNothingOfARevisionThatItHasNotReached) {
  server_.ctl({"put", "a.", "1"});
  run();
  ASSERT_TRUE(names(revision()));
  const int64_t beyond = revision() + 1;
  EXPECT_EQ(names(beyond).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(watch(beyond + 1), ErrorCode::kUnavailable);
  // Others have written meanwhile: nothing shows that there was no name among that, but a later one.
  server_.ctl({"put", "/elsewhere", "x"});
  EXPECT_EQ(names(beyond).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(watch(beyond + 1), ErrorCode::kOther);
  server_.ctl({"put", "b.", "2"});
  EXPECT_TRUE(reaches(beyond));
}

TEST_F(NameCacheTest, AProgressRequestIsAnsweredByTheStore) {
  run();
  ASSERT_TRUE(names(revision()));
  ASSERT_EQ(watch(revision() + 1), ErrorCode::kOther);
  server_.ctl({"put", "/elsewhere", "x"});
  const int64_t now = revision();
  onThread(*thread_, [this] { stream_->doubt(60s); });
  while (next()->revision < now) {
  }
}

class NameCacheBreakTest : public NameCacheTest {
 protected:
  NameCacheBreakTest() : NameCacheTest(true) {}
};

TEST_F(NameCacheBreakTest, ABreakEndsReadersAndLosesNothing) {
  server_.ctl({"put", "a.", "1"});
  run();
  const int64_t before = revision();
  ASSERT_TRUE(names(before));
  ASSERT_EQ(watch(before + 1), ErrorCode::kOther);
  proxy_->cut();
  EXPECT_EQ(next().error().code, ErrorCode::kUnavailable);
  proxy_->restore();
  server_.ctl({"put", "b.", "2"});
  EXPECT_TRUE(eventually([&] { return watch(before + 1) == ErrorCode::kOther; }));
  EXPECT_EQ(changes(1), std::vector<std::string>{"2 at b."});
}

TEST_F(NameCacheTest, WhatTheWatchHasLostSilentlyIsFound) {
  server_.ctl({"put", "a.", "1"});
  run();
  thread_->spawn(cache_->checkRegularly());
  const int64_t before = revision();
  ASSERT_TRUE(names(before));
  ASSERT_EQ(watch(before + 1), ErrorCode::kOther);
  onThread(*thread_, [this] { store_->lost = "b."; });
  server_.ctl({"put", "b.", "2"});
  EXPECT_TRUE(eventually([this] { return !next(); })) << "the reader goes on with what it has";
  EXPECT_TRUE(eventually([&] { return watch(before + 1) == ErrorCode::kOther; }));
  EXPECT_EQ(changes(1), std::vector<std::string>{"2 at b."});
  EXPECT_TRUE(reaches(before + 1));
}

TEST_F(NameCacheTest, WhatIsForgottenIsReadAnew) {
  server_.ctl({"put", "a.", "1"});
  run();
  const int64_t before = revision();
  ASSERT_TRUE(names(before));
  server_.ctl({"put", "b.", "2"});
  ASSERT_TRUE(reaches(before + 1));
  ASSERT_EQ(watch(before + 1), ErrorCode::kOther);
  onThread(*thread_, [this] { cache_->forget(); });
  EXPECT_TRUE(eventually([this] { return !next(); }));
  EXPECT_TRUE(eventually([&] { return watch(before + 1) == ErrorCode::kCompacted; })) << "it has begun later";
  EXPECT_TRUE(reaches(before + 1));
}

}  // namespace
}  // namespace idetcd::naming
