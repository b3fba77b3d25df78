// Both sides of TLS, of this process.
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "net/tcp.h"
#include "net/tls_stream.h"
#include "support/test_certificates.h"

namespace idetcd::net {
namespace {

using std::chrono::milliseconds;
using test_support::CertificateAuthority;
using test_support::TemporaryFiles;
using ClientAuth = TlsServer::ClientAuth;

class TlsServerTest : public testing::Test {
 protected:
  struct Side : StreamHandler {
    void onConnected() override { is_connected = true; }
    void onData(std::span<const uint8_t> bytes) override { text.append(bytes.begin(), bytes.end()); }
    void onEnd() override { is_over = true; }
    void onDrained() override {}
    void onError() override {
      why = stream->failure();
      is_over = true;
    }
    bool is_connected = false;
    bool is_over = false;
    std::string text;
    std::string why;
    std::unique_ptr<TlsStream> stream;
  };

  TlsServerTest() {
    files_.write("ca.pem", authority_.certificate());
    issue("server", authority_);
  }
  void issue(const std::string& name, const CertificateAuthority& by) const {
    const auto pair = by.issue();
    files_.write(name + ".pem", pair.certificate);
    files_.write(name + ".key", pair.key);
  }
  TlsServer::Options options(ClientAuth auth = ClientAuth::kNone) const {
    return {.certificate_file = files_.path("server.pem"),
            .key_file = files_.path("server.key"),
            .ca_file = files_.path("ca.pem"),
            .client_auth = auth};
  }
  TlsContext::Options clientOptions(const std::string& certificate = {}) const {
    TlsContext::Options made{
        .certificate_file = {}, .key_file = {}, .ca_file = files_.path("ca.pem"), .application_protocol = "dot"};
    if (certificate.empty()) return made;
    made.certificate_file = files_.path(certificate + ".pem");
    made.key_file = files_.path(certificate + ".key");
    return made;
  }

  void serve(const TlsServer::Options& how) { tls_ = TlsServer::make(how).value(); }
  void beClient(const TlsContext::Options& how) {
    peer_.emplace(TlsContext::make(how).value(), "localhost", listener_->localAddress().ip);
  }
  // A connection from its beginning to the end of the handshake on both sides, or to what ends it.
  void connect() {
    client_ = std::make_unique<Side>();
    server_ = std::make_unique<Side>();
    client_->stream = std::make_unique<TlsStream>(*peer_, connector_.connect(listener_->localAddress()).value());
    client_->stream->start(*client_);
    client_->stream->write({'q'});
    ASSERT_TRUE(runUntil([this] { return server_->text == "q" || server_->is_over || client_->is_over; }));
    if (server_->is_over || client_->is_over) return;
    server_->stream->write({'a'});  // behind the tickets
    ASSERT_TRUE(runUntil([this] { return client_->text == "a"; }));
  }
  bool isServed() {
    connect();
    return server_->text == "q" && client_->text == "a";
  }
  bool runUntil(const std::function<bool()>& condition) {
    bool holds = false;
    Timer look(loop_, [&] {
      holds = condition();
      if (holds) loop_.stop();
    });
    look.start(milliseconds(1), milliseconds(1));
    Timer guard(loop_, [this] { loop_.stop(); });
    guard.start(std::chrono::minutes(1));
    loop_.run();
    return holds;
  }

  const CertificateAuthority authority_;
  const CertificateAuthority other_authority_;
  const TemporaryFiles files_;
  EventLoop loop_;
  TcpConnector connector_{loop_};
  std::shared_ptr<TlsServer> tls_;
  std::optional<TlsPeer> peer_;
  std::unique_ptr<Side> client_;
  std::unique_ptr<Side> server_;
  const std::unique_ptr<TcpListener> listener_ =
      TcpListener::listen(loop_, {.ip = IpAddress::v4({127, 0, 0, 1})}, false, [this](auto connection) {
        server_->stream = std::make_unique<TlsStream>(*tls_, "dot", std::move(connection));
        server_->stream->start(*server_);
      }).value();
};

TEST_F(TlsServerTest, BothSidesSpeak) {
  serve(options());
  beClient(clientOptions());
  EXPECT_TRUE(isServed());
  EXPECT_TRUE(server_->is_connected && client_->is_connected);
  EXPECT_EQ(server_->stream->local(), listener_->localAddress());
  EXPECT_EQ(server_->stream->remote().ip, listener_->localAddress().ip);
  server_->stream.reset();
  EXPECT_TRUE(runUntil([this] { return client_->is_over; }));
  EXPECT_EQ(client_->why, "") << "an end in order";
}

TEST_F(TlsServerTest, WhatIsNotReadIsKnown) {
  serve(options());
  beClient(clientOptions());
  ASSERT_TRUE(isServed());
  server_->stream->pauseReading();
  client_->stream->write({'x'});
  std::vector<uint8_t> much(size_t{32} << 20);
  client_->stream->pauseReading();
  EXPECT_FALSE(server_->stream->write(std::vector<uint8_t>(much)));
  EXPECT_GT(server_->stream->queued(), 0u);
  EXPECT_FALSE(server_->stream->isDrained());
  client_->stream->resumeReading();
  EXPECT_TRUE(runUntil([this, size = much.size()] { return client_->text.size() == 1 + size; }));
  EXPECT_EQ(server_->text, "q") << "it does not read";
  server_->stream->resumeReading();
  EXPECT_TRUE(runUntil([this] { return server_->text == "qx"; }));
  EXPECT_TRUE(server_->stream->isDrained());
}

TEST_F(TlsServerTest, SessionsAreResumed) {
  serve(options());
  beClient(clientOptions());
  ASSERT_TRUE(isServed());
  EXPECT_FALSE(server_->stream->isResumed());
  ASSERT_TRUE(isServed());
  EXPECT_TRUE(server_->stream->isResumed());
  ASSERT_TRUE(tls_->reload());
  ASSERT_TRUE(isServed());
  EXPECT_FALSE(server_->stream->isResumed()) << "a session does not outlive the files";
}

TEST_F(TlsServerTest, KeysOfTicketsAreReplaced) {
  TlsServer::Options short_lived = options();
  short_lived.ticket_life = milliseconds(50);
  serve(short_lived);
  beClient(clientOptions());
  ASSERT_TRUE(isServed());
  std::this_thread::sleep_for(2 * short_lived.ticket_life);  // no event: the key is old then
  ASSERT_TRUE(isServed());
  EXPECT_FALSE(server_->stream->isResumed());
}

TEST_F(TlsServerTest, AnotherProtocolIsRefused) {
  serve(options());
  TlsContext::Options http = clientOptions();
  http.application_protocol = "h2";
  beClient(http);
  EXPECT_FALSE(isServed());
  EXPECT_NE(client_->why.find("no application protocol"), std::string::npos) << client_->why;
  TlsContext::Options silent = clientOptions();
  silent.application_protocol.clear();
  beClient(silent);
  EXPECT_TRUE(isServed());
}

TEST_F(TlsServerTest, WhatCannotBeUsedLeavesWhatThereWas) {
  serve(options());
  beClient(clientOptions());
  files_.write("server.pem", other_authority_.issue().certificate);  // of another key
  EXPECT_FALSE(tls_->reload());
  EXPECT_TRUE(isServed());
  files_.remove("server.key");
  EXPECT_FALSE(tls_->reload());
  EXPECT_TRUE(isServed());
  issue("server", other_authority_);
  ASSERT_TRUE(tls_->reload());
  EXPECT_FALSE(isServed()) << "the client does not know this authority";
  TlsServer::Options wrong = options();
  wrong.key_file = files_.path("ca.pem");
  EXPECT_FALSE(TlsServer::make(wrong));
}

TEST_F(TlsServerTest, ClientsCertificates) {
  issue("own", authority_);
  issue("foreign", other_authority_);
  const struct {
    ClientAuth auth;
    bool without;
    bool foreign;
  } cases[] = {
      {ClientAuth::kNone, true, true},
      {ClientAuth::kRequest, true, true},
      {ClientAuth::kRequire, false, true},
      {ClientAuth::kVerifyIfGiven, true, false},
      {ClientAuth::kRequireAndVerify, false, false},
  };
  for (const auto& each : cases) {
    serve(options(each.auth));
    const auto serves = [this](const std::string& certificate) {
      beClient(clientOptions(certificate));
      return isServed();
    };
    EXPECT_EQ(serves(""), each.without) << static_cast<int>(each.auth);
    EXPECT_EQ(serves("foreign"), each.foreign) << static_cast<int>(each.auth);
    EXPECT_TRUE(serves("own")) << static_cast<int>(each.auth);
    EXPECT_TRUE(isServed()) << "again, by the session: " << static_cast<int>(each.auth);
    EXPECT_TRUE(server_->stream->isResumed());
  }
}

}  // namespace
}  // namespace idetcd::net
