#include "dns/record.h"

#include <array>
#include <vector>

#include <gtest/gtest.h>

namespace idetcd::dns {
namespace {

TEST(RecordTest, AWholeRecord) {
  std::array<uint8_t, 32> bytes{};
  constexpr std::array<uint8_t, 4> kAddress{192, 0, 2, 1};
  uint8_t* end = putRecordHead(bytes.data(), kQuestionPointer, RrType::kA, 0x01020304, kAddress.size());
  EXPECT_EQ(static_cast<size_t>(end - bytes.data()), kRecordHeadSize);
  end = putBytes(end, kAddress);
  EXPECT_EQ(std::vector<uint8_t>(bytes.data(), end),
            (std::vector<uint8_t>{0xc0, 12, 0, 1, 0, 1, 1, 2, 3, 4, 0, 4, 192, 0, 2, 1}));
}

TEST(RecordTest, OtherOwnersAndClasses) {
  std::array<uint8_t, 32> bytes{};
  putRecordHead(bytes.data(), pointerTo(0x123), RrType::kTxt, 0, 0x203, RrClass::kCh);
  EXPECT_EQ(std::vector<uint8_t>(bytes.data(), bytes.data() + kRecordHeadSize),
            (std::vector<uint8_t>{0xc1, 0x23, 0, 16, 0, 3, 0, 0, 0, 0, 2, 3}));
}

}  // namespace
}  // namespace idetcd::dns
