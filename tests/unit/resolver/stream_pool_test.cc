#include "resolver/stream_pool.h"

#include <algorithm>
#include <cerrno>
#include <list>

#include <gtest/gtest.h>

#include "dns/wire.h"

namespace idetcd::resolver {
namespace {

using std::chrono::milliseconds;

// A connection whose other end is the test.
struct FakeStream : net::Stream {
  explicit FakeStream(std::list<FakeStream*>& all) : all_(all) { all_.push_back(this); }
  ~FakeStream() override { all_.remove(this); }
  void start(net::StreamHandler& stream_handler) override { handler = &stream_handler; }
  bool write(std::vector<uint8_t>&& bytes) override {
    asked.push_back(dns::load16(bytes.data() + 2));
    return true;
  }
  std::string failure() const override { return {}; }
  bool takesMore() const override { return asked.size() < limit; }
  void cancel(uint16_t id) override { cancelled.push_back(id); }

  void answer() { answerWith({}); }
  // With an OPT record that says how long the connection may be idle, in units of 100 ms.
  void answerWithKeepalive(uint16_t idle_timeout) {
    std::vector<uint8_t> opt{0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 6, 0, 11, 0, 2, 0, 0};
    dns::store16(&opt[15], idle_timeout);
    answerWith(opt);
  }
  void answerWith(const std::vector<uint8_t>& opt) {
    std::vector<uint8_t> message(2 + dns::kHeaderSize);
    dns::store16(message.data(), static_cast<uint16_t>(dns::kHeaderSize + opt.size()));
    dns::store16(message.data() + 2, asked.front());
    dns::store16(message.data() + 12, opt.empty() ? 0 : 1);
    message.insert(message.end(), opt.begin(), opt.end());
    asked.erase(asked.begin());
    handler->onData(message);
  }

  net::StreamHandler* handler = nullptr;
  std::vector<uint16_t> asked;  // IDs
  std::vector<uint16_t> cancelled;
  size_t limit = 1000;
  net::DescriptorLease lease;

 private:
  std::list<FakeStream*>& all_;
};

class StreamPoolTest : public testing::Test, public StreamWaiter {
 protected:
  static constexpr milliseconds kRelax{500};

  void onStreamMessage(std::span<const uint8_t>) override {}
  void onStreamFailed(const std::string&, bool used_before) override {
    ++failed_;
    worth_another_try_ = used_before;
  }

  void ask(size_t count) {
    const std::vector<uint8_t> message(dns::kHeaderSize);
    for (size_t i = 0; i < count; ++i) {
      tickets_.emplace_back();
      ASSERT_TRUE(pool_.send(message, *this, tickets_.back()));
    }
  }
  // No less: a timer counts from the loop's last turn, which may be some time ago.
  void waitFor(std::chrono::nanoseconds time) {
    const auto end = BootClock::now() + time;
    do {
      net::Timer timer(loop_, [this] { loop_.stop(); });
      timer.start(std::max(std::chrono::ceil<milliseconds>(end - BootClock::now()), milliseconds(1)));
      loop_.run();
    } while (BootClock::now() < end);
  }
  // A connection answers one question and is closed with others outstanding.
  void endEarly() {
    tickets_.clear();
    ask(2);
    FakeStream& stream = *streams_.front();
    stream.answer();
    stream.handler->onEnd();
  }

  net::EventLoop loop_;
  SecureRandom random_;
  std::list<FakeStream*> streams_;
  StreamPool pool_{
      loop_, random_, {.expire = milliseconds(20), .relax = kRelax}, [this]() -> Result<std::unique_ptr<net::Stream>> {
        return std::make_unique<FakeStream>(streams_);
      }};
  std::list<StreamPool::Ticket> tickets_;
  size_t failed_ = 0;
  bool worth_another_try_ = false;
};

TEST_F(StreamPoolTest, OneEarlyEndChangesNothing) {
  endEarly();
  EXPECT_GT(failed_, 0u);
  ask(16);
  EXPECT_EQ(pool_.connectionCount(), 2u);
}

TEST_F(StreamPoolTest, ARestartThatEndsAllAtOnceChangesNothing) {
  ask(64);
  ASSERT_EQ(streams_.size(), 8u);
  while (!streams_.empty()) {
    FakeStream& stream = *streams_.front();
    stream.answer();
    stream.handler->onEnd();
  }
  ask(16);
  EXPECT_EQ(pool_.connectionCount(), 2u);
}

TEST_F(StreamPoolTest, WhoClosesAgainAndAgainGetsAQuestionAConnection) {
  endEarly();
  endEarly();
  ask(16);
  EXPECT_EQ(pool_.connectionCount(), 16u);
}

TEST_F(StreamPoolTest, AConnectionThatTakesNoMoreGetsNoMore) {
  ask(1);
  streams_.front()->limit = 1;
  ask(1);
  ASSERT_EQ(streams_.size(), 2u);
  EXPECT_EQ(streams_.front()->asked.size(), 1u);
}

TEST_F(StreamPoolTest, AConnectionHearsOfWhatIsGivenUp) {
  ask(2);
  const FakeStream& stream = *streams_.front();
  tickets_.pop_front();
  EXPECT_EQ(stream.cancelled, std::vector<uint16_t>{stream.asked.front()});
}

TEST_F(StreamPoolTest, OneQuestionMayHaveNoAnswer) {
  ask(2);
  FakeStream& stream = *streams_.front();
  stream.handler->onUnanswered(stream.asked.back(), "HTTP status 500", false);
  EXPECT_EQ(failed_, 1u);
  EXPECT_FALSE(worth_another_try_);
  EXPECT_TRUE(tickets_.front().isWaiting());
  EXPECT_FALSE(tickets_.back().isWaiting());
  stream.handler->onUnanswered(stream.asked.back(), "HTTP status 500", false);
  EXPECT_EQ(failed_, 1u) << "it was said";
  stream.handler->onUnanswered(stream.asked.front(), "refused", true);
  EXPECT_EQ(failed_, 2u);
  EXPECT_TRUE(worth_another_try_);
  EXPECT_EQ(pool_.connectionCount(), 1u) << "the connection is kept";
}

TEST_F(StreamPoolTest, TheNumberOfConnectionsDecays) {
  endEarly();
  endEarly();
  ask(16);
  ASSERT_EQ(pool_.connectionCount(), 16u);
  for (int i = 0; i < 3; ++i) {  // one, two, four, eight
    waitFor(kRelax + milliseconds(1));
    ask(1);
  }
  tickets_.clear();
  waitFor(milliseconds(40));  // all are idle, and closed
  ask(16);
  EXPECT_EQ(pool_.connectionCount(), 2u);
}

// A few questions keep a few connections, whatever a burst has opened.
TEST_F(StreamPoolTest, QuestionsGoToAsFewConnectionsAsTheyNeed) {
  ask(64);
  ASSERT_EQ(pool_.connectionCount(), 8u);
  tickets_.clear();
  for (int i = 0; i < 20; ++i) {
    ask(2);
    waitFor(milliseconds(5));
    tickets_.clear();
  }
  EXPECT_EQ(pool_.connectionCount(), 1u);
}

// --- max_age, max_idle_conns ---

TEST_F(StreamPoolTest, AnOldConnectionGetsNoFurtherQuestion) {
  StreamPool pool(loop_, random_, {.expire = std::chrono::minutes(1), .max_age = milliseconds(500)},
                  [this]() -> Result<std::unique_ptr<net::Stream>> { return std::make_unique<FakeStream>(streams_); });
  const std::vector<uint8_t> message(dns::kHeaderSize);
  StreamPool::Ticket first, second, third;
  ASSERT_TRUE(pool.send(message, *this, first) && pool.send(message, *this, second));
  EXPECT_EQ(pool.connectionCount(), 1u);
  waitFor(milliseconds(501));
  ASSERT_TRUE(pool.send(message, *this, third));
  EXPECT_EQ(pool.connectionCount(), 2u);
  EXPECT_TRUE(first.isWaiting()) << "what it was asked it may answer";
  first.drop();
  second.drop();
  waitFor(milliseconds(2));
  EXPECT_EQ(pool.connectionCount(), 1u) << "closed once nothing waits for it";
  EXPECT_TRUE(third.isWaiting());
}

TEST_F(StreamPoolTest, NoMoreIdleConnectionsAreKeptThanMaxIdle) {
  const auto left = [this](size_t max_idle) {
    StreamPool pool(
        loop_, random_, {.expire = std::chrono::minutes(1), .max_idle = max_idle, .preferred_pipelined = 1},
        [this]() -> Result<std::unique_ptr<net::Stream>> { return std::make_unique<FakeStream>(streams_); });
    const std::vector<uint8_t> message(dns::kHeaderSize);
    std::list<StreamPool::Ticket> tickets(4);
    for (StreamPool::Ticket& ticket : tickets) EXPECT_TRUE(pool.send(message, *this, ticket));
    EXPECT_EQ(pool.connectionCount(), 4u);
    tickets.clear();
    waitFor(milliseconds(5));
    return pool.connectionCount();
  };
  EXPECT_EQ(left(0), 4u);
  EXPECT_EQ(left(3), 3u);
  EXPECT_EQ(left(1), 1u);
}

// --- without descriptors ---

// RFC 7828 §3.2.2
TEST_F(StreamPoolTest, AConnectionThatTheServerWantsClosedGetsNoFurtherQuestion) {
  ask(2);
  FakeStream& unwanted = *streams_.front();
  unwanted.answerWithKeepalive(0);
  ask(1);
  ASSERT_EQ(streams_.size(), 2u);
  EXPECT_EQ(unwanted.asked.size(), 1u) << "the answer that is outstanding is waited for";
  tickets_.pop_front();
  EXPECT_EQ(streams_.size(), 2u);
  tickets_.pop_front();
  waitFor(milliseconds(1));
  EXPECT_EQ(streams_.size(), 1u);
  EXPECT_EQ(failed_, 0);
}

TEST_F(StreamPoolTest, AnIdleConnectionIsClosedBeforeTheServerDoes) {
  StreamPool pool(loop_, random_, {.expire = std::chrono::hours(1)},
                  [this]() -> Result<std::unique_ptr<net::Stream>> { return std::make_unique<FakeStream>(streams_); });
  const std::vector<uint8_t> message(dns::kHeaderSize);
  StreamPool::Ticket ticket;
  ASSERT_TRUE(pool.send(message, *this, ticket));
  streams_.front()->answerWithKeepalive(600);
  ASSERT_TRUE(pool.send(message, *this, ticket));
  streams_.front()->answerWithKeepalive(1);  // the last one counts
  const auto start = BootClock::now();
  waitFor(milliseconds(1));  // a timer counts from the loop's last turn, which is after `start` now
  ticket.drop();
  while (!streams_.empty() && BootClock::now() - start < std::chrono::seconds(20)) waitFor(milliseconds(1));
  EXPECT_TRUE(streams_.empty());
  EXPECT_GE(BootClock::now() - start, milliseconds(49));
}

TEST_F(StreamPoolTest, WhatTheServerAllowsIsNoReasonToStayLonger) {
  ask(1);
  streams_.front()->answerWithKeepalive(65535);
  const auto start = BootClock::now();
  tickets_.clear();
  while (!streams_.empty() && BootClock::now() - start < std::chrono::seconds(20)) waitFor(milliseconds(1));
  EXPECT_TRUE(streams_.empty()) << "`expire` has ended it";
}

TEST_F(StreamPoolTest, AnIdleConnectionGivesWay) {
  ask(1);
  EXPECT_FALSE(pool_.closeIdle());
  tickets_.clear();
  EXPECT_TRUE(pool_.closeIdle());
  EXPECT_EQ(streams_.size(), 0u);
  EXPECT_EQ(pool_.connectionCount(), 0u);
  EXPECT_EQ(failed_, 0u);
}

TEST_F(StreamPoolTest, OneOfManyGivesWayAndItsQuestionsGoOn) {
  ask(17);
  ASSERT_EQ(streams_.size(), 3u);
  pool_.closeOne();
  EXPECT_EQ(streams_.size(), 2u);
  EXPECT_EQ(failed_, 0u) << "no waiter is called within another's question";
  waitFor(milliseconds(1));
  EXPECT_EQ(failed_, 1u) << "the connection with one question, not those with eight";
  EXPECT_TRUE(worth_another_try_);
}

TEST_F(StreamPoolTest, WhoDoesNotWaitAnyMoreIsNotTold) {
  ask(17);
  pool_.closeOne();
  tickets_.clear();
  waitFor(milliseconds(1));
  EXPECT_EQ(failed_, 0u);
}

TEST_F(StreamPoolTest, WhoHasMostConnectionsGivesWay) {
  const auto budget = net::DescriptorBudget::make(16);  // eight at most for connections
  const auto room = UpstreamBudget::make(loop_, budget->account(0)).value();
  const auto connect = [&](StreamPool*& pool) {
    return [&]() -> Result<std::unique_ptr<net::Stream>> {
      auto lease = room->leaseConnection(*pool);
      if (!lease) return failWith(EMFILE, "no descriptor");
      auto stream = std::make_unique<FakeStream>(streams_);
      stream->lease = std::move(lease);
      return stream;
    };
  };
  StreamPool* first = nullptr;
  StreamPool* second = nullptr;
  StreamPool one{loop_, random_, {}, connect(first)};
  StreamPool other{loop_, random_, {}, connect(second)};
  first = &one;
  second = &other;
  room->add(one);
  room->add(other);
  const std::vector<uint8_t> message(dns::kHeaderSize);
  const auto askOf = [&](StreamPool& pool) {
    tickets_.emplace_back();
    return pool.send(message, *this, tickets_.back()).has_value();
  };
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(askOf(one)) << "what finds no connection of its own shares one";
  ASSERT_EQ(one.connectionCount(), 8u);
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(askOf(other));
  EXPECT_EQ(one.connectionCount(), 4u);
  EXPECT_EQ(other.connectionCount(), 4u);
  room->remove(one);
  room->remove(other);
}

}  // namespace
}  // namespace idetcd::resolver
