// What a server sends over HTTP/2 to a DohStream, in any pieces: three questions wait (RFC 8484). Each gets one answer, a
// whole message with its ID, or one reason why there is none, or nothing; after an error there is nothing more. What is
// written to such a server, and what a question gets, has a limit. The input is a number of pieces, the size of each,
// and the stream.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dns/wire.h"
#include "fuzz/check.h"
#include "fuzz/pieces.h"
#include "resolver/doh_stream.h"

namespace {

using namespace idetcd;

constexpr uint16_t kQuestions = 3;
constexpr size_t kPrefix = 2;
constexpr size_t kMaxMessage = 65535;

// A connection whose other end is the input.
struct Connection : net::Stream {
  Connection(net::StreamHandler*& above_stream, size_t& count) : above(above_stream), written(count) {}
  ~Connection() override { above = nullptr; }
  void start(net::StreamHandler& handler) override { above = &handler; }
  bool write(std::vector<uint8_t>&& bytes) override {
    written += bytes.size();
    return true;
  }
  std::string failure() const override { return "failed"; }

  net::StreamHandler*& above;
  size_t& written;
};

struct Owner : net::StreamHandler {
  void onData(std::span<const uint8_t> bytes) override {
    FUZZ_CHECK(stream != nullptr);
    FUZZ_CHECK(bytes.size() >= kPrefix + dns::kHeaderSize && bytes.size() <= kPrefix + kMaxMessage);
    FUZZ_CHECK(dns::load16(bytes.data()) == bytes.size() - kPrefix);
    settle(dns::load16(bytes.data() + kPrefix));
  }
  void onUnanswered(uint16_t id, const std::string& reason, bool) override {
    FUZZ_CHECK(stream != nullptr && !reason.empty());
    settle(id);
  }
  void onEnd() override { FUZZ_CHECK(false); }
  void onDrained() override { FUZZ_CHECK(false); }
  void onError() override {
    FUZZ_CHECK(stream != nullptr && !stream->failure().empty());
    stream.reset();
  }
  // Then it gives the next one up.
  void settle(uint16_t id) {
    FUZZ_CHECK(id < kQuestions && !settled[id]);
    settled[id] = true;
    const auto next = static_cast<uint16_t>((id + 1) % kQuestions);
    if (next != 0) return;
    stream->cancel(next);
    settled[next] = true;
  }

  std::unique_ptr<resolver::DohStream> stream;
  std::array<bool, kQuestions> settled{};
};

std::vector<uint8_t> question(uint16_t id) {
  std::vector<uint8_t> framed(kPrefix + dns::kHeaderSize);
  dns::store16(framed.data(), dns::kHeaderSize);
  dns::store16(framed.data() + kPrefix, id);
  return framed;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Pieces pieces({data, size});
  net::StreamHandler* below = nullptr;
  size_t written = 0;
  Owner owner;
  const auto method = size % 2 == 0 ? resolver::DohMethod::kPost : resolver::DohMethod::kGet;
  owner.stream =
      std::make_unique<resolver::DohStream>(std::make_unique<Connection>(below, written),
                                            resolver::DohStream::Options{.authority = "dns.example", .method = method});
  owner.stream->start(owner);
  for (uint16_t id = 0; id < kQuestions; ++id) owner.stream->write(question(id));
  below->onConnected();
  const size_t asked = written;

  std::span<const uint8_t> left = pieces.rest();
  while (!left.empty() && below != nullptr) {
    // A block of its own, so that AddressSanitizer guards its end.
    const auto piece = left.first(pieces.next(left.size()));
    const std::vector<uint8_t> bytes(piece.begin(), piece.end());
    below->onData(bytes);
    left = left.subspan(piece.size());
  }
  // A reply to a frame of 9 bytes has 17 at most; GOAWAY may carry a reason.
  FUZZ_CHECK(written - asked <= 4 * size + 1024);
  FUZZ_CHECK((below == nullptr) == (owner.stream == nullptr));
  return 0;
}
