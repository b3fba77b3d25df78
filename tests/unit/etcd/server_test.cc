// What a server passes on of a store, as a client of it sees it.
#include "etcd/server.h"

#include <arpa/inet.h>
#include <memory>
#include <string>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "client_fixture.h"

namespace idetcd::etcd {
namespace {

class ServerTest : public ClientTest {
 protected:
  ~ServerTest() override { close(); }

  Server& serve(size_t max_calls = 256) {
    Server::Options options;
    options.max_calls = max_calls;
    return serve(options);
  }
  Server& serve(Server::Options options) {
    options.addresses = {IpAddress::parse("127.0.0.1").value()};
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

  // A stranger's, who says nothing.
  static FileDescriptor connect(const Server& server) {
    const std::string& endpoint = server.endpoints().front();
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1))));
    FileDescriptor made(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return made;
  }
  // Waits for the other end.
  static bool isClosed(const FileDescriptor& connection) {
    char byte = 0;
    return ::recv(connection.get(), &byte, 1, 0) <= 0;
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

TEST_F(ServerTest, ConnectionsBeyondItsBoundAreClosed) {
  Server::Options options;
  options.max_connections = 2;
  options.handshake = 60s;
  const Server& server = serve(options);
  const FileDescriptor first = connect(server);
  {
    const FileDescriptor second = connect(server);
    EXPECT_TRUE(isClosed(connect(server)));
    EXPECT_EQ(test_support::sumOf(metrics_, "idetcd_relay_closed_connections_total"), 1);
  }
  // Room that a stranger has left is there for others.
  BlockingClient reader(pinned(server));
  EXPECT_TRUE(eventually([&] { return reader.range({"a", "b"}).has_value(); }));
}

TEST_F(ServerTest, AHandshakeThatDoesNotComeIsNotWaitedFor) {
  Server::Options options;
  options.handshake = 1s;
  EXPECT_TRUE(isClosed(connect(serve(options))));
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
