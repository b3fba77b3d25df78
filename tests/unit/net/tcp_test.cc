#include "net/tcp.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "sockets.h"

namespace idetcd::net {
namespace {

using test::address;

std::vector<uint8_t> bytes(std::string_view text) { return {text.begin(), text.end()}; }

// One accepted connection and its callbacks, on a loop in the test's thread.
class Peer : public StreamHandler {
 public:
  explicit Peer(EventLoop& loop) : loop_(loop) {}

  void take(std::unique_ptr<TcpConnection> accepted) {
    connection = std::move(accepted);
    connection->start(*this);
    loop_.stop();
  }
  void onData(std::span<const uint8_t> data) override {
    received.append(data.begin(), data.end());
    loop_.stop();
  }
  void onEnd() override {
    ended = true;
    loop_.stop();
  }
  void onDrained() override {
    drained = true;
    loop_.stop();
  }
  void onError() override {
    failed = true;
    connection.reset();
    loop_.stop();
  }

  std::unique_ptr<TcpConnection> connection;
  std::string received;
  bool ended = false;
  bool drained = false;
  bool failed = false;

 private:
  EventLoop& loop_;
};

class TcpTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto listening = TcpListener::listen(loop_, address("127.0.0.1", 0), false,
                                         [this](auto connection) { peer_.take(std::move(connection)); });
    ASSERT_TRUE(listening.has_value());
    listener_ = std::move(*listening);
  }
  test::Socket connect() {
    test::Socket client = test::tcpClient(listener_->localAddress());
    runUntil([this] { return peer_.connection != nullptr; });
    return client;
  }
  // REQUIRES: whatever makes `condition` true also stops the loop.
  template <typename Condition>
  void runUntil(Condition condition) {
    while (!condition()) loop_.run();
  }

  EventLoop loop_;
  Peer peer_{loop_};
  std::unique_ptr<TcpListener> listener_;
};

TEST_F(TcpTest, TellsBothAddresses) {
  const test::Socket client = connect();
  EXPECT_EQ(peer_.connection->remote(), client.localAddress());
  EXPECT_EQ(peer_.connection->local(), listener_->localAddress());
}

TEST_F(TcpTest, ReadsAndWrites) {
  test::Socket client = connect();
  client.send("question");
  runUntil([this] { return peer_.received == "question"; });
  EXPECT_TRUE(peer_.connection->write(bytes("answer")));
  EXPECT_TRUE(peer_.connection->isDrained());
  EXPECT_EQ(client.receiveExactly(6), "answer");
}

TEST_F(TcpTest, TheOtherSideMayEndItsHalf) {
  test::Socket client = connect();
  client.send("last");
  ::shutdown(client.fd(), SHUT_WR);
  runUntil([this] { return peer_.ended; });
  EXPECT_EQ(peer_.received, "last");
  EXPECT_TRUE(peer_.connection->write(bytes("still heard")));
  EXPECT_EQ(client.receiveExactly(11), "still heard");
  peer_.connection.reset();
  EXPECT_TRUE(client.isClosedByPeer());
}

TEST_F(TcpTest, QueuesWhatTheKernelDoesNotTake) {
  test::Socket client = connect();
  std::string sent;
  bool all_taken = true;
  for (int i = 0; all_taken && i < 1000; ++i) {  // until both sockets' buffers are full
    const std::string part(100'000, static_cast<char>('a' + i % 26));
    sent += part;
    all_taken = peer_.connection->write(bytes(part));
  }
  ASSERT_FALSE(all_taken);
  EXPECT_FALSE(peer_.connection->isDrained());
  for (const char* part : {"second", "third"}) {  // behind what waits, in order
    sent += part;
    EXPECT_FALSE(peer_.connection->write(bytes(part)));
  }
  std::string read;
  std::thread reader([&] { read = client.receiveExactly(sent.size()); });
  runUntil([this] { return peer_.drained; });
  reader.join();
  EXPECT_TRUE(peer_.connection->isDrained());
  EXPECT_TRUE(read == sent);
}

TEST_F(TcpTest, APausedConnectionKeepsWhatComes) {
  test::Socket client = connect();
  peer_.connection->pauseReading();
  client.send("later");
  Timer timer(loop_, [this] { loop_.stop(); });
  timer.start(std::chrono::milliseconds(20));
  loop_.run();
  EXPECT_EQ(peer_.received, "");
  peer_.connection->resumeReading();
  runUntil([this] { return peer_.received == "later"; });
}

// A connection that always has more to read has one buffer's worth a turn.
TEST_F(TcpTest, OthersHaveTheirTurnWhileOneFloods) {
  constexpr size_t kBuffer = size_t{64} << 10;
  constexpr size_t kFlood = size_t{64} << 20;
  class Flooded : public StreamHandler {
   public:
    void onData(std::span<const uint8_t> data) override {
      received += data.size();
      std::this_thread::sleep_for(std::chrono::microseconds(200));  // in which the client sends more
    }
    void onEnd() override { ended = true; }
    void onDrained() override {}
    void onError() override { ended = true; }
    size_t received = 0;
    bool ended = false;
  };
  test::Socket client = connect();
  Flooded flooded;
  peer_.connection->start(flooded);
  std::thread writer([&] {
    client.send(std::string(kFlood, 'x'));
    ::shutdown(client.fd(), SHUT_WR);
  });
  size_t largest_turn = 0;
  size_t before = 0;
  std::function<void()> turn = [&] {
    largest_turn = std::max(largest_turn, flooded.received - before);
    before = flooded.received;
    if (flooded.ended) return loop_.stop();
    loop_.post(turn);
  };
  loop_.post(turn);
  loop_.run();
  writer.join();
  EXPECT_EQ(flooded.received, kFlood);
  EXPECT_LE(largest_turn, 2 * kBuffer);  // one before `turn` in a round of the loop, one behind it in the next
}

TEST_F(TcpTest, AResetIsAnError) {
  {
    test::Socket client = connect();
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(client.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  }
  runUntil([this] { return peer_.failed; });  // it destroys the connection, too
}

TEST_F(TcpTest, ADestroyedConnectionIsClosedWithItsQueue) {
  test::Socket client = connect();
  while (peer_.connection->write(std::vector<uint8_t>(100'000))) continue;
  peer_.connection.reset();
  Timer timer(loop_, [this] { loop_.stop(); });
  timer.start(std::chrono::milliseconds(10));
  loop_.run();
  EXPECT_FALSE(peer_.drained);
  EXPECT_FALSE(peer_.failed);
  while (!client.isClosedByPeer()) continue;  // what was in the kernel still comes
}

TEST_F(TcpTest, ConnectionsOutliveTheirListener) {
  test::Socket client = connect();
  const SocketAddress server = listener_->localAddress();
  listener_.reset();
  client.send("hello");
  runUntil([this] { return peer_.received == "hello"; });
  test::Socket late(SOCK_STREAM, address("127.0.0.1", 0));
  EXPECT_FALSE(late.connect(server));
}

TEST(TcpListener, AnAddressInUseIsAnError) {
  EventLoop loop;
  const auto first = TcpListener::listen(loop, address("127.0.0.1", 0), false, [](auto) {});
  ASSERT_TRUE(first.has_value());
  const auto second = TcpListener::listen(loop, (*first)->localAddress(), false, [](auto) {});
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().message, "Address already in use");
}

}  // namespace
}  // namespace idetcd::net
