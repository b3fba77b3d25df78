// What an upstream sends over TCP or TLS, in any pieces: three questions wait, and get the messages with their IDs, each
// one whole and in order, until something comes that is no DNS (RFC 1035 §4.2.2). The input is a number of pieces, the
// size of each, and the stream; the IDs 0, 1 and 2 in it stand for those that were drawn.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dns/wire.h"
#include "fuzz/check.h"
#include "fuzz/pieces.h"
#include "net/event_loop.h"
#include "resolver/stream_pool.h"

namespace {

using namespace idetcd;

constexpr size_t kQuestions = 3;
constexpr size_t kPrefix = 2;

// A connection whose other end is the input.
struct Connection : net::Stream {
  explicit Connection(Connection*& place) : self(place) { self = this; }
  ~Connection() override { self = nullptr; }
  void start(net::StreamHandler& stream_handler) override { handler = &stream_handler; }
  bool write(std::vector<uint8_t>&&) override { return true; }
  std::string failure() const override { return "failed"; }

  Connection*& self;
  net::StreamHandler* handler = nullptr;
};

// One message that was, or is to be, handed to a question.
struct Delivery {
  size_t question;
  std::string message;
  bool operator==(const Delivery&) const = default;
};

// A question gives up after a message that ends in an odd byte.
bool isLast(std::span<const uint8_t> message) { return (message.back() & 1) != 0; }

class Question : public resolver::StreamWaiter {
 public:
  Question(size_t number, std::vector<Delivery>& deliveries) : number_(number), deliveries_(deliveries) {}
  void onStreamMessage(std::span<const uint8_t> message) override {
    FUZZ_CHECK(!failed);
    deliveries_.push_back({number_, {message.begin(), message.end()}});
    if (isLast(message)) ticket.drop();
  }
  void onStreamFailed(const std::string& reason, bool) override {
    FUZZ_CHECK(!failed && !reason.empty());
    failed = true;
  }

  resolver::StreamPool::Ticket ticket;
  bool failed = false;

 private:
  const size_t number_;
  std::vector<Delivery>& deliveries_;
};

// The whole messages of a stream, up to its end or what is no DNS.
struct Frames {
  std::vector<std::span<uint8_t>> messages;
  bool broken = false;
};
Frames framesOf(std::span<uint8_t> stream) {
  Frames frames;
  while (stream.size() >= kPrefix) {
    const size_t size = dns::load16(stream.data());
    frames.broken = size < dns::kHeaderSize;
    if (frames.broken || stream.size() - kPrefix < size) break;
    frames.messages.push_back(stream.subspan(kPrefix, size));
    stream = stream.subspan(kPrefix + size);
  }
  return frames;
}

using Ids = std::array<uint16_t, kQuestions>;

std::vector<Delivery> expectedOf(const Frames& frames, const Ids& ids, std::array<bool, kQuestions>& waiting) {
  std::vector<Delivery> expected;
  for (const auto message : frames.messages) {
    const auto found = std::find(ids.begin(), ids.end(), dns::load16(message.data()));
    const auto question = static_cast<size_t>(found - ids.begin());
    if (found == ids.end() || !waiting[question]) continue;
    expected.push_back({question, {message.begin(), message.end()}});
    if (isLast(message)) waiting[question] = false;
  }
  return expected;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static net::EventLoop loop;
  static SecureRandom random;
  fuzz::Pieces pieces({data, size});
  std::vector<uint8_t> stream(pieces.rest().begin(), pieces.rest().end());

  Connection* connection = nullptr;
  std::vector<Delivery> deliveries;
  std::array<Question, kQuestions> questions{Question{0, deliveries}, {1, deliveries}, {2, deliveries}};
  {
    resolver::StreamPool pool(loop, random, {}, [&connection]() -> Result<std::unique_ptr<net::Stream>> {
      return std::make_unique<Connection>(connection);
    });
    Ids ids{};
    const std::vector<uint8_t> query(dns::kHeaderSize);
    for (size_t i = 0; i < kQuestions; ++i) ids[i] = pool.send(query, questions[i], questions[i].ticket).value();
    FUZZ_CHECK(pool.connectionCount() == 1);

    const Frames frames = framesOf(stream);
    for (const auto message : frames.messages) {
      const uint16_t id = dns::load16(message.data());
      if (id < kQuestions) dns::store16(message.data(), ids[id]);
    }
    std::array<bool, kQuestions> waiting{true, true, true};
    const std::vector<Delivery> expected = expectedOf(frames, ids, waiting);

    std::span<const uint8_t> left(stream);
    while (!left.empty() && connection != nullptr) {
      // A block of its own, so that AddressSanitizer guards its end.
      const auto piece = left.first(pieces.next(left.size()));
      const std::vector<uint8_t> bytes(piece.begin(), piece.end());
      connection->handler->onData(bytes);
      left = left.subspan(piece.size());
    }
    FUZZ_CHECK(deliveries == expected);
    FUZZ_CHECK((connection == nullptr) == frames.broken);
    for (size_t i = 0; i < kQuestions; ++i) FUZZ_CHECK(questions[i].failed == (frames.broken && waiting[i]));
    if (connection != nullptr) connection->handler->onEnd();
    FUZZ_CHECK(connection == nullptr && pool.connectionCount() == 0);
    for (size_t i = 0; i < kQuestions; ++i) FUZZ_CHECK(questions[i].failed == waiting[i]);
  }
  loop.post([] { loop.stop(); });
  loop.run();  // closes the timers
  return 0;
}
