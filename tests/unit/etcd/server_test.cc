// What a server passes on of a store, as a client of it sees it.
#include "etcd/server.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client_fixture.h"

namespace idetcd::etcd {
namespace {

class ServerTest : public ClientTest {
 protected:
  ~ServerTest() override { close(); }

  Server& serve(size_t max_calls = 256) {
    Server::Options options;
    options.addresses = {IpAddress::parse("127.0.0.1").value()};
    options.max_calls = max_calls;
    options.metrics = metrics_.scope();
    auto make = [this, &options]() -> Task<bool> {
      auto made = Server::make(etcd_.thread, source_, options, Logger());
      if (made) server_of_names_ = std::move(*made);
      co_return made.has_value();
    };
    EXPECT_TRUE(await(etcd_.thread, make()));
    return *server_of_names_;
  }
  void close() {
    auto end = [this]() -> Task<void> {
      server_of_names_.reset();
      co_return;
    };
    await(etcd_.thread, end());
  }

  static Client::Options pinned(const Server& server) {
    Client::Options options;
    options.endpoints = server.endpoints();
    options.pinned = {.certificate = server.certificate(), .token = server.token()};
    options.call_timeout = 60s;
    return options;
  }
  uint64_t refused() const {
    return static_cast<uint64_t>(test_support::sumOf(metrics_, "idetcd_relay_refused_total"));
  }

  const metrics::Registry metrics_;
  const std::shared_ptr<store::Source> source_{std::shared_ptr<void>(), &etcd_.client};
  std::unique_ptr<Server> server_of_names_;
};

TEST_F(ServerTest, PassesOnRangesAndWatches) {
  ASSERT_TRUE(succeeded(etcd_.put("a", "1")));
  const auto second = etcd_.put("b", "2");
  ASSERT_TRUE(succeeded(second));
  BlockingClient reader(pinned(serve()));
  const auto both = reader.range({"a", "c"});
  ASSERT_TRUE(succeeded(both));
  ASSERT_EQ(both->kvs.size(), 2u);
  EXPECT_EQ(both->kvs[1].key, "b");
  EXPECT_EQ(both->kvs[1].value, "2");
  EXPECT_EQ(both->kvs[1].mod_revision, *second);
  EXPECT_EQ(both->revision, *second);
  EXPECT_EQ(both->cluster_id, etcd_.range({"a", "c"})->cluster_id);
  const auto one = reader.range({"a", "c"}, {.revision = *second, .limit = 1});
  ASSERT_TRUE(succeeded(one));
  EXPECT_TRUE(one->more);
  EXPECT_EQ(one->count, 2);

  auto watch = reader.watch({"a", "c"}, *second);
  ASSERT_TRUE(succeeded(watch));
  EXPECT_EQ((*watch)->createdRevision(), *second);
  EXPECT_EQ((*watch)->clusterId(), both->cluster_id);
  ASSERT_TRUE(succeeded(etcd_.remove(KeyRange::single("a"))));
  std::vector<WatchEvent> seen;
  while (seen.size() < 2) {
    const auto batch = reader.next(watch.value());
    ASSERT_TRUE(succeeded(batch));
    seen.insert(seen.end(), batch->events.begin(), batch->events.end());
    if (!batch->events.empty()) {
      EXPECT_EQ(batch->resume_revision, seen.back().kv.mod_revision + 1);
    }
  }
  EXPECT_EQ(seen[0].kv.key, "b");
  EXPECT_EQ(seen[0].kv.value, "2");
  EXPECT_EQ(seen[1].type, WatchEvent::Type::kDelete);
  EXPECT_EQ(seen[1].kv.key, "a");
}

TEST_F(ServerTest, PassesOnProgress) {
  BlockingClient reader(pinned(serve()));
  auto watch = reader.watch(KeyRange::prefix("a"), 2);
  ASSERT_TRUE(succeeded(watch));
  const auto other = etcd_.put("z", "of no interest");
  ASSERT_TRUE(succeeded(other));
  reader.thread.post([&watch] { (*watch)->doubt(60s); });
  for (int64_t revision = 0; revision < *other;) {
    const auto batch = reader.next(*watch, 60s);
    ASSERT_TRUE(succeeded(batch));
    EXPECT_TRUE(batch->events.empty());
    revision = batch->revision;
  }
}

TEST_F(ServerTest, ACompactedRevisionIsSaid) {
  ASSERT_TRUE(succeeded(etcd_.put("a", "1")));
  const auto second = etcd_.put("a", "2");
  ASSERT_TRUE(succeeded(second));
  server_.ctl({"compaction", std::to_string(*second)});
  BlockingClient reader(pinned(serve()));
  EXPECT_TRUE(failedWith(reader.range({"a", "b"}, {.revision = 2}), ErrorCode::kCompacted));
  auto watch = reader.watch({"a", "b"}, 2);
  EXPECT_TRUE(failedWith(watch, ErrorCode::kCompacted) ||
              failedWith(reader.next(watch.value()), ErrorCode::kCompacted));
}

TEST_F(ServerTest, WithoutTheTokenNothingIsRead) {
  const Server& server = serve();
  Client::Options options = pinned(server);
  options.pinned->token.back() ^= 1;
  BlockingClient stranger(options);
  EXPECT_FALSE(stranger.range({"a", "b"}));
  EXPECT_FALSE(stranger.watch({"a", "b"}, 2));
  EXPECT_GE(refused(), 1u);
  options.pinned->token.clear();
  BlockingClient without(options);
  EXPECT_FALSE(without.range({"a", "b"}));
}

TEST_F(ServerTest, AnotherCertificateIsNotTrusted) {
  Client::Options first = pinned(serve());
  const std::string certificate = first.pinned->certificate;
  close();
  Client::Options second = pinned(serve());
  EXPECT_NE(second.pinned->certificate, certificate);
  second.pinned->certificate = certificate;
  second.call_timeout = 2s;
  BlockingClient misled(second);
  EXPECT_FALSE(misled.range({"a", "b"}));
  EXPECT_EQ(refused(), 0u);
}

TEST_F(ServerTest, NothingIsWritten) {
  BlockingClient reader(pinned(serve()));
  EXPECT_FALSE(reader.put("a", "1"));
  EXPECT_FALSE(reader.grant(5s));
  EXPECT_FALSE(etcd_.value("a"));
}

TEST_F(ServerTest, MoreThanItMayServeAreRefused) {
  const Server& server = serve(1);
  BlockingClient first(pinned(server));
  auto watch = first.watch({"a", "b"}, 2);
  ASSERT_TRUE(succeeded(watch));
  BlockingClient second(pinned(server));
  EXPECT_FALSE(second.watch({"a", "b"}, 2));
  EXPECT_GE(refused(), 1u);
}

TEST_F(ServerTest, ItsEndEndsWatches) {
  BlockingClient reader(pinned(serve()));
  auto watch = reader.watch({"a", "b"}, 2);
  ASSERT_TRUE(succeeded(watch));
  close();
  EXPECT_TRUE(failedWith(reader.next(*watch, 60s), ErrorCode::kUnavailable));
}

TEST_F(ServerTest, AReaderThatGoesIsForgotten) {
  const Server& server = serve();
  const auto watches = [&] {
    auto ask = [&]() -> Task<size_t> { co_return server.watches(); };
    return await(etcd_.thread, ask());
  };
  {
    BlockingClient reader(pinned(server));
    auto watch = reader.watch({"a", "b"}, 2);
    ASSERT_TRUE(succeeded(watch));
    EXPECT_EQ(watches(), 1u);
  }
  EXPECT_TRUE(eventually([&] { return watches() == 0; }));
}

}  // namespace
}  // namespace idetcd::etcd
