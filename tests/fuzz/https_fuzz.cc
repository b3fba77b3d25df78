// What a client sends over HTTP/2 to an HttpsStream, in any pieces (RFC 8484): its owner gets whole questions, under IDs of
// which no two wait at a time, and answers or cancels each; after an error there is nothing more. What is held, and what is
// written to such a client, has a limit. The input is a number of pieces, the size of each, and the stream.
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "dns/wire.h"
#include "fuzz/check.h"
#include "fuzz/pieces.h"
#include "server/https_stream.h"

namespace {

using namespace idetcd;

// A connection whose other end is the input.
struct Connection final : net::BoundedStream {
  Connection(net::StreamHandler*& above_stream, size_t& count) : above(above_stream), written(count) {}
  ~Connection() override { above = nullptr; }
  void start(net::StreamHandler& handler) override { above = &handler; }
  bool write(std::vector<uint8_t>&& bytes) override {
    written += bytes.size();
    return true;
  }
  std::string failure() const override { return "failed"; }
  void pauseReading() override {}
  void resumeReading() override {}
  bool isDrained() const override { return true; }
  size_t queued() const override { return 0; }
  uint64_t taken() const override { return written; }
  void resetAtEnd() override {}
  const SocketAddress& remote() const override { return address; }
  const SocketAddress& local() const override { return address; }

  net::StreamHandler*& above;
  size_t& written;
  SocketAddress address{};
};

struct Owner final : net::StreamHandler {
  void onData(std::span<const uint8_t> bytes) override {
    FUZZ_CHECK(stream != nullptr);
    std::vector<uint8_t> answers;
    while (!bytes.empty()) {
      FUZZ_CHECK(bytes.size() >= dns::kLengthPrefix + dns::kHeaderSize);
      const size_t size = dns::kLengthPrefix + dns::load16(bytes.data());
      FUZZ_CHECK(size >= dns::kLengthPrefix + dns::kHeaderSize && size <= bytes.size());
      const uint16_t id = dns::load16(&bytes[dns::kLengthPrefix]);
      FUZZ_CHECK(waiting.insert(id).second);
      if (waiting.size() == kLate) settle(*waiting.begin(), bytes.first(size), answers);
      bytes = bytes.subspan(size);
    }
    stream->write(std::move(answers));
  }
  // Behind a GOAWAY.
  void onEnd() override {
    FUZZ_CHECK(stream != nullptr && !ended);
    ended = true;
  }
  void onDrained() override { FUZZ_CHECK(stream != nullptr); }
  void onError() override {
    FUZZ_CHECK(stream != nullptr && !stream->failure().empty());
    stream.reset();
  }
  // With an answer of the size of `like`, or, each second one, with none.
  void settle(uint16_t id, std::span<const uint8_t> like, std::vector<uint8_t>& answers) {
    waiting.erase(id);
    answered = !answered;
    if (!answered) return stream->cancel(id);
    const size_t start = answers.size();
    answers.insert(answers.end(), like.begin(), like.end());
    dns::store16(&answers[start + dns::kLengthPrefix], id);
  }

  static constexpr size_t kLate = 3;  // so many wait
  std::unique_ptr<server::HttpsStream> stream;
  std::set<uint16_t> waiting;
  bool answered = false;
  bool ended = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Pieces pieces({data, size});
  net::StreamHandler* below = nullptr;
  size_t written = 0;
  Owner owner;
  owner.stream = std::make_unique<server::HttpsStream>(std::make_unique<Connection>(below, written));
  owner.stream->start(owner);
  below->onConnected();
  const size_t said = written;

  std::span<const uint8_t> left = pieces.rest();
  while (!left.empty() && below != nullptr) {
    // A block of its own, so that AddressSanitizer guards its end.
    const auto piece = left.first(pieces.next(left.size()));
    const std::vector<uint8_t> bytes(piece.begin(), piece.end());
    below->onData(bytes);
    left = left.subspan(piece.size());
    // HPACK (RFC 7541) makes of one byte a field that was sent before.
    if (below != nullptr) FUZZ_CHECK(owner.stream->held() <= size * server::HttpsStream::kMaxHeaderBytes);
  }
  FUZZ_CHECK(written - said <= size * server::HttpsStream::kMaxHeaderBytes + 1024);
  FUZZ_CHECK((below == nullptr) == (owner.stream == nullptr));
  return 0;
}
