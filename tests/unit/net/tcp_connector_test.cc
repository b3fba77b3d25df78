#include <string>

#include <gtest/gtest.h>

#include "net/tcp.h"
#include "net/tls_stream.h"

namespace idetcd::net {
namespace {

using std::chrono::milliseconds;

class TcpConnectorTest : public testing::Test {
 protected:
  struct Peer : StreamHandler {
    explicit Peer(EventLoop& event_loop) : loop(event_loop) {}
    void onConnected() override { log += "connected "; }
    void onData(std::span<const uint8_t> bytes) override {
      log.append(bytes.begin(), bytes.end());
      size += bytes.size();
      if (size == expected) loop.stop();
    }
    void onEnd() override {
      log += " end";
      loop.stop();
    }
    void onDrained() override {}
    void onError() override {
      log += "error";
      loop.stop();
    }
    EventLoop& loop;
    std::string log;
    size_t size = 0;
    size_t expected = SIZE_MAX;
  };

  void run() {
    Timer guard(loop, [this] {
      ADD_FAILURE() << "nothing happened";
      loop.stop();
    });
    guard.start(std::chrono::minutes(1));  // counted from the loop's last turn, before the test was prepared
    loop.run();
  }
  std::unique_ptr<TcpListener> listen() {
    return TcpListener::listen(loop, {.ip = IpAddress::v4({127, 0, 0, 1})}, false,
                               [this](auto connection) {
                                 accepted = std::move(connection);
                                 accepted->start(server);
                               })
        .value();
  }
  static std::vector<uint8_t> bytes(std::string_view text) { return {text.begin(), text.end()}; }

  EventLoop loop;
  TcpConnector connector{loop};
  Peer server{loop};
  Peer client{loop};
  std::unique_ptr<TcpConnection> accepted;
};

TEST_F(TcpConnectorTest, WhatIsWrittenEarlyArrivesInOrder) {
  const auto listener = listen();
  const auto connection = connector.connect(listener->localAddress()).value();
  connection->start(client);
  EXPECT_FALSE(connection->write(bytes("one ")));
  EXPECT_FALSE(connection->write(bytes("two")));
  server.expected = 7;
  run();
  EXPECT_EQ(server.log, "one two");
  EXPECT_EQ(client.log, "connected ");
  EXPECT_EQ(connection->remote(), listener->localAddress());
  accepted->write(bytes("three"));
  client.expected = 5;
  run();
  EXPECT_EQ(client.log, "connected three");
  accepted.reset();
  run();
  EXPECT_EQ(client.log, "connected three end");
}

TEST_F(TcpConnectorTest, RefusalIsAnErrorWithAReason) {
  auto listener = listen();
  const SocketAddress address = listener->localAddress();
  listener.reset();
  const auto connection = connector.connect(address).value();
  connection->start(client);
  run();
  EXPECT_EQ(client.log, "error");
  EXPECT_EQ(connection->failure(), "connection refused");
}

TEST_F(TcpConnectorTest, DestroyedOnItsWay) {
  const auto listener = listen();
  {
    const auto connection = connector.connect(listener->localAddress()).value();
    connection->start(client);
    connection->write(bytes("never"));
  }
  Timer timer(loop, [this] { loop.stop(); });
  timer.start(milliseconds(20));
  run();
  EXPECT_EQ(client.log, "");
}

// --- TLS, where the peer does not speak it; the rest is tested end to end ---

class TlsStreamTest : public TcpConnectorTest {
 protected:
  std::unique_ptr<TlsStream> connect(const SocketAddress& address) {
    auto context = TlsContext::make({}).value();
    peer.emplace(std::move(context), "", address.ip);
    auto stream = std::make_unique<TlsStream>(*peer, connector.connect(address).value());
    stream->start(client);
    stream->write(bytes("secret"));
    return stream;
  }
  std::optional<TlsPeer> peer;
};

TEST_F(TlsStreamTest, NothingIsSaidInPlaintext) {
  const auto listener = listen();
  const auto stream = connect(listener->localAddress());
  server.expected = SIZE_MAX;
  Timer answer(loop, [this] {
    if (accepted && server.size > 0) accepted->write(bytes("HTTP/1.0 400 no\r\n\r\n"));
  });
  answer.start(milliseconds(5), milliseconds(5));
  run();
  EXPECT_EQ(client.log, "error");
  EXPECT_EQ(stream->failure().substr(0, 5), "TLS: ");
  EXPECT_EQ(server.log.find("secret"), std::string::npos);
}

TEST_F(TlsStreamTest, EndDuringTheHandshake) {
  const auto listener = listen();
  const auto stream = connect(listener->localAddress());
  Timer end(loop, [this] {
    if (server.size > 0) accepted.reset();
  });
  end.start(milliseconds(5), milliseconds(5));
  run();
  EXPECT_EQ(client.log, "error");
  EXPECT_FALSE(stream->failure().empty());
}

TEST_F(TlsStreamTest, Refusal) {
  auto listener = listen();
  const SocketAddress address = listener->localAddress();
  listener.reset();
  const auto stream = connect(address);
  run();
  EXPECT_EQ(client.log, "error");
  EXPECT_EQ(stream->failure(), "connection refused");
}

TEST(TlsContextTest, BadFilesAreRefused) {
  TlsContext::Options without_ca;
  without_ca.ca_file = "/nonexistent";
  EXPECT_FALSE(TlsContext::make(without_ca));
  TlsContext::Options without_key;
  without_key.certificate_file = without_key.key_file = "/dev/null";
  EXPECT_FALSE(TlsContext::make(without_key));
}

}  // namespace
}  // namespace idetcd::net
