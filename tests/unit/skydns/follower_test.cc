// The follower against a real etcd.
#include "skydns/follower.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "etcd/client.h"
#include "support/etcd_server.h"
#include "support/eventually.h"
#include "support/metric_values.h"
#include "unit/naming/forwarding_store.h"
#include "unit/naming/tcp_proxy.h"

namespace idetcd::skydns {
namespace {

using namespace std::chrono_literals;
using test_support::EtcdServer;

// Says nothing of one lease.
struct LeaseStore : naming::ForwardingStore {
  LeaseStore(etcd::Client& client, int64_t failing) : ForwardingStore(client), failing_lease(failing) {}
  runtime::Task<store::StoreResult<std::chrono::seconds>> leaseTimeToLive(int64_t id) override {
    if (id == failing_lease) co_return tl::unexpected(store::StoreError{ErrorCode::kUnavailable, "failing", false});
    co_return co_await ForwardingStore::leaseTimeToLive(id);
  }
  const int64_t failing_lease;
};

struct FollowedServices {
  struct Source {
    Source(etcd::CompletionThread& thread, const std::string& endpoint, std::shared_ptr<ServiceSet> set,
           Follower::Options options, const metrics::Scope& scope, int64_t failing_lease)
        : client(thread, clientOptions(endpoint), {}),
          store(client, failing_lease),
          follower(thread, store, random, std::move(set), std::move(options), {}, scope) {}
    static etcd::Client::Options clientOptions(const std::string& endpoint) {
      etcd::Client::Options options;
      options.endpoints = {endpoint};
      return options;
    }
    KernelRandom random;
    etcd::Client client;
    LeaseStore store;
    Follower follower;
  };

  explicit FollowedServices(const std::string& endpoint, Follower::Options options = {}, int64_t failing_lease = 0)
      : source(std::make_shared<Source>(*thread, endpoint, set, std::move(options), registry.scope(), failing_lease)) {
    source->follower.start(source);
  }
  ~FollowedServices() {
    thread->post([kept = source] { kept->follower.stop(); });
    thread->stop();
  }

  // The host of a key; "-": there is none.
  std::string at(const std::string& key) const {
    const auto table = set->table();
    const Service* const service = table ? table->find(key) : nullptr;
    return service != nullptr && service->address ? service->address->toString() : "-";
  }
  uint32_t ttlAt(const std::string& key) const {
    const auto table = set->table();
    const Service* const service = table ? table->find(key) : nullptr;
    return service != nullptr ? service->ttl() : 0;
  }
  bool becomes(const std::string& key, const std::string& host) const {
    return eventually([&] { return at(key) == host; });
  }
  double reads() const { return test_support::sumOf(registry, "idetcd_skydns_reads_total"); }
  double breaks() const { return test_support::sumOf(registry, "idetcd_skydns_watch_breaks_total"); }
  bool isFresh() const { return BootClock::now() <= set->freshUntil(); }

  metrics::Registry registry;
  std::unique_ptr<etcd::CompletionThread> thread = etcd::CompletionThread::make().value();
  std::shared_ptr<ServiceSet> set = std::make_shared<ServiceSet>(std::make_shared<Executor>());
  std::shared_ptr<Source> source;
};

std::string hostValue(const std::string& host) { return "{\"host\":\"" + host + "\"}"; }

TEST(SkydnsFollower, ReadsAllAndFollows) {
  EtcdServer server;
  server.ctl({"put", "/skydns/t/a", hostValue("192.0.2.1")});
  server.ctl({"put", "/skydns/t/bad", "garbage"});
  server.ctl({"put", "/skydns-2/t/a", hostValue("192.0.2.9")});
  const FollowedServices followed(server.endpoint(), {.page_size = 1});
  ASSERT_TRUE(followed.becomes("/t/a", "192.0.2.1"));
  EXPECT_EQ(followed.set->table()->size(), 1u) << "what is no service, or not below the path, is left out";
  EXPECT_TRUE(followed.isFresh());
  server.ctl({"put", "/skydns/t/b", hostValue("192.0.2.2")});
  EXPECT_TRUE(followed.becomes("/t/b", "192.0.2.2"));
  server.ctl({"put", "/skydns/t/bad", hostValue("192.0.2.3")});
  EXPECT_TRUE(followed.becomes("/t/bad", "192.0.2.3"));
  server.ctl({"put", "/skydns/t/b", "garbage"});
  EXPECT_TRUE(followed.becomes("/t/b", "-")) << "an address that is not confirmed any more is worse than none";
  server.ctl({"del", "/skydns/t/a"});
  EXPECT_TRUE(followed.becomes("/t/a", "-"));
  EXPECT_EQ(followed.at("/t/bad"), "192.0.2.3");
  EXPECT_EQ(test_support::sumOf(followed.registry, "idetcd_skydns_services"), 1);
  EXPECT_EQ(test_support::sumOf(followed.registry, "idetcd_skydns_changes_total"), 4);
  EXPECT_EQ(test_support::sumOf(followed.registry, "idetcd_skydns_rejected_total"), 2);
  EXPECT_EQ(test_support::sumOf(followed.registry, "idetcd_skydns_fresh"), 1);
  EXPECT_EQ(followed.breaks(), 0);
}

TEST(SkydnsFollower, AnswersThroughAnOutageAndGoesOn) {
  EtcdServer server;
  server.ctl({"put", "/skydns/t/a", hostValue("192.0.2.1")});
  const FollowedServices followed(server.endpoint(), {.stale_after = 1s});
  ASSERT_TRUE(followed.becomes("/t/a", "192.0.2.1"));
  server.kill();
  EXPECT_TRUE(eventually([&] { return !followed.isFresh(); }));
  EXPECT_EQ(followed.at("/t/a"), "192.0.2.1");
  EXPECT_EQ(test_support::sumOf(followed.registry, "idetcd_skydns_fresh"), 0);
  EXPECT_GE(followed.breaks(), 1);
  server.start();
  server.ctl({"put", "/skydns/t/a", hostValue("192.0.2.2")});
  EXPECT_TRUE(followed.becomes("/t/a", "192.0.2.2"));
}

TEST(SkydnsFollower, ReadsAllAnewWhereTheChangesAreCompacted) {
  EtcdServer server;
  naming::TcpProxy proxy(server.clientPort());
  server.ctl({"put", "/skydns/t/a", hostValue("192.0.2.1")});
  const FollowedServices followed(proxy.endpoint());
  ASSERT_TRUE(followed.becomes("/t/a", "192.0.2.1"));
  proxy.cut();
  server.ctl({"del", "/skydns/t/a"});
  server.ctl({"put", "/skydns/t/b", hostValue("192.0.2.2")});
  const std::string put = server.ctl({"put", "/skydns/t/c", hostValue("192.0.2.3"), "--write-out=json"});
  const size_t revision = put.find("\"revision\":") + 11;
  server.ctl({"compact", put.substr(revision, put.find_first_not_of("0123456789", revision) - revision)});
  EXPECT_EQ(followed.reads(), 1);
  proxy.restore();
  EXPECT_TRUE(followed.becomes("/t/c", "192.0.2.3"));
  EXPECT_EQ(followed.at("/t/b"), "192.0.2.2");
  EXPECT_EQ(followed.at("/t/a"), "-");
  EXPECT_EQ(followed.reads(), 2);
}

TEST(SkydnsFollower, AnotherStoreReplacesAll) {
  EtcdServer server;
  for (const char* key : {"/skydns/t/a", "/skydns/t/b", "/skydns/t/c"}) server.ctl({"put", key, hostValue("192.0.2.1")});
  const FollowedServices followed(server.endpoint());
  ASSERT_TRUE(followed.becomes("/t/c", "192.0.2.1"));
  server.kill();
  server.wipe();
  server.start();
  server.ctl({"put", "/skydns/t/d", hostValue("192.0.2.4")});
  EXPECT_TRUE(followed.becomes("/t/d", "192.0.2.4"));
  EXPECT_TRUE(followed.becomes("/t/a", "-"));
}

TEST(SkydnsFollower, MoreServicesThanThereIsRoomFor) {
  EtcdServer server;
  for (const char* key : {"/skydns/t/a", "/skydns/t/b", "/skydns/t/c"}) server.ctl({"put", key, hostValue("192.0.2.1")});
  const size_t bytes = Service{.key = "/t/a"}.bytes();
  const FollowedServices by_number(server.endpoint(), {.most_services = 2});
  const FollowedServices by_bytes(server.endpoint(), {.most_bytes = 3 * bytes - 1});
  for (const FollowedServices* followed : {&by_number, &by_bytes}) {
    ASSERT_TRUE(followed->becomes("/t/b", "192.0.2.1"));
    EXPECT_EQ(followed->at("/t/c"), "-");
    EXPECT_TRUE(followed->set->lacksServices());
    EXPECT_EQ(test_support::sumOf(followed->registry, "idetcd_skydns_left_out_total"), 1);
  }
  server.ctl({"put", "/skydns/t/b", hostValue("192.0.2.2")});
  for (const FollowedServices* followed : {&by_number, &by_bytes}) {
    EXPECT_TRUE(followed->becomes("/t/b", "192.0.2.2")) << "what changes keeps its room";
    EXPECT_EQ(followed->at("/t/c"), "-");
  }
  server.ctl({"del", "/skydns/t/a"});
  for (const FollowedServices* followed : {&by_number, &by_bytes}) {
    EXPECT_TRUE(followed->becomes("/t/c", "192.0.2.1")) << "there is room again";
    EXPECT_EQ(followed->at("/t/a"), "-");
    EXPECT_TRUE(eventually([&] { return !followed->set->lacksServices(); }));
  }
}

TEST(SkydnsFollower, ALeaseBoundsTheTtl) {
  EtcdServer server;
  const std::string granted = server.ctl({"lease", "grant", "500"});
  const size_t id = granted.find("lease ") + 6;
  const std::string lease = "--lease=" + granted.substr(id, granted.find(' ', id) - id);
  server.ctl({"put", "/skydns/t/a", hostValue("192.0.2.1"), lease});
  server.ctl({"put", "/skydns/t/b", R"({"host":"192.0.2.1","ttl":40})", lease});
  const FollowedServices followed(server.endpoint(), {.min_lease_ttl = 10, .max_lease_ttl = 400});
  EXPECT_TRUE(eventually([&] { return followed.ttlAt("/t/a") == 400; })) << followed.ttlAt("/t/a");
  EXPECT_EQ(followed.ttlAt("/t/b"), 40u);
}

TEST(SkydnsFollower, ALeaseThatNothingIsLearnedOfHoldsUpNoOther) {
  EtcdServer server;
  const auto grant = [&] {
    const std::string granted = server.ctl({"lease", "grant", "500"});
    const size_t id = granted.find("lease ") + 6;
    return granted.substr(id, granted.find(' ', id) - id);
  };
  const std::string failing = grant();
  server.ctl({"put", "/skydns/t/a", hostValue("192.0.2.1"), "--lease=" + failing});
  server.ctl({"put", "/skydns/t/b", hostValue("192.0.2.1"), "--lease=" + grant()});
  const FollowedServices followed(server.endpoint(), {.min_lease_ttl = 10, .max_lease_ttl = 400},
                                  std::stoll(failing, nullptr, 16));
  EXPECT_TRUE(eventually([&] { return followed.ttlAt("/t/b") == 400; })) << followed.ttlAt("/t/b");
  EXPECT_EQ(followed.ttlAt("/t/a"), 10u);
}

}  // namespace
}  // namespace idetcd::skydns
