#include "resolve/stream_pool.h"

#include <list>

#include <gtest/gtest.h>

#include "dns/wire.h"

namespace idetcd::resolve {
namespace {

using std::chrono::milliseconds;

// A connection whose other end is the test.
struct FakeStream : net::Stream {
  explicit FakeStream(std::list<FakeStream*>& all) : all_(all) { all_.push_back(this); }
  ~FakeStream() override { all_.remove(this); }
  void start(net::StreamHandler& stream_handler) override { handler = &stream_handler; }
  bool write(std::vector<uint8_t>&& octets) override {
    asked.push_back(dns::load16(octets.data() + 2));
    return true;
  }
  std::string failure() const override { return {}; }

  void answer() {
    std::vector<uint8_t> message(2 + dns::kHeaderSize);
    dns::store16(message.data(), dns::kHeaderSize);
    dns::store16(message.data() + 2, asked.front());
    asked.erase(asked.begin());
    handler->onData(message);
  }

  net::StreamHandler* handler = nullptr;
  std::vector<uint16_t> asked;  // IDs

 private:
  std::list<FakeStream*>& all_;
};

class StreamPoolTest : public testing::Test, public StreamWaiter {
 protected:
  static constexpr milliseconds kRelax{40};

  void onStreamMessage(std::span<const uint8_t>) override {}
  void onStreamFailed(const std::string&, bool) override { ++failed_; }

  void ask(size_t count) {
    const std::vector<uint8_t> message(dns::kHeaderSize);
    for (size_t i = 0; i < count; ++i) {
      tickets_.emplace_back();
      ASSERT_TRUE(pool_.send(message, *this, tickets_.back()));
    }
  }
  void waitFor(std::chrono::nanoseconds time) {
    net::Timer timer(loop_, [this] { loop_.stop(); });
    timer.start(std::chrono::ceil<milliseconds>(time));
    loop_.run();
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
  net::SecureRandom random_;
  std::list<FakeStream*> streams_;
  StreamPool pool_{
      loop_, random_, {.expire = milliseconds(20), .relax = kRelax}, [this]() -> Result<std::unique_ptr<net::Stream>> {
        return std::make_unique<FakeStream>(streams_);
      }};
  std::list<StreamPool::Ticket> tickets_;
  size_t failed_ = 0;
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

}  // namespace
}  // namespace idetcd::resolve
