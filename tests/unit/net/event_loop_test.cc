#include "net/event_loop.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "sockets.h"

namespace idetcd::net {
namespace {

using std::chrono::milliseconds;

TEST(EventLoop, RunsWhatIsPostedInOrder) {
  EventLoop loop;
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) loop.post([&order, i] { order.push_back(i); });
  loop.stop();
  loop.run();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(EventLoop, WorkMayPostWork) {
  EventLoop loop;
  int depth = 0;
  std::function<void()> deeper = [&] {
    if (++depth == 50) return loop.stop();
    loop.post(deeper);
  };
  loop.post(deeper);
  loop.run();
  EXPECT_EQ(depth, 50);
}

TEST(EventLoop, TakesWorkFromManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kCalls = 2000;
  EventLoop loop;
  int calls = 0;  // touched on the loop's thread only
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < kCalls; ++n) {
        loop.post([&] {
          if (++calls == kThreads * kCalls) loop.stop();
        });
      }
    });
  }
  loop.run();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(calls, kThreads * kCalls);
}

TEST(EventLoop, RunsAgainAfterStop) {
  EventLoop loop;
  int runs = 0;
  for (int i = 0; i < 3; ++i) {
    loop.post([&runs] { ++runs; });
    loop.stop();
    loop.run();
  }
  EXPECT_EQ(runs, 3);
}

TEST(EventLoop, DropsWhatIsPostedAfterTheEnd) {
  const auto witness = std::make_shared<int>(0);
  {
    EventLoop loop;
    loop.post([witness] { ++*witness; });
  }
  EXPECT_LE(*witness, 1);
  EXPECT_EQ(witness.use_count(), 1);
}

TEST(Timer, ExpiresOnceOrAgainAndAgain) {
  EventLoop loop;
  int once = 0;
  int repeated = 0;
  Timer single(loop, [&] { ++once; });
  Timer repeating(loop, [&] {
    if (++repeated == 3) loop.stop();
  });
  single.start(milliseconds(1));
  repeating.start(milliseconds(1), milliseconds(2));
  loop.run();
  EXPECT_EQ(once, 1);
  EXPECT_EQ(repeated, 3);
}

TEST(Timer, StartsAnewAndStops) {
  EventLoop loop;
  bool stopped_fired = false;
  int restarted_fired = 0;
  Timer stopped(loop, [&] { stopped_fired = true; });
  Timer restarted(loop, [&] { ++restarted_fired; });
  Timer end(loop, [&] { loop.stop(); });
  stopped.start(milliseconds(1));
  stopped.stop();
  restarted.start(std::chrono::hours(1));
  restarted.start(milliseconds(1));
  end.start(milliseconds(20));
  loop.run();
  EXPECT_FALSE(stopped_fired);
  EXPECT_EQ(restarted_fired, 1);
}

TEST(Timer, MayBeDestroyedInItsOwnCallback) {
  EventLoop loop;
  int fired = 0;
  std::unique_ptr<Timer> timer;
  timer = std::make_unique<Timer>(loop, [&] {
    ++fired;
    timer.reset();
    loop.stop();
  });
  timer->start(milliseconds(1), milliseconds(1));
  loop.run();
  EXPECT_EQ(fired, 1);
}

TEST(Timer, DoesNotFireOnceDestroyed) {
  EventLoop loop;
  bool fired = false;
  auto timer = std::make_unique<Timer>(loop, [&] { fired = true; });
  Timer first(loop, [&] { timer.reset(); });  // expires in the same turn, before it
  Timer end(loop, [&] { loop.stop(); });
  first.start(milliseconds(1));
  timer->start(milliseconds(1));
  end.start(milliseconds(20));
  loop.run();
  EXPECT_FALSE(fired);
}

TEST(ReadWatcher, CallsBackWhileThereIsSomethingToRead) {
  EventLoop loop;
  test::Socket receiver = test::udpClient();
  test::Socket sender = test::udpClient();
  std::vector<std::string> received;
  const ReadWatcher watcher(loop, receiver.fd(), [&] {  // one each time: what is left brings the next call
    received.push_back(receiver.receive()->bytes);
    if (received.size() == 3) loop.stop();
  });
  for (const char* text : {"a", "b", "c"}) sender.sendTo(receiver.localAddress(), text);
  loop.run();
  EXPECT_EQ(received, (std::vector<std::string>{"a", "b", "c"}));
}

TEST(ReadWatcher, GoesOnAfterAnErrorOfTheSocket) {
  EventLoop loop;
  test::Socket watched = test::udpClient();
  std::optional<test::Socket> peer = test::udpClient();
  const SocketAddress peer_address = peer->localAddress();
  peer.reset();
  ASSERT_TRUE(watched.connect(peer_address));
  std::vector<int> errors;
  const ReadWatcher watcher(loop, watched.fd(), [&] {
    char byte;
    errors.push_back(::recv(watched.fd(), &byte, 1, MSG_DONTWAIT) < 0 ? errno : 0);
    loop.stop();
  });
  ASSERT_TRUE(watched.send("x"));  // no socket is there: an ICMP message comes back
  loop.run();
  ASSERT_EQ(errors, std::vector{ECONNREFUSED});
  peer.emplace(SOCK_DGRAM, peer_address);
  ASSERT_TRUE(peer->ok());
  ASSERT_TRUE(peer->sendTo(watched.localAddress(), "x"));
  Timer timer(loop, [&] { loop.stop(); });
  timer.start(milliseconds(test::kTimeoutMs));
  loop.run();
  EXPECT_EQ(errors, (std::vector{ECONNREFUSED, 0}));
}

TEST(ReadWatcher, MayBeDestroyedInItsOwnCallback) {
  EventLoop loop;
  test::Socket receiver = test::udpClient();
  test::Socket sender = test::udpClient();
  int calls = 0;
  std::unique_ptr<ReadWatcher> watcher;
  watcher = std::make_unique<ReadWatcher>(loop, receiver.fd(), [&] {
    ++calls;
    watcher.reset();
    loop.stop();
  });
  sender.sendTo(receiver.localAddress(), "x");
  loop.run();
  EXPECT_EQ(calls, 1);
}

TEST(SignalWatcher, CallsBack) {
  EventLoop loop;
  int signals = 0;
  const SignalWatcher watcher(loop, SIGUSR2, [&] {
    ++signals;
    loop.stop();
  });
  loop.post([] { ::raise(SIGUSR2); });
  loop.run();
  EXPECT_EQ(signals, 1);
}

}  // namespace
}  // namespace idetcd::net
