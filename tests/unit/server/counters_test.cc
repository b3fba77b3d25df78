// Counters that no other test of this folder moves.
#include <functional>
#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "../net/sockets.h"
#include "dns_packets.h"
#include "net/tls_stream.h"
#include "running_server.h"
#include "server/worker_context.h"
#include "support/eventually.h"
#include "support/metric_values.h"
#include "support/test_certificates.h"

namespace idetcd::server {
namespace {

using test::query;

class FunctionHandler : public resolve::Handler {
 public:
  using Function = std::function<resolve::QueryOutcome(const dns::Query&, const resolve::Request&)>;
  explicit FunctionHandler(Function function) : function_(std::move(function)) {}
  resolve::QueryOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t) override {
    return function_(query, request);
  }

 private:
  const Function function_;
};

resolve::QueryOutcome echo(const dns::Query& query) {
  query.message[2] |= 0x80;  // QR
  return resolve::QueryOutcome::answer(query.question_end);
}

TEST(ServerCounters, AnAnswerThatTheKernelDoesNotTake) {
  test::RunningServer server;
  server.setHandler(std::make_unique<FunctionHandler>([](const dns::Query& query, const resolve::Request& request) {
    // Port 0, which sendmmsg refuses; of what comes from there nothing gets this far.
    const auto* source = reinterpret_cast<const sockaddr_in*>(request.source);
    const_cast<sockaddr_in*>(source)->sin_port = 0;
    return echo(query);
  }));
  net::test::Socket client = net::test::udpClient();
  ASSERT_TRUE(client.sendTo(server.udpAddress(), query(1, "a.")));
  while (server.counters().udp_send_failed.value() == 0) server.onLoop([] {});
  EXPECT_EQ(server.counters().udp_received.value(), 1u);
  EXPECT_EQ(server.counters().udp_sent.value(), 1u) << "it was written";
  EXPECT_EQ(test_support::sumOf(server.registry(), "idetcd_udp_send_failures_total"), 1);
}

// As a zone transfer has (RFC 5936 §2.2).
TEST(ServerCounters, AReplyOfSeveralMessages) {
  test::RunningServer server;
  std::unique_ptr<resolve::ReplySink> kept;
  server.setHandler(std::make_unique<FunctionHandler>([&](const dns::Query& query, const resolve::Request& request) {
    if (kept) return echo(query);
    kept = request.deferrer->keepClient();
    return resolve::QueryOutcome::pending();
  }));
  net::test::Socket client = net::test::tcpClient(server.tcpAddress());
  client.send(test::framed(query(7, "a.")));
  bool is_kept = false;
  while (!is_kept) server.onLoop([&] { is_kept = kept != nullptr; });
  for (const char* part : {"first message", "second message", "third message"}) {
    const std::string_view text(part);
    server.onLoop([&] { kept->send({reinterpret_cast<const uint8_t*>(text.data()), text.size()}); });
    EXPECT_EQ(client.receiveExactly(2 + text.size()).substr(2), text);
  }
  client.send(test::framed(query(8, "a.")));
  EXPECT_EQ(client.receiveExactly(2 + query(8, "a.").size()).substr(2, 2), query(8, "a.").substr(0, 2)) << "meanwhile";
  server.onLoop([&] { kept.reset(); });
  client.send(test::framed(query(9, "a.")));
  bool again = false;
  while (!again) server.onLoop([&] { again = kept != nullptr; });
  server.onLoop([&] { kept.reset(); });
}

TEST(ServerCounters, AnAnswerThatIsPutOff) {
  test::RunningServer server;
  std::unique_ptr<resolve::ReplySink> kept;
  bool is_asked_again = false;
  server.setHandler(std::make_unique<FunctionHandler>([&](const dns::Query& query, const resolve::Request& request) {
    if (std::exchange(is_asked_again, true)) return echo(query);
    kept = request.deferrer->keepClient();
    return resolve::QueryOutcome::pending();
  }));
  net::test::Socket client = net::test::tcpClient(server.tcpAddress());
  client.send(test::framed(query(7, "a.")));
  bool is_kept = false;
  while (!is_kept) server.onLoop([&] { is_kept = kept != nullptr; });
  constexpr size_t kAll = WriteBudget::Limits{}.process;
  server.onLoop([&] {
    server.budget().change(std::nullopt, 0, kAll);  // as if others did not read
    EXPECT_TRUE(kept->pushBack());
    kept.reset();
  });
  EXPECT_EQ(server.counters().tcp_deferred.value(), 1u);
  server.onLoop([&] { server.budget().change(std::nullopt, kAll, 0); });
  EXPECT_GT(client.receiveExactly(2).size(), 0u) << "it was asked anew";
}

// Of late answers `rrl` may say so too.
TEST(ServerCounters, WhatIsDroppedHasAReason) {
  test::RunningServer server;
  std::unique_ptr<resolve::ReplySink> kept;
  server.setHandler(std::make_unique<FunctionHandler>([&](const dns::Query& query, const resolve::Request& request) {
    if (query.qtype == 1) return resolve::QueryOutcome::drop(resolve::DropReason::kAcl);
    kept = request.deferrer->keepClient();
    return resolve::QueryOutcome::pending();
  }));
  const auto dropped = [&](const std::string& reason) {
    return test_support::valuesOf(server.registry()).at("idetcd_queries_dropped_total{reason=\"" + reason + "\"}");
  };
  net::test::Socket client = net::test::udpClient();
  ASSERT_TRUE(client.sendTo(server.udpAddress(), query(1, "a.")));
  while (dropped("acl") == 0) server.onLoop([] {});
  ASSERT_TRUE(client.sendTo(server.udpAddress(), query(2, "a.", 28)));
  bool is_kept = false;
  while (!is_kept) server.onLoop([&] { is_kept = kept != nullptr; });
  server.onLoop([&] {
    kept->noteDropped(resolve::DropReason::kRrl);
    kept.reset();
  });
  EXPECT_EQ(dropped("rrl"), 1);
  EXPECT_EQ(dropped("acl"), 1);
  EXPECT_EQ(dropped("receive_buffer"), 0);
  EXPECT_EQ(server.counters().dropped.value(), 2u);
}

// With each connection that is closed for room go the queries that it waits for.
TEST(ServerCounters, WhatWaitsOnAConnectionThatGivesWay) {
  test::RunningServer server("127.0.0.1", {.max_connections = 1});
  std::vector<std::unique_ptr<resolve::ReplySink>> kept;
  server.setHandler(std::make_unique<FunctionHandler>([&](const dns::Query&, const resolve::Request& request) {
    kept.push_back(request.deferrer->keepClient());
    return resolve::QueryOutcome::pending();
  }));
  net::test::Socket first = net::test::tcpClient(server.tcpAddress());
  first.send(test::framed(query(7, "a.")) + test::framed(query(8, "b.")));
  size_t waiting = 0;
  while (waiting < 2) server.onLoop([&] { waiting = kept.size(); });
  const net::test::Socket second = net::test::tcpClient(server.tcpAddress());
  EXPECT_TRUE(first.isClosedByPeer());
  EXPECT_EQ(server.counters().dropped.value(resolve::DropReason::kTcpLimits), 2u);
  net::test::Socket nonsense = net::test::tcpClient(server.tcpAddress());
  nonsense.send(std::string("\0\1x", 3));
  EXPECT_TRUE(nonsense.isClosedByPeer());
  EXPECT_EQ(server.counters().dropped.value(resolve::DropReason::kMalformed), 1u);
  server.onLoop([&] { kept.clear(); });
}

TEST(ServerCounters, BatchesByTheirSize) {
  test::RunningServer server;
  net::test::Socket client = net::test::udpClient();
  ASSERT_TRUE(client.sendTo(server.udpAddress(), query(1, "a.")));
  while (server.counters().udp_batches.count() == 0) server.onLoop([] {});
  EXPECT_EQ(server.counters().udp_batches.sum(), 1u);
  EXPECT_EQ(test_support::sumOf(server.registry(), "idetcd_udp_batch_datagrams"), 1);
}

TEST(ServerCounters, Handshakes) {
  const test_support::CertificateAuthority authority;
  const test_support::TemporaryFiles files;
  const auto pair = authority.issue();
  net::TlsServer::Options options;
  options.certificate_file = files.write("server.pem", pair.certificate);
  options.key_file = files.write("server.key", pair.key);
  test::RunningServer server;
  const SocketAddress address = server.listenToo({.tls = net::TlsServer::make(options).value()});

  struct Client : net::StreamHandler {
    explicit Client(net::EventLoop& event_loop) : loop(event_loop) {}
    void onConnected() override { loop.stop(); }
    void onData(std::span<const uint8_t>) override {}
    void onEnd() override { loop.stop(); }
    void onDrained() override {}
    void onError() override { loop.stop(); }
    net::EventLoop& loop;
  };
  net::EventLoop loop;
  net::TcpConnector connector(loop);
  const auto connect = [&](const std::string& ca) {
    Client client(loop);
    net::TlsPeer peer(
        net::TlsContext::make({.certificate_file = {}, .key_file = {}, .ca_file = ca, .application_protocol = {}})
            .value(),
        "localhost", address.ip);
    net::TlsStream stream(peer, connector.connect(address).value());
    stream.start(client);
    loop.run();
  };
  connect(files.write("ca.pem", authority.certificate()));
  ASSERT_TRUE(eventually([&] { return server.counters().tls_handshakes.value() > 0; }));
  EXPECT_EQ(server.counters().tls_failed.value(), 0u);
  connect(files.write("other.pem", test_support::CertificateAuthority().certificate()));
  ASSERT_TRUE(eventually([&] { return server.counters().tls_failed.value() > 0; }));
  EXPECT_EQ(server.counters().tls_handshakes.value(), 1u);
}

// A registry has all of them.
TEST(ServerCounters, AreAllRegistered) {
  const test::RunningServer server;
  size_t families = 0;
  server.registry().visit([&families](const metrics::Sample& sample) {
    EXPECT_FALSE(sample.family.help.empty());
    ++families;
  });
  EXPECT_EQ(families, 13u + resolve::kDropReasons.size() + 1) << "and the receive buffer";
}

}  // namespace
}  // namespace idetcd::server
