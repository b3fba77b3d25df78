#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <grpc/grpc.h>
#include <gtest/gtest.h>

#include "client_fixture.h"
#include "client_insight.h"
#include "support/test_certificates.h"

namespace idetcd::etcd {
namespace {

using test_support::CertificateAndKey;
using test_support::CertificateAuthority;
using test_support::CertificateOptions;
using test_support::TemporaryFiles;

class TlsTest : public testing::Test {
 protected:
  TlsTest() {
    files_.write("ca.pem", authority_.certificate());
    writeServer(authority_.issue());
    writeClient(authority_.issue());
  }

  void writeServer(const CertificateAndKey& pair) const { writePair("server", pair); }
  void writeClient(const CertificateAndKey& pair) const { writePair("client", pair); }

  // The server trusts clients by "server-ca.pem", a copy: etcd reads it at start only.
  EtcdServer::Options serverOptions(bool wants_client_certificate = false) const {
    EtcdServer::Options options;
    options.tls.emplace();
    options.tls->certificate_file = files_.path("server.pem");
    options.tls->key_file = files_.path("server.key");
    options.tls->ctl_flags = {"--insecure-skip-tls-verify", "--insecure-transport=false"};
    if (wants_client_certificate) {
      options.tls->ca_file = files_.write("server-ca.pem", authority_.certificate());
      options.tls->ctl_flags.push_back("--cert=" + files_.path("client.pem"));
      options.tls->ctl_flags.push_back("--key=" + files_.path("client.key"));
    }
    return options;
  }

  TlsFiles caOnly() const { return {.ca_file = files_.path("ca.pem"), .certificate_file = {}, .key_file = {}}; }
  TlsFiles caAndClient() const {
    return {.ca_file = files_.path("ca.pem"),
            .certificate_file = files_.path("client.pem"),
            .key_file = files_.path("client.key")};
  }

  static Client::Options with(std::optional<TlsFiles> tls, std::vector<std::string> endpoints) {
    auto options = optionsFor(std::move(endpoints));
    options.tls = std::move(tls);
    options.call_timeout = 10s;
    return options;
  }
  static std::string at(const std::string& host, const EtcdServer& server) {
    return host + ":" + std::to_string(server.clientPort());
  }

  static testing::AssertionResult refused(const Client::Options& options, const std::string& why) {
    BlockingClient etcd(options);
    const auto write = etcd.put("k", "v");
    if (write) return testing::AssertionFailure() << "it succeeded";
    if (write.error().code != ErrorCode::kUnavailable || write.error().ambiguous())
      return testing::AssertionFailure() << "not as a server that is away: " << write.error().message;
    if (etcd.range(KeyRange::single("k")) || etcd.watch(KeyRange::single("k"), 1) || etcd.keepAlive(1))
      return testing::AssertionFailure() << "a call succeeded";
    if (write.error().message.find(why) == std::string::npos)
      return testing::AssertionFailure() << write.error().message;
    return testing::AssertionSuccess();
  }

  // Until it succeeds, as callers do.
  static StoreResult<int64_t> putInTime(BlockingClient& etcd, const std::string& key) {
    const auto deadline = SteadyClock::now() + 20s;
    auto write = etcd.put(key, "v");
    while (!write && SteadyClock::now() < deadline) {
      await(etcd.thread, etcd.thread.sleepFor(20ms));
      write = etcd.put(key, "v");
    }
    return write;
  }

  // Calls until the client has looked at its files again.
  template <typename Condition>
  static bool callsUntil(BlockingClient& etcd, Condition condition) {
    const auto deadline = SteadyClock::now() + 20s;
    while (!condition(etcd)) {
      if (SteadyClock::now() > deadline) return false;
      EXPECT_TRUE(succeeded(etcd.range(KeyRange::single("k"))));
      await(etcd.thread, etcd.thread.sleepFor(20ms));
    }
    return true;
  }

  TemporaryFiles files_;
  CertificateAuthority authority_;
  CertificateAuthority other_authority_{"other authority"};

 private:
  void writePair(const std::string& name, const CertificateAndKey& pair) const {
    files_.write(name + ".pem", pair.certificate);
    files_.write(name + ".key", pair.key);
  }
};

constexpr const char* kNotVerified = "certificate verify failed";

// gRPC ends on a thread of its own when its last part is let go by one of its threads. That must not meet OpenSSL's
// exit handlers: what is used behind them is never freed.
class GrpcEnds : public testing::Environment {
 public:
  void TearDown() override {
    const auto deadline = SteadyClock::now() + 60s;  // to connect may take it 20 s, and is not cut short
    while (grpc_is_initialized() != 0 && SteadyClock::now() < deadline) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(grpc_is_initialized(), 0);
  }
};
const testing::Environment* const kGrpcEnds = testing::AddGlobalTestEnvironment(new GrpcEnds);

TEST_F(TlsTest, EveryKindOfCallOverTls) {
  EtcdServer server(serverOptions());
  ASSERT_EQ(server.endpoint().substr(0, 8), "https://");
  BlockingClient etcd(with(caOnly(), {server.endpoint()}));
  const auto lease = etcd.grant(30s);
  ASSERT_TRUE(succeeded(lease));
  auto watch = etcd.watch(KeyRange::single("k"), 2);
  ASSERT_TRUE(succeeded(watch));
  EXPECT_TRUE(succeeded(etcd.put("k", "v", lease->id)));
  EXPECT_EQ(etcd.value("k"), "v");
  EXPECT_TRUE(succeeded(etcd.next(*watch)));
  EXPECT_TRUE(succeeded(etcd.keepAlive(lease->id)));
  EXPECT_TRUE(succeeded(etcd.revoke(lease->id)));
  EXPECT_EQ(etcd.count("tls_failures"), 0u);
}

TEST_F(TlsTest, HostsOfEveryForm) {
  EtcdServer v4(serverOptions());
  for (const std::string host : {"https://localhost", "HTTPS://127.0.0.1", "localhost", "127.0.0.1"}) {
    BlockingClient etcd(with(caOnly(), {at(host, v4)}));
    EXPECT_TRUE(succeeded(etcd.put("k", host))) << host;
  }
  auto options = serverOptions();
  options.client_host = "[::1]";
  EtcdServer v6(options);
  for (const std::string host : {"https://[::1]", "[0:0::1]"}) {
    BlockingClient etcd(with(caOnly(), {at(host, v6)}));
    EXPECT_TRUE(succeeded(etcd.put("k", host))) << host;
  }
}

TEST_F(TlsTest, AnotherAuthorityIsRefused) {
  EtcdServer server(serverOptions());
  files_.write("ca.pem", other_authority_.certificate());
  EXPECT_TRUE(refused(with(caOnly(), {server.endpoint()}), kNotVerified));
  EXPECT_EQ(server.ctl({"get", "k"}), "");
}

TEST_F(TlsTest, AnotherNameIsRefused) {
  CertificateOptions elsewhere;
  elsewhere.names = {"DNS:elsewhere.test", "IP:127.0.0.2"};
  elsewhere.common_name = "127.0.0.1";
  writeServer(authority_.issue(elsewhere));
  EtcdServer server(serverOptions());
  EXPECT_TRUE(refused(with(caOnly(), {server.endpoint()}), "127.0.0.1 is not in peer certificate"));
}

TEST_F(TlsTest, SaysWhenOurCertificateEnds) {
  CertificateOptions short_lived;
  short_lived.not_after = 600s;
  const std::string path = files_.write("short.pem", authority_.issue(short_lived).certificate);
  const auto end = Client::certificateEnd({.ca_file = {}, .certificate_file = path, .key_file = {}});
  ASSERT_TRUE(end);
  const auto now = std::chrono::system_clock::now();
  EXPECT_LE(*end, now + 600s);
  EXPECT_GE(*end, now + 300s);
  EXPECT_FALSE(Client::certificateEnd({}));
  EXPECT_FALSE(Client::certificateEnd({.ca_file = {}, .certificate_file = files_.write("none.pem", "x"), .key_file = {}}));
}

TEST_F(TlsTest, ACertificateOutOfItsTimeIsRefused) {
  CertificateOptions expired;
  expired.not_after = -60s;
  writeServer(authority_.issue(expired));
  EtcdServer server(serverOptions());
  EXPECT_TRUE(refused(with(caOnly(), {server.endpoint()}), kNotVerified));
  CertificateOptions future;
  future.not_before = 3000s;
  writeServer(authority_.issue(future));
  EXPECT_TRUE(refused(with(caOnly(), {server.endpoint()}), kNotVerified));
  writeServer(authority_.issue());
  BlockingClient etcd(with(caOnly(), {server.endpoint()}));
  EXPECT_TRUE(succeeded(etcd.put("k", "v"))) << "etcd reads its certificate for each connection";
}

TEST_F(TlsTest, WithoutFilesTheSystemsAuthoritiesCount) {
  EtcdServer server(serverOptions());
  EXPECT_TRUE(refused(with(std::nullopt, {server.endpoint()}), kNotVerified));
  EXPECT_TRUE(refused(with(TlsFiles{}, {server.endpoint()}), kNotVerified));
  ::setenv("SSL_CERT_FILE", files_.path("ca.pem").c_str(), 1);
  for (const auto& tls : {std::optional<TlsFiles>(), std::optional(TlsFiles{})}) {
    BlockingClient etcd(with(tls, {server.endpoint()}));
    EXPECT_TRUE(succeeded(etcd.put("k", "v")));
  }
  ::unsetenv("SSL_CERT_FILE");
}

TEST_F(TlsTest, TlsAndPlainDoNotMeet) {
  EtcdServer plain;
  EXPECT_TRUE(refused(with(caOnly(), {at("https://127.0.0.1", plain)}), "failed to connect"));
  EXPECT_TRUE(refused(with(caOnly(), {at("127.0.0.1", plain)}), "failed to connect"));
  EXPECT_EQ(plain.ctl({"get", "k"}), "");
  EtcdServer secure(serverOptions());
  BlockingClient etcd(optionsFor({at("http://127.0.0.1", secure)}));
  EXPECT_TRUE(failedWith(etcd.put("k", "v"), ErrorCode::kUnavailable));
}

TEST_F(TlsTest, ClientsMustShowTheirCertificate) {
  EtcdServer server(serverOptions(true));
  {
    BlockingClient etcd(with(caAndClient(), {server.endpoint()}));
    EXPECT_TRUE(succeeded(etcd.put("k", "v")));
  }
  {
    BlockingClient etcd(with(caOnly(), {server.endpoint()}));
    EXPECT_TRUE(failedWith(etcd.put("k", "w"), ErrorCode::kUnavailable));
  }
  writeClient(other_authority_.issue());
  BlockingClient etcd(with(caAndClient(), {server.endpoint()}));
  EXPECT_TRUE(failedWith(etcd.put("k", "w"), ErrorCode::kUnavailable));
  writeClient(authority_.issue());
  EXPECT_TRUE(succeeded(putInTime(etcd, "k"))) << "the right one, without a restart";
}

TEST_F(TlsTest, FailOverGoesOnWithTls) {
  EtcdServer server(serverOptions());
  EtcdServer stranger;  // plain
  EtcdServer away(serverOptions());
  away.kill();
  BlockingClient etcd(
      with(caOnly(), {away.endpoint(), at("https://127.0.0.1", stranger), at("https://localhost", server)}));
  EXPECT_TRUE(succeeded(etcd.put("k", "v")));
  EXPECT_EQ(etcd.value("k"), "v");
  EXPECT_EQ(ClientInsight::currentEndpoint(etcd.client), at("localhost", server));
  EXPECT_EQ(etcd.count("endpoint_failures"), 2u);
}

// --- rotation ---

TEST_F(TlsTest, ANewAuthorityIsPickedUp) {
  EtcdServer server(serverOptions());
  BlockingClient etcd(with(caOnly(), {server.endpoint()}));
  ASSERT_TRUE(succeeded(etcd.put("k", "1")));
  writeServer(other_authority_.issue());
  server.restart();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(failedWith(etcd.put("k", "2"), ErrorCode::kUnavailable));
  files_.write("ca.pem", other_authority_.certificate());
  EXPECT_TRUE(succeeded(putInTime(etcd, "k")));
  EXPECT_EQ(etcd.count("tls_reloads"), 1u);
  EXPECT_TRUE(succeeded(etcd.watch(KeyRange::single("k"), 1)));
}

TEST_F(TlsTest, BothAuthoritiesMayBeTrustedMeanwhile) {
  EtcdServer server(serverOptions());
  BlockingClient etcd(with(caOnly(), {server.endpoint()}));
  ASSERT_TRUE(succeeded(etcd.put("k", "1")));
  files_.write("ca.pem", authority_.certificate() + other_authority_.certificate());
  writeServer(other_authority_.issue());
  server.restart();
  EXPECT_TRUE(succeeded(putInTime(etcd, "k")));
}

TEST_F(TlsTest, ARotationDisturbsNoConnection) {
  EtcdServer server(serverOptions(true));
  BlockingClient etcd(with(caAndClient(), {server.endpoint()}));
  auto watch = etcd.watch(KeyRange::single("k"), 2);
  ASSERT_TRUE(succeeded(watch));
  writeClient(authority_.issue());
  // One file after the other: a look in between sees a key that does not fit.
  ASSERT_TRUE(callsUntil(etcd, [](const auto& client) { return client.count("tls_reloads") == 1; }));
  ASSERT_TRUE(succeeded(etcd.put("k", "v")));
  EXPECT_TRUE(succeeded(etcd.next(*watch))) << "the stream of before";
  EXPECT_EQ(etcd.count("endpoint_failures"), 0u);
}

TEST_F(TlsTest, ARotatedClientCertificateIsShownToTheNextConnection) {
  EtcdServer server(serverOptions(true));
  BlockingClient etcd(with(caAndClient(), {server.endpoint()}));
  ASSERT_TRUE(succeeded(etcd.put("k", "1")));
  writeClient(other_authority_.issue());
  files_.write("server-ca.pem", other_authority_.certificate());
  server.restart();
  EXPECT_TRUE(succeeded(putInTime(etcd, "k")));
  EXPECT_EQ(etcd.count("tls_reloads"), 1u);
}

TEST_F(TlsTest, BadFilesAreNotTakenOver) {
  EtcdServer server(serverOptions(true));
  BlockingClient etcd(with(caAndClient(), {server.endpoint()}));
  ASSERT_TRUE(succeeded(etcd.put("k", "1")));
  const CertificateAndKey good = authority_.issue();
  CertificateOptions late;
  late.not_after = -1s;
  const CertificateAndKey expired = authority_.issue(late);
  uint64_t failures = 0;
  const auto noticed = [&] {
    ++failures;
    return callsUntil(etcd, [&](const auto& client) { return client.count("tls_failures") >= failures; });
  };

  files_.write("client.key", good.key);  // of another certificate
  EXPECT_TRUE(noticed());
  files_.write("client.key", "");
  EXPECT_TRUE(noticed());
  files_.remove("client.pem");
  EXPECT_TRUE(noticed());
  files_.write("ca.pem", authority_.certificate().substr(0, 300));
  EXPECT_TRUE(noticed());
  files_.write("ca.pem", authority_.certificate() + other_authority_.certificate().substr(0, 300));
  EXPECT_TRUE(noticed());

  EXPECT_EQ(etcd.count("tls_reloads"), 0u);
  server.restart();
  EXPECT_TRUE(succeeded(putInTime(etcd, "k"))) << "with what was read at the start";

  files_.write("ca.pem", authority_.certificate());
  writeClient(expired);
  failures = etcd.count("tls_failures");
  EXPECT_TRUE(noticed());
  server.restart();
  EXPECT_TRUE(succeeded(putInTime(etcd, "k")));

  writeClient(good);
  EXPECT_TRUE(callsUntil(etcd, [](const auto& client) { return client.count("tls_reloads") == 1; }));
}

TEST_F(TlsTest, WhatIsMissingAtTheStartMayComeLater) {
  EtcdServer server(serverOptions());
  files_.remove("ca.pem");
  BlockingClient etcd(with(caOnly(), {server.endpoint()}));
  const auto write = etcd.put("k", "v");
  EXPECT_TRUE(failedWith(write, ErrorCode::kUnavailable));
  EXPECT_FALSE(write.error().ambiguous());
  EXPECT_NE(write.error().message.find("no usable TLS certificates"), std::string::npos) << write.error().message;
  EXPECT_TRUE(failedWith(etcd.watch(KeyRange::single("k"), 1), ErrorCode::kUnavailable));
  EXPECT_TRUE(failedWith(etcd.keepAlive(1), ErrorCode::kUnavailable));
  EXPECT_EQ(etcd.count("tls_failures"), 1u) << "logged once";
  files_.write("ca.pem", authority_.certificate());
  EXPECT_TRUE(succeeded(etcd.put("k", "v")));
  EXPECT_TRUE(succeeded(etcd.watch(KeyRange::single("k"), 1)));
}

TEST_F(TlsTest, WithPasswordToo) {
  EtcdServer server(serverOptions(true));
  server.ctl({"user", "add", "node:secret"});
  server.ctl({"role", "add", "nodes"});
  server.ctl({"role", "grant-permission", "nodes", "readwrite", "k"});
  server.ctl({"user", "grant-role", "node", "nodes"});
  server.enableAuthentication();
  auto options = with(caAndClient(), {server.endpoint()});
  options.credentials = Credentials{"node", "secret"};
  BlockingClient etcd(options);
  EXPECT_TRUE(succeeded(etcd.put("k", "v")));
  EXPECT_TRUE(failedWith(etcd.put("l", "v"), ErrorCode::kPermissionDenied));
}

// --- the files ---

class TlsFilesTest : public TlsTest {
 protected:
  static std::string problem(TlsFiles tls) {
    const auto checked = Client::checkTlsFiles(with(std::move(tls), {"https://localhost:1"}));
    return checked ? std::string() : checked.error().message;
  }
  testing::AssertionResult says(const TlsFiles& tls, const std::string& file, const std::string& why) const {
    const std::string message = problem(tls);
    if (message.find(files_.path(file)) != std::string::npos && message.find(why) != std::string::npos)
      return testing::AssertionSuccess();
    return testing::AssertionFailure() << "'" << message << "'";
  }
};

TEST_F(TlsFilesTest, GoodOnesPass) {
  EXPECT_EQ(problem(caOnly()), "");
  EXPECT_EQ(problem(caAndClient()), "");
  const CertificateAndKey client = authority_.issue();
  files_.write("client.pem", "a comment\n" + client.certificate + "and the issuer\n" + authority_.certificate());
  files_.write("client.key", client.key);
  EXPECT_EQ(problem(caAndClient()), "");
  CertificateOptions expired;
  expired.not_after = -60s;
  writeClient(authority_.issue(expired));
  EXPECT_EQ(problem(caAndClient()), "") << "the clock may be wrong";
}

TEST_F(TlsFilesTest, BadOnesAreNamed) {
  const std::string certificate = authority_.certificate();
  files_.remove("ca.pem");
  EXPECT_TRUE(says(caOnly(), "ca.pem", "No such file"));
  for (const std::string& text :
       {std::string(), std::string("nonsense"), std::string(3, '\0'), authority_.issue().key}) {
    files_.write("ca.pem", text);
    EXPECT_TRUE(says(caOnly(), "ca.pem", "no certificate in it"));
  }
  files_.write("ca.pem", certificate + certificate.substr(0, certificate.size() / 2));
  EXPECT_TRUE(says(caOnly(), "ca.pem", "cannot be read"));
  files_.write("ca.pem", certificate + std::string(9 << 20, '\n'));
  EXPECT_TRUE(says(caOnly(), "ca.pem", "larger than"));
  EXPECT_TRUE(says({.ca_file = files_.path(""), .certificate_file = {}, .key_file = {}}, "", "not a regular file"));
  files_.write("ca.pem", certificate);

  files_.write("client.key", authority_.issue().key);
  EXPECT_TRUE(says(caAndClient(), "client.key", "is not the key of"));
  files_.write("client.key", "nonsense");
  EXPECT_TRUE(says(caAndClient(), "client.key", "no private key in it"));
  files_.remove("client.pem");
  EXPECT_TRUE(says(caAndClient(), "client.pem", "No such file"));
}

TEST_F(TlsFilesTest, WithoutHttpsNothingIsRead) {
  Client::Options options;
  EXPECT_TRUE(Client::checkTlsFiles(options));
  options.endpoints = {"https://localhost:1"};
  ::setenv("SSL_CERT_FILE", files_.path("none").c_str(), 1);
  EXPECT_FALSE(Client::checkTlsFiles(options));
  ::unsetenv("SSL_CERT_FILE");
}

}  // namespace
}  // namespace idetcd::etcd
