#include "dns/message_reader.h"

#include <vector>

#include <gtest/gtest.h>

#include "dns/name.h"
#include "support/upstream_message.h"

namespace idetcd::dns {
namespace {

UpstreamMessage sample() {
  return UpstreamMessage("www.example.org.", 1)
      .a("www.example.org.", 300, {192, 0, 2, 1})
      .record(UpstreamMessage::kAuthority, "example.org.", 2, 60, UpstreamMessage::name("ns.example.org."))
      .a("ns.example.org.", 0xffffffff, {192, 0, 2, 53}, UpstreamMessage::kAdditional);
}

constexpr size_t kQuestionEnd = kHeaderSize + 17 + 4;

TEST(MessageReader, GivesTheRecordsOfAllSectionsInOrder) {
  const UpstreamMessage message = sample();
  const HeaderView header(message.bytes.data());
  EXPECT_EQ(header.id(), 0xbeef);
  EXPECT_TRUE(header.isResponse());
  EXPECT_FALSE(header.isTruncated());
  EXPECT_EQ(header.opcode(), Opcode::kQuery);
  EXPECT_EQ(header.rcode(), Rcode::kNoError);
  EXPECT_EQ(header.questions(), 1);

  MessageReader reader(message.bytes, kQuestionEnd);
  RecordView record;
  ASSERT_EQ(reader.next(record), ReadStep::kRead);
  EXPECT_EQ(record.section, Section::kAnswer);
  EXPECT_EQ(record.owner, kQuestionEnd);
  EXPECT_EQ(record.type, 1);
  EXPECT_EQ(record.klass, 1);
  EXPECT_EQ(record.ttl, 300u);
  EXPECT_EQ(record.rdata_size, 4);
  EXPECT_EQ(message.bytes[record.rdata], 192);
  EXPECT_FALSE(record.is_last);
  ASSERT_EQ(reader.next(record), ReadStep::kRead);
  EXPECT_EQ(record.section, Section::kAuthority);
  ASSERT_EQ(reader.next(record), ReadStep::kRead);
  EXPECT_EQ(record.section, Section::kAdditional);
  EXPECT_EQ(record.ttl, 0xffffffffu) << "as it stands";
  EXPECT_TRUE(record.is_last);
  EXPECT_EQ(reader.next(record), ReadStep::kEnd);
  EXPECT_EQ(reader.position(), message.bytes.size());
}

TEST(MessageReader, CutAnywhereItIsNotWhole) {
  const UpstreamMessage message = sample();
  for (size_t size = kQuestionEnd; size < message.bytes.size(); ++size) {
    const std::vector<uint8_t> cut(message.bytes.begin(), message.bytes.begin() + static_cast<ptrdiff_t>(size));
    MessageReader reader(cut, kQuestionEnd);
    RecordView record;
    ReadStep step;
    while ((step = reader.next(record)) == ReadStep::kRead) continue;
    EXPECT_EQ(step, ReadStep::kMalformed) << size;
  }
}

TEST(MessageReader, OptionsEndOrAreMalformed) {
  const std::vector<uint8_t> rdata{0, 15, 0, 2, 0, 3, 0, 10, 0, 0, 0, 3, 0};
  OptionReader reader(rdata);
  OptionView option;
  ASSERT_EQ(reader.next(option), ReadStep::kRead);
  EXPECT_EQ(option.code, 15);
  EXPECT_EQ(option.data.size(), 2u);
  ASSERT_EQ(reader.next(option), ReadStep::kRead);
  EXPECT_EQ(option.code, 10);
  EXPECT_TRUE(option.data.empty());
  EXPECT_EQ(reader.next(option), ReadStep::kMalformed);
  OptionReader none(std::span<const uint8_t>(rdata).first(0));
  EXPECT_EQ(none.next(option), ReadStep::kEnd);
}

TEST(Labels, SkippedNamesPointBackwardsAndBehindTheHeader) {
  std::vector<uint8_t> message(kHeaderSize);
  message.insert(message.end(), {1, 'a', 0});           // 12
  message.insert(message.end(), {1, 'b', 0xc0, 12});    // 15
  message.insert(message.end(), {1, 'c', 0xc0, 19});    // 19: into itself
  message.insert(message.end(), {0xc0, 11});            // 23: into the header
  message.insert(message.end(), {0x40, 'x', 0, 0xc0});  // 25: an unknown label; 28: half a pointer
  const auto skip = [&message](size_t pos) { return skipName(message.data(), message.size(), pos); };
  EXPECT_EQ(skip(12), 15u);
  EXPECT_EQ(skip(15), 19u);
  EXPECT_EQ(skip(19), 0u);
  EXPECT_EQ(skip(23), 0u);
  EXPECT_EQ(skip(25), 0u);
  EXPECT_EQ(skip(28), 0u);
  EXPECT_EQ(skip(29), 0u);
}

TEST(Labels, AnUncompressedNameIsWhole) {
  const auto size = [](std::vector<uint8_t> wire) { return uncompressedNameSize(wire); };
  EXPECT_EQ(size({}), 0u);
  EXPECT_EQ(size({0}), 1u);
  EXPECT_EQ(size({1, 'a', 0, 7}), 3u);
  EXPECT_EQ(size({1, 'a'}), 0u);
  EXPECT_EQ(size({1, 'a', 0xc0, 0}), 0u);
  EXPECT_EQ(size({64, 0}), 0u);
  std::vector<uint8_t> longest;
  for (int i = 0; i < 127; ++i) longest.insert(longest.end(), {1, 'x'});
  longest.push_back(0);
  EXPECT_EQ(uncompressedNameSize(longest), 255u);
  longest.insert(longest.begin(), {1, 'x'});
  EXPECT_EQ(uncompressedNameSize(longest), 0u);
}

}  // namespace
}  // namespace idetcd::dns
