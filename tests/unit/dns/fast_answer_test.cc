// writeFastAnswer() is the ResponseBuilder's short cut: the same bytes, or none.
#include <cstring>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "dns/response.h"
#include "message.h"

namespace idetcd::dns {
namespace {

using namespace test;

constexpr size_t kLimit = 512;

class Exchange {
 public:
  // The records lie at the end of an allocation of their own, which AddressSanitizer guards.
  Exchange(const std::string& message, const std::string& records)
      : buffer_(std::make_unique<uint8_t[]>(kLimit + kReadSlack)),
        records_(std::make_unique<uint8_t[]>(records.size())) {
    std::memcpy(buffer_.get(), message.data(), message.size());
    std::memcpy(records_.get(), records.data(), records.size());
    span_ = {records_.get(), records.size()};
    EXPECT_EQ(parseQuery(buffer_.get(), message.size(), 1, query), ParseOutcome::kQuery);
  }
  std::string built(uint16_t count, size_t limit) {
    ResponseBuilder builder(query, limit);
    builder.addAnswer(span_, count);
    return text(builder.finish(Rcode::kNoError, kFlagAa | kFlagRa));
  }
  std::string plain(uint16_t count, size_t limit) {
    return text(writeFastAnswer(query, span_, count, limit, kFlagAa | kFlagRa));
  }

  Query query;

 private:
  std::string text(size_t size) const { return {reinterpret_cast<const char*>(buffer_.get()), size}; }
  std::unique_ptr<uint8_t[]> buffer_;
  std::unique_ptr<uint8_t[]> records_;
  std::span<const uint8_t> span_;
};

std::string queryWith(uint16_t flags, bool edns, uint32_t opt_ttl = 0) {
  return header(0xbeef, flags, {.additionals = edns ? 1u : 0u}) + question(wireName("WorKer1.tf.local."), 1) +
         (edns ? opt(4096, opt_ttl, "") : "");
}

TEST(FastAnswer, IsWhatTheBuilderWrites) {
  for (size_t size = 0; size <= 100; ++size) {
    const std::string records(size, 'r');
    for (const uint16_t flags : {0x0000, 0x0100, 0x0110, 0x0030}) {
      for (const bool edns : {false, true}) {
        const std::string message = queryWith(flags, edns, edns && size % 2 == 0 ? 0x8000 : 0);  // DO
        EXPECT_EQ(Exchange(message, records).plain(3, kLimit), Exchange(message, records).built(3, kLimit)) << size;
      }
    }
  }
}

TEST(FastAnswer, IsNoneWhereItDoesNotFit) {
  for (const bool edns : {false, true}) {
    const std::string message = queryWith(0x0100, edns);
    const size_t room = kLimit - queryWith(0x0100, edns).size();
    EXPECT_EQ(Exchange(message, std::string(room, 'r')).plain(1, kLimit).size(), kLimit);
    EXPECT_EQ(Exchange(message, std::string(room + 1, 'r')).plain(1, kLimit), "");
  }
}

TEST(FastAnswer, IsNoneWhereThereIsMoreToSay) {
  Exchange exchange(queryWith(0x0100, true), std::string(16, 'r'));
  for (const AskedOption option : {kAsksNsid, kAsksCookie}) {
    exchange.query.asked_options = option;
    EXPECT_EQ(exchange.plain(1, kLimit), "");
  }
}

}  // namespace
}  // namespace idetcd::dns
