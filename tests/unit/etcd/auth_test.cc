#include <string>
#include <utility>
#include <vector>

#include "client_fixture.h"
#include "support/test_certificates.h"

namespace idetcd::etcd {
namespace {

class AuthTest : public testing::Test {
 protected:
  // User "node" may do everything with the keys from "a/" on.
  static void setUp(EtcdServer& server) {
    server.ctl({"user", "add", "node:secret"});
    server.ctl({"role", "add", "nodes"});
    server.ctl({"role", "grant-permission", "--prefix", "nodes", "readwrite", "a/"});
    server.ctl({"user", "grant-role", "node", "nodes"});
    server.enableAuthentication();
  }

  static Client::Options optionsOf(const EtcdServer& server, std::string password = "secret") {
    auto options = optionsFor({server.endpoint()});
    options.call_timeout = 20s;
    options.credentials = Credentials{"node", std::move(password)};
    return options;
  }

  static EtcdServer::Options with(std::vector<std::string> arguments) {
    EtcdServer::Options options;
    options.extra_arguments = std::move(arguments);
    return options;
  }

  // etcd looks for expired tokens once a second.
  static void outliveTokens(BlockingClient& etcd) { await(etcd.thread, etcd.thread.sleepFor(3500ms)); }
};

TEST_F(AuthTest, EveryKindOfCallCarriesTheToken) {
  EtcdServer server;
  setUp(server);
  BlockingClient etcd(optionsOf(server));
  const auto lease = etcd.grant(30s);
  ASSERT_TRUE(succeeded(lease));
  auto watch = etcd.watch(KeyRange::prefix("a/"), 2);
  ASSERT_TRUE(succeeded(watch));
  EXPECT_TRUE(succeeded(etcd.put("a/k", "v", lease->id)));
  EXPECT_EQ(etcd.value("a/k"), "v");
  const auto batch = etcd.next(*watch);
  ASSERT_TRUE(succeeded(batch));
  EXPECT_EQ(batch->events.at(0).kv.key, "a/k");
  TxnRequest request;
  request.success.push_back(PutOp{"a/k", "w", 0});
  EXPECT_TRUE(succeeded(etcd.txn(request)));
  EXPECT_TRUE(succeeded(etcd.keepAlive(lease->id)));
  EXPECT_TRUE(succeeded(etcd.remove(KeyRange::single("a/k"))));
  EXPECT_TRUE(succeeded(etcd.revoke(lease->id)));
  EXPECT_EQ(etcd.count("authentications"), 1u);
}

TEST_F(AuthTest, WhatIsNotAllowedIsTheCallersProblem) {
  EtcdServer server;
  setUp(server);
  BlockingClient etcd(optionsOf(server));
  EXPECT_TRUE(failedWith(etcd.put("b", "v"), ErrorCode::kPermissionDenied));
  EXPECT_FALSE(etcd.put("b", "v").error().ambiguous());
  EXPECT_TRUE(failedWith(etcd.range(KeyRange::single("b")), ErrorCode::kPermissionDenied));
  EXPECT_TRUE(failedWith(etcd.watch(KeyRange::single("b"), 1), ErrorCode::kPermissionDenied));
  EXPECT_EQ(etcd.count("authentications"), 1u) << "another token would not help";
}

TEST_F(AuthTest, WithoutCredentialsNothingIsAllowed) {
  EtcdServer server;
  setUp(server);
  BlockingClient etcd(server);
  EXPECT_TRUE(failedWith(etcd.put("a/k", "v"), ErrorCode::kStaleToken));
  EXPECT_TRUE(failedWith(etcd.range(KeyRange::single("a/k")), ErrorCode::kStaleToken));
  EXPECT_FALSE(etcd.watch(KeyRange::single("a/k"), 1));
}

TEST_F(AuthTest, AWrongPasswordIsNotTriedOverAndOver) {
  EtcdServer server;
  setUp(server);
  BlockingClient etcd(optionsOf(server, "guess"));
  const auto end = SteadyClock::now() + 1s;
  size_t calls = 0;
  for (; SteadyClock::now() < end || calls < 100; ++calls) {
    const auto write = etcd.put("a/k", "v");
    ASSERT_TRUE(failedWith(write, ErrorCode::kUnauthenticated));
    EXPECT_FALSE(write.error().ambiguous());
    EXPECT_EQ(write.error().message.find("guess"), std::string::npos);
  }
  EXPECT_TRUE(failedWith(etcd.watch(KeyRange::single("a/k"), 1), ErrorCode::kUnauthenticated));
  EXPECT_TRUE(failedWith(etcd.keepAlive(1), ErrorCode::kUnauthenticated));
  EXPECT_GE(etcd.count("authentication_failures"), 1u);
  EXPECT_LE(etcd.count("authentication_failures"), 8u) << "of " << calls << " calls";
}

TEST_F(AuthTest, AnUnknownUserIsRefused) {
  EtcdServer server;
  setUp(server);
  auto options = optionsOf(server);
  options.credentials->user = "nobody";
  BlockingClient etcd(options);
  EXPECT_TRUE(failedWith(etcd.put("a/k", "v"), ErrorCode::kUnauthenticated));
}

TEST_F(AuthTest, AnExpiredTokenIsRenewedOnceForAllCalls) {
  EtcdServer server(with({"--auth-token-ttl=1"}));
  setUp(server);
  BlockingClient etcd(optionsOf(server));
  ASSERT_TRUE(succeeded(etcd.put("a/k", "1")));
  outliveTokens(etcd);
  std::vector<std::future<StoreResult<int64_t>>> writes;
  for (int i = 0; i < 50; ++i)
    writes.push_back(start(etcd.thread, put(etcd.client, {"a/" + std::to_string(i), "v", 0})));
  for (auto& write : writes) EXPECT_TRUE(succeeded(write.get()));
  EXPECT_GE(etcd.count("authentications"), 2u);
  EXPECT_LE(etcd.count("authentications"), 4u) << "not once for each";
  EXPECT_EQ(etcd.range(KeyRange::prefix("a/"))->kvs.size(), 51u);
}

TEST_F(AuthTest, AWatchIsOpenedWithAFreshToken) {
  EtcdServer server(with({"--auth-token-ttl=1"}));
  setUp(server);
  BlockingClient etcd(optionsOf(server));
  auto first = etcd.watch(KeyRange::prefix("a/"), 2);
  ASSERT_TRUE(succeeded(first));
  outliveTokens(etcd);
  auto second = etcd.watch(KeyRange::prefix("a/"), 2);
  ASSERT_TRUE(succeeded(second));
  EXPECT_GE(etcd.count("authentications"), 2u);
  EXPECT_LE(etcd.count("authentications"), 4u) << "not once for each";
  ASSERT_TRUE(succeeded(etcd.put("a/k", "v")));
  EXPECT_TRUE(succeeded(etcd.next(*second)));
  EXPECT_TRUE(succeeded(etcd.next(*first))) << "what is open goes on";
}

TEST_F(AuthTest, ALeaseIsKeptAliveOverTheEndOfATokenAndRevokedWhileStopping) {
  EtcdServer server(with({"--auth-token-ttl=1"}));
  setUp(server);
  BlockingClient etcd(optionsOf(server));
  const auto lease = etcd.grant(60s);
  ASSERT_TRUE(succeeded(lease));
  ASSERT_TRUE(succeeded(etcd.put("a/k", "v", lease->id)));
  ASSERT_TRUE(succeeded(etcd.keepAlive(lease->id)));
  outliveTokens(etcd);
  EXPECT_TRUE(succeeded(etcd.keepAlive(lease->id)));
  auto revoked = std::make_shared<std::promise<StoreResult<void>>>();
  auto last_deed = [](CompletionThread& thread, Client& client, int64_t id,
                      std::shared_ptr<std::promise<StoreResult<void>>> promise) -> Task<void> {
    co_await thread.sleepFor(1h);  // until stop()
    auto revoke = client.leaseRevoke(id);
    auto result = co_await revoke;
    promise->set_value(std::move(result));
  };
  etcd.thread.spawn(last_deed(etcd.thread, etcd.client, lease->id, revoked));
  etcd.thread.stop(60s);
  EXPECT_TRUE(succeeded(revoked->get_future().get()));
  EXPECT_EQ(server.ctl({"get", "a/k"}), "");
}

TEST_F(AuthTest, AServerMayStartAgain) {
  EtcdServer server;
  setUp(server);
  BlockingClient etcd(optionsOf(server));
  const auto lease = etcd.grant(60s);
  ASSERT_TRUE(succeeded(lease));
  ASSERT_TRUE(succeeded(etcd.keepAlive(lease->id)));
  server.restart();
  const auto deadline = SteadyClock::now() + 10s;
  auto write = etcd.put("a/k", "v");
  while (!write && write.error().code == ErrorCode::kUnavailable && SteadyClock::now() < deadline)
    write = etcd.put("a/k", "v");
  EXPECT_TRUE(succeeded(write));
  // Those that are in its log it knows again.
  EXPECT_LE(etcd.count("authentications"), 2u);
  auto alive = etcd.keepAlive(lease->id);
  if (!alive) alive = etcd.keepAlive(lease->id);  // the stream of before
  EXPECT_TRUE(succeeded(alive));
}

TEST_F(AuthTest, ARoleMayBeRevokedAndGrantedAgain) {
  EtcdServer server;
  setUp(server);
  BlockingClient etcd(optionsOf(server));
  ASSERT_TRUE(succeeded(etcd.put("a/k", "1")));
  server.ctl({"user", "revoke-role", "node", "nodes"});
  EXPECT_TRUE(failedWith(etcd.put("a/k", "2"), ErrorCode::kPermissionDenied));
  EXPECT_TRUE(failedWith(etcd.range(KeyRange::single("a/k")), ErrorCode::kPermissionDenied));
  EXPECT_TRUE(failedWith(etcd.watch(KeyRange::single("a/k"), 1), ErrorCode::kPermissionDenied));
  EXPECT_EQ(server.ctl({"get", "a/k", "--print-value-only"}), "1\n");
  server.ctl({"user", "grant-role", "node", "nodes"});
  EXPECT_TRUE(succeeded(etcd.put("a/k", "3")));
}

TEST_F(AuthTest, ThePasswordMayChangeAndChangeBack) {
  EtcdServer server;
  setUp(server);
  BlockingClient etcd(optionsOf(server));
  ASSERT_TRUE(succeeded(etcd.put("a/k", "1")));
  server.ctl({"user", "delete", "node"});
  EXPECT_TRUE(failedWith(etcd.put("a/k", "2"), ErrorCode::kUnauthenticated));
  server.ctl({"user", "add", "node:secret"});
  server.ctl({"user", "grant-role", "node", "nodes"});
  const auto deadline = SteadyClock::now() + 10s;
  auto write = etcd.put("a/k", "3");
  while (!write && SteadyClock::now() < deadline) {
    await(etcd.thread, etcd.thread.sleepFor(20ms));
    write = etcd.put("a/k", "3");
  }
  EXPECT_TRUE(succeeded(write));
}

TEST_F(AuthTest, AuthenticationMayBeOffAndSwitchedOnLater) {
  EtcdServer server;
  BlockingClient etcd(optionsOf(server));
  EXPECT_TRUE(succeeded(etcd.put("a/k", "1")));
  setUp(server);
  EXPECT_TRUE(succeeded(etcd.put("a/k", "2")));
  auto watch = etcd.watch(KeyRange::prefix("a/"), 2);
  EXPECT_TRUE(succeeded(watch));
  server.ctl({"auth", "disable"});
  EXPECT_TRUE(succeeded(etcd.put("a/k", "3"))) << "a token too many does no harm";
}

TEST_F(AuthTest, ASignedTokenIsRenewedAfterEveryChangeOfRights) {
  const test_support::TemporaryFiles files;
  const auto signer = test_support::CertificateAuthority().issue();
  const std::string keys =
      "pub-key=" + files.write("public.pem", signer.certificate) + ",priv-key=" + files.write("key.pem", signer.key);
  EtcdServer server(with({"--auth-token=jwt," + keys + ",sign-method=ES256,ttl=10m"}));
  setUp(server);
  BlockingClient etcd(optionsOf(server));
  ASSERT_TRUE(succeeded(etcd.put("a/k", "1")));
  server.ctl({"role", "add", "others"});  // the token names the revision that the rights were of
  EXPECT_TRUE(succeeded(etcd.put("a/k", "2")));
  server.ctl({"role", "add", "more"});
  EXPECT_TRUE(succeeded(etcd.watch(KeyRange::prefix("a/"), 2)));
  EXPECT_GE(etcd.count("authentications"), 2u);
}

TEST_F(AuthTest, TheEndpointThatMakesTheTokenMayBeAnyOne) {
  EtcdServer server;
  EtcdServer away;
  setUp(server);
  auto options = optionsOf(server);
  options.endpoints = {away.endpoint(), server.endpoint()};
  away.kill();
  BlockingClient etcd(options);
  EXPECT_TRUE(succeeded(etcd.put("a/k", "v"))) << "the write was certainly not sent before";
  server.kill();
  const auto lost = etcd.range(KeyRange::single("a/k"));
  EXPECT_TRUE(failedWith(lost, ErrorCode::kUnavailable));
}

}  // namespace
}  // namespace idetcd::etcd
