// The mirror against a real etcd.
#include "naming/mirror.h"

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "etcd/client.h"
#include "naming/keyspace.h"
#include "support/etcd_server.h"
#include "support/eventually.h"
#include "unit/naming/forwarding_store.h"
#include "unit/naming/on_thread.h"
#include "unit/naming/records_view.h"
#include "unit/naming/tcp_proxy.h"

namespace idetcd::naming {
namespace {

using namespace std::chrono_literals;
using records::Freshness;
using test_support::EtcdServer;

std::string v4(const std::string& address) { return R"({"ipv4":")" + address + R"("})"; }

// A watch that is asked for waits while it is held back.
class WatchGate final : public ForwardingStore {
 public:
  WatchGate(etcd::CompletionThread& thread, etcd::Client& client) : ForwardingStore(client), open_(thread) {
    open_.set();
  }
  runtime::Task<store::StoreResult<std::unique_ptr<store::WatchStream>>> watch(
      std::vector<store::WatchRange> ranges) override {
    ++asked;
    co_await open_.wait(1h);
    co_return co_await client_.watch(std::move(ranges));
  }
  // On the thread of the client.
  void holdBack() { open_.reset(); }
  void letPass() { open_.set(); }

  std::atomic<int> asked{0};

 private:
  runtime::Event open_;
};

// A mirror with all that it stands on, as Member wires it.
struct WiredMirror {
  explicit WiredMirror(const std::string& endpoint, Mirror::Options options = {})
      : WiredMirror(std::vector<std::string>{endpoint}, std::move(options)) {}
  explicit WiredMirror(std::vector<std::string> endpoints, Mirror::Options options = {})
      : client(thread, clientOptions(std::move(endpoints)), {}),
        confirmation(context, {.lease = options.stale_after, .beat_keys = {beatKey(watchedRange())}}),
        mirror(context, options, gate, store, own_key, confirmation) {}
  ~WiredMirror() { stop(); }

  static etcd::Client::Options clientOptions(std::vector<std::string> endpoints) {
    etcd::Client::Options options;
    options.endpoints = std::move(endpoints);
    options.call_timeout = 5s;
    return options;
  }
  void start() {
    thread.spawn(mirror.run());
    thread.spawn(mirror.reconcileRegularly());
    thread.spawn(mirror.watchFreshness());
    thread.spawn(confirmation.run());
  }
  void stop() {
    thread.post([this] { lifetime.stop(); });
    thread.stop();
  }
  size_t size() {
    size_t size = 0;
    onThread(thread, [&] { size = store.size(); });
    return size;
  }
  bool becomes(const std::string& name, const std::string& expected) {
    return eventually([&] { return view.at(name) == expected; });
  }
  bool becomesFresh() {
    return eventually([&] { return store.freshness() == Freshness::kFresh; });
  }

  records::EpochDomain epochs;
  records::RecordStore store{epochs, {}};
  RecordsView view{epochs, store};
  Counters counters;
  KernelRandom random;
  Jitter jitter{random};
  RoundTrip round_trip{20s, {}};
  const std::unique_ptr<etcd::CompletionThread> owned_thread = etcd::CompletionThread::make().value();
  etcd::CompletionThread& thread = *owned_thread;
  etcd::Client client;
  WatchGate gate{thread, client};
  Lifetime lifetime{thread};
  ErrorLogThrottle trouble{Logger()};
  Context context{thread, gate, lifetime, trouble, counters, random, jitter, round_trip, {}};
  OwnKeyObserver own_key;
  Confirmation confirmation;
  Mirror mirror;
};

TEST(Mirror, LoadsAndFollows) {
  EtcdServer server;
  server.ctl({"put", "worker1.tf.local.", R"({"ipv4":"192.0.2.1","ipv6":"fd00::1","port":"53"})"});
  server.ctl({"put", "worker2.tf.local.", "garbage"});
  server.ctl({"put", "/registry/pods/x.", v4("192.0.2.9")});
  WiredMirror node(server.endpoint());
  EXPECT_EQ(node.store.freshness(), Freshness::kLoading);
  node.start();
  ASSERT_TRUE(node.becomesFresh());
  EXPECT_EQ(node.view.at("worker1.tf.local."), "192.0.2.1 fd00::1");
  EXPECT_EQ(node.size(), 1u);
  EXPECT_EQ(node.counters.rejected.value(), 1u);

  server.ctl({"put", "worker3.tf.local.", v4("192.0.2.3")});
  EXPECT_TRUE(node.becomes("worker3.tf.local.", "192.0.2.3"));
  server.ctl({"put", "worker2.tf.local.", v4("192.0.2.2")});
  EXPECT_TRUE(node.becomes("worker2.tf.local.", "192.0.2.2"));
  server.ctl({"put", "worker2.tf.local.", R"({"ipv4":1})"});
  EXPECT_TRUE(node.becomes("worker2.tf.local.", "none"));
  server.ctl({"del", "worker3.tf.local."});
  EXPECT_TRUE(node.becomes("worker3.tf.local.", "none"));
  EXPECT_EQ(node.view.at("worker1.tf.local."), "192.0.2.1 fd00::1");
  EXPECT_EQ(node.counters.snapshots.value(), 1u);
  EXPECT_EQ(node.counters.watch_breaks.value(), 0u);
}

TEST(Mirror, LoadsPageByPage) {
  EtcdServer server;
  for (int i = 0; i < 20; ++i) server.ctl({"put", "n" + std::to_string(i) + ".x.", v4("192.0.2.1")});
  WiredMirror node(server.endpoint(), {.page_size = 3});
  node.start();
  ASSERT_TRUE(node.becomesFresh());
  EXPECT_EQ(node.size(), 20u);
}

runtime::Task<void> putNames(store::Store& store, int count, std::promise<void>& done) {
  for (int i = 0; i < count; ++i) {
    store::TxnRequest request;
    request.success.emplace_back(store::PutOp{"n" + std::to_string(i) + ".x.", v4("192.0.2.1"), 0});
    auto put = store.txn(std::move(request));
    EXPECT_TRUE(co_await put);
  }
  done.set_value();
}

// Reading takes longer than what is read, and what follows it, is kept.
TEST(Mirror, LoadsWhileEverythingIsCompactedAllTheTime) {
  EtcdServer server;
  constexpr int kNames = 1000;
  WiredMirror node(server.endpoint(), {.page_size = 1});
  std::promise<void> put;
  node.thread.spawn(putNames(node.client, kNames, put));
  put.get_future().wait();
  std::atomic<bool> enough{false};
  std::thread compacting([&] {
    while (!enough) {
      const std::string written = server.ctl({"put", "other.x.", v4("192.0.2.2"), "--write-out=json"});
      const std::string field = "\"revision\":";
      const size_t at = written.find(field);
      if (at != std::string::npos)
        server.ctl({"compact", std::to_string(std::stoll(written.substr(at + field.size())))});
    }
  });
  node.start();
  EXPECT_TRUE(node.becomesFresh());
  EXPECT_TRUE(node.becomes("n" + std::to_string(kNames - 1) + ".x.", "192.0.2.1"));
  enough = true;
  compacting.join();
  EXPECT_TRUE(node.becomes("other.x.", "192.0.2.2"));
  EXPECT_EQ(node.size(), kNames + 1u);
}

TEST(Mirror, WhereManyMayStartTheNamesAreReadBehindTheClaim) {
  EtcdServer server;
  server.ctl({"put", "a.x.", v4("192.0.2.1")});
  WiredMirror node(server.endpoint(), {.stale_after = 1h, .limit = 200, .most_at_once = 100});
  node.start();
  server.ctl({"put", "b.x.", v4("192.0.2.2")});
  EXPECT_EQ(node.gate.asked, 0);
  EXPECT_EQ(node.store.freshness(), Freshness::kLoading);
  onThread(node.thread, [&] { node.own_key.settled(2); });
  EXPECT_TRUE(node.becomes("b.x.", "192.0.2.2"));
}

TEST(Mirror, WaitsForEtcdToCome) {
  EtcdServer server;
  server.ctl({"put", "a.x.", v4("192.0.2.1")});
  server.stop();
  WiredMirror node(server.endpoint());
  node.start();
  EXPECT_EQ(node.store.freshness(), Freshness::kLoading);
  server.start();
  EXPECT_TRUE(node.becomes("a.x.", "192.0.2.1"));
  EXPECT_TRUE(node.becomesFresh());
}

TEST(Mirror, SurvivesARestartOfEtcd) {
  EtcdServer server;
  server.ctl({"put", "a.x.", v4("192.0.2.1")});
  WiredMirror node(server.endpoint());
  node.start();
  ASSERT_TRUE(node.becomes("a.x.", "192.0.2.1"));
  server.restart();
  server.ctl({"put", "b.x.", v4("192.0.2.2")});
  EXPECT_TRUE(node.becomes("b.x.", "192.0.2.2"));
  EXPECT_EQ(node.view.at("a.x."), "192.0.2.1");
  EXPECT_EQ(node.counters.snapshots.value(), 1u);
}

TEST(Mirror, ResumesAfterAPartition) {
  EtcdServer server;
  TcpProxy proxy(server.clientPort());
  server.ctl({"put", "a.x.", v4("192.0.2.1")});
  server.ctl({"put", "b.x.", v4("192.0.2.2")});
  WiredMirror node(proxy.endpoint());
  node.start();
  ASSERT_TRUE(node.becomes("b.x.", "192.0.2.2"));
  ASSERT_TRUE(eventually([&] { return node.counters.snapshots.value() == 1u; })) << "one that is broken off would begin anew";
  proxy.cut();
  server.ctl({"del", "a.x."});
  server.ctl({"put", "b.x.", v4("192.0.2.9")});
  server.ctl({"put", "c.x.", v4("192.0.2.3")});
  EXPECT_EQ(node.view.at("a.x."), "192.0.2.1");  // the last known answer
  proxy.restore();
  EXPECT_TRUE(node.becomes("c.x.", "192.0.2.3"));
  EXPECT_EQ(node.view.at("a.x."), "none");
  EXPECT_EQ(node.view.at("b.x."), "192.0.2.9");
  EXPECT_EQ(node.counters.snapshots.value(), 1u);
  EXPECT_GE(node.counters.watch_breaks.value(), 1u);
}

TEST(Mirror, TakesANewSnapshotWhenItsPlaceWasCompacted) {
  EtcdServer server;
  TcpProxy proxy(server.clientPort());
  server.ctl({"put", "a.x.", v4("192.0.2.1")});
  server.ctl({"put", "b.x.", v4("192.0.2.2")});
  WiredMirror node(proxy.endpoint());
  node.start();
  ASSERT_TRUE(node.becomes("b.x.", "192.0.2.2"));
  ASSERT_TRUE(eventually([&] { return node.counters.snapshots.value() == 1u; })) << "one that is broken off would begin anew";
  proxy.cut();
  server.ctl({"del", "a.x."});
  server.ctl({"put", "c.x.", v4("192.0.2.3")});  // the fourth change: revision 5
  server.ctl({"put", "c.x.", v4("192.0.2.4")});
  server.ctl({"compact", "6"});
  proxy.restore();
  EXPECT_TRUE(node.becomes("c.x.", "192.0.2.4"));
  EXPECT_TRUE(node.becomes("a.x.", "none"));
  EXPECT_EQ(node.view.at("b.x."), "192.0.2.2");
  EXPECT_TRUE(eventually([&] { return node.counters.snapshots.value() == 2; }));  // counted once it is whole
  server.ctl({"put", "d.x.", v4("192.0.2.5")});
  EXPECT_TRUE(node.becomes("d.x.", "192.0.2.5"));
}

TEST(Mirror, FollowsAStoreThatWentBack) {
  EtcdServer server;
  for (int i = 0; i < 5; ++i) server.ctl({"put", "a.x.", v4("192.0.2." + std::to_string(i + 1))});
  WiredMirror node(server.endpoint());
  node.start();
  ASSERT_TRUE(node.becomes("a.x.", "192.0.2.5"));
  server.kill();
  server.wipe();
  server.start();
  server.ctl({"put", "b.x.", v4("192.0.2.9")});
  EXPECT_TRUE(node.becomes("b.x.", "192.0.2.9"));
  EXPECT_TRUE(node.becomes("a.x.", "none"));
  EXPECT_EQ(node.counters.restarts_of_store.value(), 1u);
}

// It has come to the revision of before by the time when the watch is open, and has the same newest name then.
TEST(Mirror, AStoreThatGoesBackJustBeforeTheNextWatchIsNoticed) {
  EtcdServer server;
  TcpProxy proxy(server.clientPort());
  server.ctl({"put", "a.x.", v4("192.0.2.1")});
  WiredMirror node(proxy.endpoint(), {.reconcile_interval = 1h});
  node.start();
  ASSERT_TRUE(node.becomes("a.x.", "192.0.2.1"));
  ASSERT_TRUE(node.becomesFresh());
  onThread(node.thread, [&] { node.gate.holdBack(); });
  const int asked = node.gate.asked;
  proxy.cut();
  ASSERT_TRUE(eventually([&] { return node.counters.watch_breaks.value() > 0; }));
  proxy.restore();
  ASSERT_TRUE(eventually([&] { return node.gate.asked > asked; }));
  server.kill();
  server.wipe();
  server.start();
  server.ctl({"put", "a.x.", v4("192.0.2.2")});
  server.ctl({"put", "b.x.", v4("192.0.2.3")});
  onThread(node.thread, [&] { node.gate.letPass(); });
  EXPECT_TRUE(node.becomes("b.x.", "192.0.2.3"));
  EXPECT_TRUE(node.becomes("a.x.", "192.0.2.2"));
}

// One endpoint serves no watches; the other, which does, is of another cluster. Nothing of it is news of ours.
TEST(Mirror, AWatchOfAnotherStoreIsNotApplied) {
  EtcdServer ours;
  EtcdServer other;
  ours.ctl({"put", "a.x.", v4("192.0.2.1")});
  other.ctl({"put", "b.x.", v4("192.0.2.2")});
  for (int i = 1; i <= 10; ++i) other.ctl({"put", "later.x.", v4("192.0.2." + std::to_string(i))});
  TcpProxy proxy(ours.clientPort());
  proxy.setFilter([](std::string_view bytes) { return bytes.find("etcdserverpb.Watch") == std::string_view::npos; });
  WiredMirror node(std::vector<std::string>{proxy.endpoint(), other.endpoint()});
  node.start();
  const auto breaks = [&] {
    proxy.restore();  // each watch cuts it
    return node.counters.watch_breaks.value();
  };
  ASSERT_TRUE(eventually([&] { return breaks() > 2; }));
  EXPECT_EQ(node.view.at("b.x."), "none");
  EXPECT_EQ(node.view.at("a.x."), "192.0.2.1");
  EXPECT_EQ(node.counters.events.value(), 0u);
  EXPECT_EQ(node.counters.restarts_of_store.value(), 0u);
}

TEST(Mirror, TheComparisonRepairsWhatTheWatchLost) {
  EtcdServer server;
  server.ctl({"put", "a.x.", v4("192.0.2.1")});
  server.ctl({"put", "b.x.", v4("192.0.2.2")});
  WiredMirror node(server.endpoint(), {.reconcile_interval = 300ms, .settle_time = 50ms});
  node.start();
  ASSERT_TRUE(node.becomes("b.x.", "192.0.2.2"));
  onThread(node.thread, [&] {  // as if two events had been lost
    node.store.remove(dns::Name::parse("a.x.").value(), 1000);
    node.store.put(dns::Name::parse("gone.x.").value(), {IpAddress::parse("192.0.2.7"), {}}, 2);
  });
  EXPECT_TRUE(node.becomes("a.x.", "192.0.2.1"));
  EXPECT_TRUE(node.becomes("gone.x.", "none"));
  EXPECT_TRUE(eventually([&] { return node.counters.reconciled.value() == 2; }));
  const uint64_t repairs = node.counters.comparisons.value();
  EXPECT_TRUE(eventually([&] { return node.counters.comparisons.value() >= repairs + 2; }));
  EXPECT_EQ(node.counters.reconciled.value(), 2u);
  EXPECT_EQ(node.counters.snapshots.value(), 1u);
}

// All keys of a large table are read seldom: as a rule their number and the newest one tell that it is whole.
TEST(Mirror, TheComparisonOfALargeTableFindsWhatIsMissing) {
  EtcdServer server;
  for (int i = 0; i < 40; ++i) server.ctl({"put", fmt::format("n{}.x.", i), v4("192.0.2.1")});
  server.ctl({"put", "0/others", "no name"});
  WiredMirror node(server.endpoint(), {.reconcile_interval = 300ms, .settle_time = 10ms});
  node.start();
  ASSERT_TRUE(node.becomes("n39.x.", "192.0.2.1"));
  const auto compared = [&](uint64_t times) {
    const uint64_t before = node.counters.comparisons.value();
    return eventually([&] { return node.counters.comparisons.value() >= before + times; });
  };
  EXPECT_TRUE(compared(6));
  EXPECT_EQ(node.counters.reconciled.value(), 0u);
  onThread(node.thread, [&] { node.store.remove(dns::Name::parse("n7.x.").value(), 1000); });
  EXPECT_TRUE(node.becomes("n7.x.", "192.0.2.1"));
  EXPECT_TRUE(eventually([&] { return node.counters.reconciled.value() == 1; }));  // the record is there before the count
  EXPECT_TRUE(compared(3));
  EXPECT_EQ(node.counters.snapshots.value(), 1u);
}

TEST(Mirror, TheComparisonDoesNotDisturbTheWatch) {
  EtcdServer server;
  WiredMirror node(server.endpoint(), {.reconcile_interval = 1ms, .settle_time = 500ms, .page_size = 2});
  node.start();
  ASSERT_TRUE(node.becomesFresh());
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 5; ++i) server.ctl({"put", "n" + std::to_string(i) + ".x.", v4("192.0.2.1")});
    server.ctl({"del", "n0.x."});
    EXPECT_TRUE(node.becomes("n4.x.", "192.0.2.1"));
    EXPECT_TRUE(node.becomes("n0.x.", "none"));
  }
  EXPECT_TRUE(eventually([&] { return node.counters.comparisons.value() >= 5; }));
  EXPECT_EQ(node.counters.reconciled.value(), 0u);
  EXPECT_EQ(node.size(), 4u);
}

TEST(Mirror, SilenceMakesTheNamesStaleAndTheReturnFresh) {
  EtcdServer server;
  server.ctl({"put", "a.x.", v4("192.0.2.1")});
  WiredMirror node(server.endpoint(), {.stale_after = 2s});
  node.start();
  ASSERT_TRUE(node.becomesFresh());
  server.pause();
  ASSERT_TRUE(eventually([&] { return node.store.freshness() == Freshness::kStale; }));
  EXPECT_EQ(node.view.at("a.x."), "192.0.2.1");
  server.resume();
  ASSERT_TRUE(node.becomesFresh());
  EXPECT_EQ(node.view.at("a.x."), "192.0.2.1");
}

TEST(Mirror, AQuietEtcdIsNotStale) {
  constexpr auto kStaleAfter = 8s;  // confirmed four times in it: a busy machine may miss some
  EtcdServer server;
  WiredMirror node(server.endpoint(), {.stale_after = kStaleAfter});
  node.start();
  ASSERT_TRUE(node.becomesFresh());
  const auto begin = BootClock::now();
  bool was_old = false;
  EXPECT_TRUE(eventually(
      [&] {
        was_old = was_old || node.store.freshness() != Freshness::kFresh;
        return node.store.freshUntil() > begin + 2 * kStaleAfter;
      },
      4 * kStaleAfter));
  EXPECT_FALSE(was_old);
  EXPECT_EQ(node.counters.watch_breaks.value(), 0u);
}

TEST(Mirror, LargeForeignValuesDoNotStandInTheWay) {
  EtcdServer server;
  const std::string value(100'000, 'x');  // a command line holds 128 KiB; together more than gRPC's 4 MiB
  for (int i = 0; i < 50; ++i) server.ctl({"put", "big" + std::to_string(i) + ".x.", value});
  server.ctl({"put", "small.x.", v4("192.0.2.1")});
  WiredMirror node(server.endpoint());
  node.start();
  EXPECT_TRUE(node.becomes("small.x.", "192.0.2.1"));
  EXPECT_EQ(node.counters.rejected.value(), 50u);
}

}  // namespace
}  // namespace idetcd::naming
