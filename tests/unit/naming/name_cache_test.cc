// A copy of the names, as those see it who take their names from it, over a real etcd.
#include "naming/name_cache.h"

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "etcd/client.h"
#include "naming/keyspace.h"
#include "support/etcd_server.h"
#include "support/eventually.h"
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

class NameCacheTest : public testing::Test {
 protected:
  explicit NameCacheTest(bool over_proxy = false) {
    etcd::Client::Options options;
    if (over_proxy) proxy_ = std::make_unique<TcpProxy>(server_.clientPort());
    options.endpoints = {proxy_ ? proxy_->endpoint() : server_.endpoint()};
    client_ = std::make_unique<etcd::Client>(*thread_, options, Logger());
    cache_ = std::make_shared<NameCache>(*thread_, *client_, jitter_, std::vector{watchedRange()}, Logger());
  }
  ~NameCacheTest() override {
    onThread(*thread_, [this] {
      cache_->stop();
      stream_.reset();
    });
    thread_->stop();
  }

  void run() { thread_->spawn(cache_->run()); }
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
  EXPECT_EQ(names(before + 2)->kvs.front().key, "b.");
  ASSERT_EQ(watch(before + 1), ErrorCode::kOther);
  EXPECT_EQ(changes(2), (std::vector<std::string>{"no a.", "3 at c."}));
  ASSERT_EQ(watch(before + 2), ErrorCode::kOther);
  EXPECT_EQ(changes(1), std::vector<std::string>{"3 at c."});
  // What was before it began, it does not have.
  EXPECT_EQ(watch(before), ErrorCode::kCompacted);
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
  EXPECT_TRUE(names(beyond));
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

TEST_F(NameCacheTest, WhatIsForgottenIsReadAnew) {
  server_.ctl({"put", "a.", "1"});
  run();
  const int64_t before = revision();
  ASSERT_TRUE(names(before));
  ASSERT_EQ(watch(before + 1), ErrorCode::kOther);
  onThread(*thread_, [this] { cache_->forget(); });
  while (next()) {
  }
  server_.ctl({"put", "b.", "2"});
  EXPECT_TRUE(eventually([&] { return names(before + 1).has_value(); }));
  EXPECT_TRUE(eventually([&] { return watch(before + 1) == ErrorCode::kCompacted; })) << "it has begun later";
}

}  // namespace
}  // namespace idetcd::naming
