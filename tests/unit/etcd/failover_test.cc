#include <arpa/inet.h>
#include <atomic>
#include <cstdlib>
#include <map>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "../naming/tcp_proxy.h"
#include "client_fixture.h"
#include "client_insight.h"

namespace idetcd::etcd {
namespace {

// A socket on a free port of 127.0.0.1.
class BoundSocket {
 public:
  explicit BoundSocket(int flags = 0) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    void* const pointer = &address;
    EXPECT_EQ(::bind(fd_, static_cast<sockaddr*>(pointer), length), 0);
    EXPECT_EQ(::getsockname(fd_, static_cast<sockaddr*>(pointer), &length), 0);
    port_ = ntohs(address.sin_port);
  }
  ~BoundSocket() { ::close(fd_); }
  BoundSocket(const BoundSocket&) = delete;
  BoundSocket& operator=(const BoundSocket&) = delete;

  int fd() const { return fd_; }
  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }
  void listen() const { EXPECT_EQ(::listen(fd_, 16), 0); }

 private:
  int fd_;
  uint16_t port_ = 0;
};

// A port that refuses connections (bound, not listening), or, if it listens, takes them and never answers.
class DeadPort {
 public:
  enum class Kind { kRefuses, kSilent };
  explicit DeadPort(Kind kind) {
    if (kind == Kind::kSilent) socket_.listen();
  }
  std::string endpoint() const { return socket_.endpoint(); }

 private:
  const BoundSocket socket_;
};

// Takes connections, closes them at once and counts them.
class RudePort {
 public:
  RudePort() { socket_.listen(); }
  std::string endpoint() const { return socket_.endpoint(); }

  void closeWhatCame() {
    for (int peer = accept(); peer >= 0; peer = accept()) {
      ::close(peer);
      ++connections_;
    }
  }
  int connections() const { return connections_; }

 private:
  int accept() const { return ::accept(socket_.fd(), nullptr, nullptr); }

  const BoundSocket socket_{SOCK_NONBLOCK};
  int connections_ = 0;
};

template <typename Call>
auto retryFor(BlockingClient& etcd, std::chrono::seconds limit, Call call) {
  const auto deadline = SteadyClock::now() + limit;
  auto result = call();
  while (!result && SteadyClock::now() < deadline) {
    await(etcd.thread, etcd.thread.sleepFor(10ms));
    result = call();
  }
  return result;
}

TEST(Failover, ARefusedConnectionCostsNothingNotEvenForWrites) {
  EtcdServer server;
  const DeadPort first(DeadPort::Kind::kRefuses);
  const DeadPort second(DeadPort::Kind::kRefuses);
  BlockingClient etcd(optionsFor({first.endpoint(), "http://" + second.endpoint(), server.endpoint()}));
  EXPECT_EQ(ClientInsight::currentEndpoint(etcd.client), first.endpoint());
  const auto begin = SteadyClock::now();
  ASSERT_TRUE(succeeded(etcd.put("k", "v"))) << "what was certainly not sent goes on to the next";
  EXPECT_LT(SteadyClock::now() - begin, Client::Options{}.call_timeout);
  EXPECT_EQ(ClientInsight::currentEndpoint(etcd.client), "127.0.0.1:" + std::to_string(server.clientPort()));
  EXPECT_EQ(etcd.value("k"), "v");
}

TEST(Failover, AConnectionToAMemberOfAFoundedClusterOutlastsTheCallsThatWaitForIt) {
  const BoundSocket slow(SOCK_NONBLOCK);
  slow.listen();
  Client::Options options = optionsFor({slow.endpoint()});
  options.self_founded = true;
  options.call_timeout = 200ms;
  BlockingClient etcd(std::move(options));
  for (const auto begin = SteadyClock::now(); SteadyClock::now() - begin < 3s;) EXPECT_FALSE(etcd.put("k", "v"));
  int connections = 0;
  for (int peer = ::accept(slow.fd(), nullptr, nullptr); peer >= 0; peer = ::accept(slow.fd(), nullptr, nullptr)) {
    ::close(peer);
    ++connections;
  }
  EXPECT_EQ(connections, 1);
}

TEST(Failover, EveryKindOfCallFindsTheLivingEndpoint) {
  EtcdServer server;
  const auto fresh = [&](const DeadPort& dead) { return optionsFor({dead.endpoint(), server.endpoint()}); };
  const DeadPort dead(DeadPort::Kind::kRefuses);
  {
    BlockingClient etcd(fresh(dead));
    EXPECT_TRUE(succeeded(etcd.range(KeyRange::single("k"))));
  }
  {
    BlockingClient etcd(fresh(dead));
    EXPECT_TRUE(succeeded(etcd.watch(KeyRange::single("k"), 2)));
  }
  {
    BlockingClient etcd(fresh(dead));
    EXPECT_TRUE(succeeded(etcd.txn({})));
  }
  BlockingClient etcd(fresh(dead));
  const auto lease = etcd.grant(30s);
  ASSERT_TRUE(succeeded(lease));
  {
    BlockingClient keeper(fresh(dead));
    EXPECT_TRUE(succeeded(keeper.keepAlive(lease->id)));
  }
  BlockingClient revoker(fresh(dead));
  EXPECT_TRUE(succeeded(revoker.revoke(lease->id)));
}

TEST(Failover, ASilentEndpointCostsTheTimeOutOnce) {
  EtcdServer server;
  const DeadPort silent(DeadPort::Kind::kSilent);
  auto options = optionsFor({silent.endpoint(), server.endpoint()});
  options.call_timeout = 10s;
  BlockingClient etcd(options);
  auto begin = SteadyClock::now();
  EXPECT_TRUE(succeeded(etcd.range(KeyRange::single("k"))));
  EXPECT_GE(SteadyClock::now() - begin, 9990ms);
  begin = SteadyClock::now();
  EXPECT_TRUE(succeeded(etcd.range(KeyRange::single("k"))));
  EXPECT_LT(SteadyClock::now() - begin, 9990ms);
}

TEST(Failover, WithEveryEndpointAwayCallsFailAtOnceAndUnambiguously) {
  const DeadPort first(DeadPort::Kind::kRefuses);
  const DeadPort second(DeadPort::Kind::kRefuses);
  BlockingClient etcd(optionsFor({first.endpoint(), second.endpoint()}));
  const auto begin = SteadyClock::now();
  for (int i = 0; i < 5; ++i) {
    const auto read = etcd.range(KeyRange::single("k"));
    EXPECT_TRUE(failedWith(read, ErrorCode::kUnavailable));
    const auto write = etcd.put("k", "v");
    EXPECT_TRUE(failedWith(write, ErrorCode::kUnavailable));
    EXPECT_FALSE(write.error().ambiguous()) << "nothing was sent";
    EXPECT_FALSE(write.error().message.empty());
    EXPECT_TRUE(failedWith(etcd.watch(KeyRange::single("k"), 1), ErrorCode::kUnavailable));
    EXPECT_TRUE(failedWith(etcd.keepAlive(1), ErrorCode::kUnavailable));
    EXPECT_TRUE(failedWith(etcd.revoke(1), ErrorCode::kUnavailable));
  }
  EXPECT_LT(SteadyClock::now() - begin, 2 * Client::Options{}.call_timeout) << "of 25 calls";
}

TEST(Failover, FindsAServerThatComesBack) {
  EtcdServer server;
  BlockingClient etcd(server);
  ASSERT_TRUE(succeeded(etcd.put("k", "1")));
  server.kill();
  EXPECT_FALSE(etcd.put("k", "2"));
  // Away long enough for the back-off to have grown to its maximum.
  const auto away_until = SteadyClock::now() + 4s;
  while (SteadyClock::now() < away_until) {
    EXPECT_FALSE(etcd.range(KeyRange::single("k")));
    await(etcd.thread, etcd.thread.sleepFor(50ms));
  }
  server.start();
  EXPECT_TRUE(succeeded(retryFor(etcd, 10s, [&] { return etcd.range(KeyRange::single("k")); })));
  EXPECT_EQ(etcd.value("k"), "1");
}

TEST(Failover, FindsAServerThatStartsLate) {
  EtcdServer server;
  server.stop();
  BlockingClient etcd(optionsFor({"localhost:" + std::to_string(server.clientPort())}));
  EXPECT_TRUE(failedWith(etcd.put("k", "v"), ErrorCode::kUnavailable));
  server.start();
  EXPECT_TRUE(succeeded(retryFor(etcd, 20s, [&] { return etcd.put("k", "v"); })));
}

TEST(Failover, APausedServerIsATimeOutAndTheWriteIsAmbiguous) {
  EtcdServer server;
  ASSERT_TRUE(succeeded(BlockingClient(server).put("k", "1")));  // which may take longer than the other's time-out
  auto options = optionsFor({server.endpoint()});
  options.call_timeout = 1s;
  BlockingClient etcd(options);
  const auto connected = retryFor(etcd, 60s, [&] { return etcd.range(KeyRange::single("k")); });
  ASSERT_TRUE(succeeded(connected));
  server.pause();
  const auto write = etcd.put("k", "2");
  EXPECT_TRUE(failedWith(write, ErrorCode::kDeadlineExceeded));
  EXPECT_TRUE(write.error().ambiguous());
  server.resume();
  const auto value = retryFor(etcd, 20s, [&] { return etcd.value("k"); });
  EXPECT_TRUE(value == "1" || value == "2");
}

TEST(Failover, AWriteThatDiesWithItsConnectionIsAmbiguousAndNotRepeated) {
  EtcdServer server;
  EtcdServer other;
  naming::TcpProxy proxy(server.clientPort());
  auto options = optionsFor({proxy.endpoint(), other.endpoint()});
  options.call_timeout = 60s;
  BlockingClient etcd(options);
  ASSERT_TRUE(succeeded(etcd.put("k", "1")));
  std::atomic<bool> is_sent = false;
  proxy.setFilter([&is_sent](std::string_view bytes) {
    if (bytes.find("the second") != std::string_view::npos) is_sent = true;
    return true;
  });
  server.pause();
  auto write = start(etcd.thread, put(etcd.client, {"k", "the second", 0}));
  ASSERT_TRUE(eventually([&is_sent] { return is_sent.load(); }));
  EXPECT_EQ(write.wait_for(0s), std::future_status::timeout);
  server.kill();
  const auto result = write.get();
  EXPECT_TRUE(failedWith(result, ErrorCode::kUnavailable));
  EXPECT_TRUE(result.error().ambiguous());
  EXPECT_EQ(etcd.value("k"), std::nullopt) << "the next call goes to the other server, which never got the write";
}

TEST(Failover, AnEndpointOfAnotherClusterIsSaidToBeUnused) {
  EtcdServer server;
  EtcdServer stranger;
  BlockingClient etcd(optionsFor({server.endpoint(), stranger.endpoint()}));
  EXPECT_TRUE(etcd.client.unusedEndpoints().empty());
  ASSERT_TRUE(succeeded(etcd.put("k", "v")));
  const std::vector<Store::UnusedEndpoint> unused{{stranger.endpoint(), "it is of another cluster"}};
  EXPECT_TRUE(eventually([&] { return etcd.client.unusedEndpoints() == unused; }));
  EXPECT_EQ(test_support::sumOf(etcd.metrics, "idetcd_etcd_endpoint_unused"), 1);
  etcd.client.setEndpoints({server.endpoint()});
  EXPECT_TRUE(eventually([&] { return etcd.client.unusedEndpoints().empty(); }));
  EXPECT_EQ(test_support::sumOf(etcd.metrics, "idetcd_etcd_endpoint_unused"), 0);
}

TEST(Failover, HostsOfEveryForm) {
  EtcdServer v4;
  const std::string port = std::to_string(v4.clientPort());
  for (const std::string host : {"localhost", "http://localhost", "127.0.0.1", "http://LOCALHOST"}) {
    BlockingClient etcd(optionsFor({host + ":" + port + (host.starts_with("http") ? "/" : "")}));
    EXPECT_TRUE(succeeded(etcd.put("k", host))) << host;
  }
  EtcdServer::Options options;
  options.client_host = "[::1]";
  EtcdServer v6(options);
  for (const std::string host : {"[::1]", "http://[::1]"}) {
    BlockingClient etcd(optionsFor({host + ":" + std::to_string(v6.clientPort())}));
    EXPECT_TRUE(succeeded(etcd.put("k", host))) << host;
  }
}

TEST(Failover, AProxyInTheEnvironmentIsNotUsed) {
  EtcdServer server;
  const DeadPort proxy(DeadPort::Kind::kRefuses);
  ::setenv("http_proxy", ("http://" + proxy.endpoint()).c_str(), 1);
  ::setenv("grpc_proxy", ("http://" + proxy.endpoint()).c_str(), 1);
  {
    BlockingClient etcd(server);
    EXPECT_TRUE(succeeded(etcd.put("k", "v")));
  }
  ::unsetenv("http_proxy");
  ::unsetenv("grpc_proxy");
}

TEST(Failover, HoweverManyCallsAreMadeConnectionsAreTriedEverMoreRarely) {
  RudePort rude;
  BlockingClient etcd(optionsFor({rude.endpoint()}));
  int calls = 0;
  std::vector<double> tried_at_seconds;
  const auto begin = SteadyClock::now();
  while (SteadyClock::now() - begin < 6s) {
    std::future<StoreResult<RangeResult>> call = start(etcd.thread, etcd.client.range(KeyRange::single("k"), {}));
    while (call.wait_for(1ms) != std::future_status::ready) rude.closeWhatCame();
    EXPECT_FALSE(call.get());
    ++calls;
    const std::chrono::duration<double> elapsed = SteadyClock::now() - begin;
    tried_at_seconds.resize(static_cast<size_t>(rude.connections()), elapsed.count());
  }
  EXPECT_GT(calls, 100);
  EXPECT_GE(tried_at_seconds.size(), 3u);
  // At 0, 0.2, 0.5, 1.0, 1.9 s, and then each second; all pauses but the first by a fifth more or less.
  for (size_t i = 0; i < tried_at_seconds.size(); ++i) {
    const double soonest = i < 5 ? 0 : 1.5 + 0.8 * static_cast<double>(i - 4);
    EXPECT_GE(tried_at_seconds[i], soonest) << i;
  }
}

TEST(Failover, AnEtcdThatWantsFewerPingsGetsFewer) {
  EtcdServer::Options slow;
  slow.extra_arguments = {"--grpc-keepalive-min-time=1500ms"};
  EtcdServer server(slow);
  auto options = optionsFor({server.endpoint()});
  options.ping_interval = 1s;
  BlockingClient etcd(options);
  auto watch = etcd.watch(KeyRange::single("k"), 2);
  ASSERT_TRUE(succeeded(watch));
  // Nothing but pings: from the third on etcd hangs up.
  EXPECT_TRUE(failedWith(etcd.next(*watch, 40s), ErrorCode::kUnavailable));
  watch = retryFor(etcd, 20s, [&] { return etcd.watch(KeyRange::single("k"), 2); });
  ASSERT_TRUE(succeeded(watch));
  const auto batch = etcd.next(*watch, 20s);
  EXPECT_TRUE(succeeded(batch)) << "the answer to the progress request after 10 s: the stream was not closed";
}

// --- three members ---

TEST(FailoverCluster, TheEndpointInUseMayDie) {
  EtcdCluster cluster;
  BlockingClient etcd(optionsFor(cluster.endpoints()));
  const auto lease = etcd.grant(30s);
  ASSERT_TRUE(succeeded(lease));
  ASSERT_TRUE(succeeded(etcd.put("k", "1", lease->id)));
  ASSERT_TRUE(succeeded(etcd.keepAlive(lease->id)));
  auto watch = etcd.watch(KeyRange::single("k"), 3);
  ASSERT_TRUE(succeeded(watch));

  cluster.member(0).kill();  // perhaps the leader too
  EXPECT_TRUE(failedWith(etcd.next(*watch), ErrorCode::kUnavailable));
  EXPECT_TRUE(succeeded(retryFor(etcd, 10s, [&] { return etcd.range(KeyRange::single("k")); })));
  EXPECT_NE(ClientInsight::currentEndpoint(etcd.client), "127.0.0.1:" + std::to_string(cluster.member(0).clientPort()));
  EXPECT_TRUE(succeeded(retryFor(etcd, 10s, [&] { return etcd.keepAlive(lease->id); })));
  auto again = retryFor(etcd, 10s, [&] { return etcd.watch(KeyRange::single("k"), 3); });
  ASSERT_TRUE(succeeded(again));
  ASSERT_TRUE(succeeded(retryFor(etcd, 10s, [&] { return etcd.put("k", "2", lease->id); })));
  const auto batch = etcd.next(*again);
  ASSERT_TRUE(succeeded(batch));
  EXPECT_EQ(batch->events.at(0).kv.value, "2");
}

TEST(FailoverCluster, ClientsAreSpreadAndReturnHomeWithWhatTheyHold) {
  EtcdCluster cluster;
  auto options = optionsFor(cluster.endpoints());
  options.spread = true;
  std::map<std::string, int> homes;
  const auto thread = CompletionThread::make().value();
  for (int i = 0; i < 60; ++i) ++homes[ClientInsight::currentEndpoint(Client(*thread, options, Logger()))];
  EXPECT_EQ(homes.size(), 3u) << "by chance once in 10^10";

  BlockingClient etcd(options);
  const std::string home = ClientInsight::currentEndpoint(etcd.client);
  size_t index = 0;
  while (cluster.endpoints()[index] != "http://" + home) ++index;
  const auto lease = etcd.grant(60s);
  ASSERT_TRUE(succeeded(lease));
  ASSERT_TRUE(succeeded(etcd.keepAlive(lease->id)));
  const auto returnHome = [&] { return await(etcd.thread, etcd.client.returnHome()); };
  EXPECT_FALSE(returnHome()) << "it is there";

  cluster.member(index).kill();
  ASSERT_TRUE(succeeded(retryFor(etcd, 20s, [&] { return etcd.put("k", "1"); })));
  EXPECT_NE(ClientInsight::currentEndpoint(etcd.client), home);
  ASSERT_TRUE(succeeded(retryFor(etcd, 20s, [&] { return etcd.keepAlive(lease->id); })));
  auto watch = etcd.watch(KeyRange::single("k"), 2);
  ASSERT_TRUE(succeeded(watch));
  EXPECT_TRUE((*watch)->isAtCurrentEndpoint());
  EXPECT_FALSE(returnHome()) << "it is away";
  EXPECT_NE(ClientInsight::currentEndpoint(etcd.client), home);

  cluster.member(index).start();
  const auto deadline = SteadyClock::now() + 30s;
  int steps = 0;
  while (!returnHome() && SteadyClock::now() < deadline) {
    ++steps;
    await(etcd.thread, etcd.thread.sleepFor(20ms));
  }
  EXPECT_GE(steps, 1) << "one answer is not enough";
  EXPECT_EQ(ClientInsight::currentEndpoint(etcd.client), home);
  EXPECT_FALSE((*watch)->isAtCurrentEndpoint());
  EXPECT_EQ(etcd.next(*watch)->events.size(), 1u) << "the old stream goes on until its reader has a new one";
  EXPECT_TRUE(succeeded(etcd.keepAlive(lease->id)));
  auto moved = etcd.watch(KeyRange::single("k"), 2);
  ASSERT_TRUE(succeeded(moved));
  EXPECT_TRUE((*moved)->isAtCurrentEndpoint());
  thread->stop();
}

TEST(FailoverCluster, AMemberWithoutALeaderIsLeftAlone) {
  EtcdCluster cluster;
  BlockingClient lonely(optionsFor({cluster.member(0).endpoint()}));
  ASSERT_TRUE(succeeded(lonely.put("k", "1")));
  auto watch = lonely.watch(KeyRange::single("k"), 3);
  ASSERT_TRUE(succeeded(watch));
  cluster.member(1).kill();
  cluster.member(2).kill();
  // hasleader: the watch is cancelled and calls are refused, long before any time-out of a call.
  auto batch = lonely.next(*watch, 20s);
  while (batch) batch = lonely.next(*watch, 20s);  // answers to progress requests, meanwhile
  EXPECT_TRUE(failedWith(batch, ErrorCode::kUnavailable));
  const auto begin = SteadyClock::now();
  EXPECT_TRUE(failedWith(lonely.put("k", "2"), ErrorCode::kUnavailable));
  EXPECT_TRUE(failedWith(lonely.range(KeyRange::single("k")), ErrorCode::kUnavailable));
  EXPECT_TRUE(failedWith(lonely.watch(KeyRange::single("k"), 2), ErrorCode::kUnavailable));
  EXPECT_TRUE(failedWith(lonely.keepAlive(1), ErrorCode::kUnavailable));
  EXPECT_LT(SteadyClock::now() - begin, Client::Options{}.call_timeout);
  RangeOptions options;
  options.serializable = true;
  EXPECT_TRUE(succeeded(lonely.range(KeyRange::single("k"), options))) << "a serializable read needs no leader";
}

TEST(FailoverCluster, AllDownThenUpAgain) {
  EtcdCluster cluster;
  BlockingClient etcd(optionsFor(cluster.endpoints()));
  ASSERT_TRUE(succeeded(etcd.put("k", "1")));
  for (size_t i = 0; i < 3; ++i) cluster.member(i).kill();
  const auto begin = SteadyClock::now();
  EXPECT_TRUE(failedWith(etcd.range(KeyRange::single("k")), ErrorCode::kUnavailable));
  EXPECT_LT(SteadyClock::now() - begin, Client::Options{}.call_timeout);
  cluster.restartAll();
  EXPECT_TRUE(succeeded(retryFor(etcd, 10s, [&] { return etcd.put("k", "2"); })));
  EXPECT_EQ(etcd.value("k"), "2");
}

TEST(FailoverCluster, CallsThatFailTogetherMoveOnOnce) {
  EtcdCluster cluster;
  BlockingClient etcd(optionsFor(cluster.endpoints()));
  ASSERT_TRUE(succeeded(etcd.put("k", "1")));
  cluster.member(0).kill();
  std::vector<std::future<StoreResult<RangeResult>>> reads;
  RangeOptions options;
  options.serializable = true;
  for (int i = 0; i < 50; ++i) reads.push_back(start(etcd.thread, etcd.client.range(KeyRange::single("k"), options)));
  for (auto& read : reads) EXPECT_TRUE(succeeded(read.get()));
  EXPECT_EQ(ClientInsight::currentEndpoint(etcd.client), "127.0.0.1:" + std::to_string(cluster.member(1).clientPort()));
}

// --- stop ---

TEST(Stop, CancelsCallsInFlight) {
  EtcdServer server;
  BlockingClient etcd(server);
  const auto lease = etcd.grant(30s);
  ASSERT_TRUE(succeeded(lease));
  ASSERT_TRUE(succeeded(etcd.keepAlive(lease->id)));
  server.pause();
  auto read = start(etcd.thread, etcd.client.range(KeyRange::single("k"), {}));
  auto write = start(etcd.thread, put(etcd.client, {"k", "v", 0}));
  auto keep_alive = start(etcd.thread, etcd.client.leaseKeepAlive(lease->id, 1h));
  const auto begin = SteadyClock::now();
  etcd.thread.stop();
  EXPECT_LT(SteadyClock::now() - begin, Client::Options{}.call_timeout);
  EXPECT_TRUE(failedWith(read.get(), ErrorCode::kCancelled));
  EXPECT_TRUE(failedWith(write.get(), ErrorCode::kCancelled));
  EXPECT_TRUE(failedWith(keep_alive.get(), ErrorCode::kCancelled));
  server.resume();
}

TEST(Stop, CancelsConnectionsThatAreBeingMade) {
  const DeadPort silent(DeadPort::Kind::kSilent);
  BlockingClient etcd(optionsFor({silent.endpoint()}));
  auto write = start(etcd.thread, put(etcd.client, {"k", "v", 0}));
  auto watch = start(etcd.thread, etcd::watch(etcd.client, KeyRange::single("k"), 1));
  auto keep_alive = start(etcd.thread, etcd.client.leaseKeepAlive(1, 1h));
  const auto begin = SteadyClock::now();
  etcd.thread.stop();
  EXPECT_LT(SteadyClock::now() - begin, Client::Options{}.call_timeout);
  EXPECT_TRUE(failedWith(write.get(), ErrorCode::kCancelled));
  EXPECT_TRUE(failedWith(watch.get(), ErrorCode::kCancelled));
  EXPECT_TRUE(failedWith(keep_alive.get(), ErrorCode::kCancelled));
}

TEST(Stop, AClientMayGoBeforeItsThread) {
  EtcdServer server;
  const auto thread = CompletionThread::make().value();
  for (int i = 0; i < 10; ++i) {
    Client client(*thread, optionsFor({server.endpoint()}), Logger());
    const auto lease = await(*thread, client.leaseGrant(30s));
    ASSERT_TRUE(succeeded(lease));
    EXPECT_TRUE(succeeded(await(*thread, client.leaseKeepAlive(lease->id, 5s))));  // its stream is open now
    auto watch = await(*thread, etcd::watch(client, KeyRange::single("k"), 1));
    EXPECT_TRUE(succeeded(watch));
  }
  EXPECT_TRUE(await(*thread, thread->sleepFor(1ms)));
}

TEST(Failover, ToASelfFoundedClusterThereIsOneConnection) {
  EtcdServer server;
  RudePort other;
  auto options = optionsFor({server.endpoint(), other.endpoint()});
  options.self_founded = true;
  BlockingClient etcd(std::move(options));
  EXPECT_TRUE(succeeded(etcd.put("k", "v")));
  other.closeWhatCame();
  EXPECT_EQ(other.connections(), 0);
}

}  // namespace
}  // namespace idetcd::etcd
