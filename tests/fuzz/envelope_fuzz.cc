// What a machine of the cluster, or a stranger, sends to a machine without one: an envelope is opened as it was sealed
// or dropped; a message is what it is when written again; an elector answers nothing to what is not authentic, and
// survives the rest. The input is a message; it is tried as an envelope too, sealed and as it is.
#include <cstdint>
#include <string>
#include <string_view>

#include "founding/elector.h"
#include "fuzz/check.h"

namespace {

using namespace idetcd;
using namespace idetcd::founding;

constexpr const char* kUuid = "00000000-0000-4000-8000-000000000001";

// The same numbers for every input.
class Counting final : public RandomSource {
 public:
  uint64_t next() override { return ++last_; }

 private:
  uint64_t last_ = 0;
};

void receive(std::string_view envelope, bool authentic) {
  static const Key key = Secret::parse("0123456789abcdef")->derive(kMessageLabel);
  Counting random;
  const SocketAddress other{IpAddress::v4({10, 0, 0, 2}), 2390};
  Elector elector({.self = {.member = {1, kUuid}, .addresses = {other}, .expect = 3}, .port = 2390, .peers = {other}},
                  key, Record{kUuid, {}, {}, {}}, Elector::Time(std::chrono::seconds(1)), random);
  const Elector::Time now(std::chrono::seconds(2));
  elector.receive(now, other, envelope);
  size_t answers = 0;
  while (const auto unwritten = elector.takeUnwritten()) {
    FUZZ_CHECK(decodeRecord(unwritten->bytes, kUuid).has_value());
    elector.written(now, unwritten->version);
  }
  for (const Elector::Outgoing& answer : elector.takeMessages()) {
    ++answers;
    FUZZ_CHECK(decode(unseal(key, answer.envelope)->body).has_value());
  }
  FUZZ_CHECK(answers <= (authentic ? 1 : 0));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Key key = Secret::parse("0123456789abcdef")->derive(kMessageLabel);
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  FUZZ_CHECK(!unseal(key, input));  // nobody guesses 256 bits
  receive(input, false);
  if (const auto first = firstFrame(input); first && *first)
    FUZZ_CHECK(frame(**first) == input.substr(0, (*first)->size() + 4));
  const std::string sealed = seal(key, 7, input);
  const auto opened = unseal(key, sealed);
  if (sealed.size() <= kMaxFrame) FUZZ_CHECK(opened && opened->nonce == 7 && opened->body == input);
  if (const auto message = decode(input)) FUZZ_CHECK(decode(encode(*message)) == message);
  receive(sealed, true);
  return 0;
}
