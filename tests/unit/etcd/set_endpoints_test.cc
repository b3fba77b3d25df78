#include "client_fixture.h"
#include "client_insight.h"

namespace idetcd::etcd {
namespace {

// That the next call goes to, after all that was posted before.
std::string currentEndpoint(BlockingClient& etcd) {
  std::promise<std::string> name;
  etcd.thread.post([&] { name.set_value("http://" + ClientInsight::currentEndpoint(etcd.client)); });
  return name.get_future().get();
}

TEST(SetEndpoints, WithoutAnyEveryCallFailsAtOnceUnsent) {
  auto options = optionsFor({});
  options.tls = TlsFiles{"/nowhere/ca.pem", "/nowhere/leaf.pem", "/nowhere/leaf.key"};
  BlockingClient etcd(std::move(options));
  const auto unsent = [](const auto& result) {
    EXPECT_TRUE(failedWith(result, ErrorCode::kUnavailable));
    return !result && !result.error().sent;
  };
  EXPECT_TRUE(unsent(etcd.range(KeyRange::single("k"))));
  EXPECT_TRUE(unsent(etcd.put("k", "v")));
  EXPECT_TRUE(unsent(etcd.grant(10s)));
  EXPECT_TRUE(unsent(etcd.keepAlive(1)));
  EXPECT_TRUE(unsent(etcd.watch(KeyRange::single("k"), 1)));
  EXPECT_FALSE(await(etcd.thread, etcd.client.returnHome()));
  EXPECT_EQ(etcd.count("tls_failures"), 0u) << "files that nothing needs yet are not read";
}

TEST(SetEndpoints, TheFirstOnesAreUsedAndNoneAgainFailsAtOnce) {
  EtcdServer server;
  BlockingClient etcd(optionsFor({}));
  EXPECT_FALSE(etcd.put("k", "v"));
  etcd.client.setEndpoints({server.endpoint()});
  EXPECT_EQ(etcd.client.endpoints(), std::vector<std::string>{server.endpoint()});
  EXPECT_TRUE(succeeded(etcd.put("k", "v")));
  const auto stream = etcd.watch(KeyRange::single("k"), 1);
  ASSERT_TRUE(succeeded(stream));
  etcd.client.setEndpoints({});
  EXPECT_TRUE(failedWith(etcd.put("k", "w"), ErrorCode::kUnavailable));
  EXPECT_TRUE(succeeded(etcd.next(*stream))) << "a watch that is open goes on";
  etcd.client.setEndpoints({server.endpoint()});
  EXPECT_EQ(etcd.value("k"), "v");
}

TEST(SetEndpoints, WhatStaysKeepsItsConnection) {
  EtcdCluster cluster;
  const auto all = cluster.endpoints();
  BlockingClient etcd(optionsFor({all[0], all[1]}));
  const auto lease = etcd.grant(60s);
  ASSERT_TRUE(succeeded(lease));
  ASSERT_TRUE(succeeded(etcd.keepAlive(lease->id)));
  const auto stream = etcd.watch(KeyRange::single("k"), 1);
  ASSERT_TRUE(succeeded(stream));
  const auto channel = [&etcd] {
    std::promise<const void*> pointer;
    etcd.thread.post([&] { pointer.set_value(ClientInsight::currentChannel(etcd.client)); });
    return pointer.get_future().get();
  };
  const void* const before = channel();

  etcd.client.setEndpoints({all[2], all[1], all[0]});
  EXPECT_EQ(currentEndpoint(etcd), all[0]);
  EXPECT_EQ(channel(), before);
  EXPECT_TRUE((*stream)->isAtCurrentEndpoint());
  EtcdServer& silent = cluster.member(cluster.leader() == 1 ? 2 : 1);
  silent.pause();  // the new list is not asked for its cluster before the next call
  EXPECT_TRUE(succeeded(etcd.put("k", "v")));
  EXPECT_TRUE(succeeded(etcd.next(*stream)));
  EXPECT_TRUE(succeeded(etcd.keepAlive(lease->id)));
  silent.resume();
}

TEST(SetEndpoints, TheNextCallsGoToTheNewOnesAndWhatIsUnderWayGoesOn) {
  EtcdCluster cluster;
  auto others = cluster.endpoints();
  const size_t follower = cluster.leader() == 0 ? 1 : 0;
  const std::string first = others[follower];
  others.erase(others.begin() + static_cast<ptrdiff_t>(follower));
  auto options = optionsFor({first});
  options.call_timeout = 60s;
  options.spread = true;
  BlockingClient etcd(std::move(options));
  const auto stream = etcd.watch(KeyRange::single("k"), 1);
  ASSERT_TRUE(succeeded(stream));
  cluster.member(follower).pause();
  auto under_way = start(etcd.thread, put(etcd.client, {"slow", "v", 0}));
  etcd.client.setEndpoints(others);
  EXPECT_NE(currentEndpoint(etcd), first);
  EXPECT_FALSE((*stream)->isAtCurrentEndpoint());
  EXPECT_TRUE(succeeded(etcd.put("k", "v"))) << "it does not wait for the one that was";
  EXPECT_EQ(under_way.wait_for(0s), std::future_status::timeout);
  cluster.member(follower).resume();
  EXPECT_TRUE(succeeded(under_way.get()));
  EXPECT_TRUE(succeeded(etcd.next(*stream)));
  EXPECT_EQ(etcd.count("endpoint_failures"), 0u);
}

TEST(SetEndpoints, ACallOnTheCompletionThreadUsesTheListThatWasSetBefore) {
  EtcdServer server;
  BlockingClient etcd(optionsFor({}));
  std::promise<std::vector<std::string>> seen;
  etcd.thread.post([&] {
    etcd.client.setEndpoints({server.endpoint()});
    seen.set_value({"http://" + ClientInsight::currentEndpoint(etcd.client)});
  });
  EXPECT_EQ(seen.get_future().get(), std::vector<std::string>{server.endpoint()});
}

TEST(SetEndpoints, ANewOneOfAnotherClusterIsNotUsed) {
  EtcdServer ours;
  EtcdServer stranger;
  BlockingClient etcd(optionsFor({stranger.endpoint()}));
  ASSERT_TRUE(succeeded(etcd.put("k", "theirs")));
  etcd.client.setEndpoints({ours.endpoint()});
  ASSERT_TRUE(succeeded(etcd.put("k", "ours")));
  etcd.client.setEndpoints({stranger.endpoint(), ours.endpoint()});  // it was known once: that counts no more
  EXPECT_EQ(etcd.value("k"), "ours");
  const auto identify = [](Client& client) -> Task<bool> {
    co_await client.identifyEndpoints();
    co_return true;
  };
  await(etcd.thread, identify(etcd.client));
  ours.kill();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(failedWith(etcd.range(KeyRange::single("k")), ErrorCode::kUnavailable));
  ours.start();
  auto value = etcd.value("k");
  while (!value) {
    await(etcd.thread, etcd.thread.sleepFor(10ms));
    value = etcd.value("k");
  }
  EXPECT_EQ(value, "ours");
}

}  // namespace
}  // namespace idetcd::etcd
