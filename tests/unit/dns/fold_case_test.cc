#include <cstring>
#include <memory>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "dns/query.h"

namespace idetcd::dns {
namespace {

uint8_t reference(uint8_t c) { return c >= 'A' && c <= 'Z' ? static_cast<uint8_t>(c - 'A' + 'a') : c; }

TEST(FoldCase, EveryByteInEveryPlace) {
  for (size_t place = 0; place < 8; ++place) {
    for (unsigned c = 0; c < 256; ++c) {
      for (const uint8_t neighbour : {uint8_t{0}, uint8_t{'A'}, uint8_t{'Z'}, uint8_t{0x7f}, uint8_t{0xff}}) {
        uint8_t from[8 + kReadSlack];
        uint8_t to[8 + kReadSlack];
        std::memset(from, neighbour, sizeof(from));
        from[place] = static_cast<uint8_t>(c);
        foldCase(from, 8, to);
        for (size_t i = 0; i < 8; ++i) ASSERT_EQ(to[i], reference(from[i])) << c << " at " << place;
      }
    }
  }
}

TEST(FoldCase, EverySizeAtEveryAlignmentStaysInItsSlack) {
  std::mt19937 random(2);
  for (size_t size = 0; size <= kMaxNameLength; ++size) {
    for (size_t offset = 0; offset < 8; ++offset) {
      // Exactly the promised slack, on the heap: AddressSanitizer guards what is behind it.
      const auto from = std::make_unique<uint8_t[]>(offset + size + kReadSlack);
      const auto to = std::make_unique<uint8_t[]>(offset + size + kReadSlack);
      for (size_t i = 0; i < offset + size + kReadSlack; ++i) from[i] = static_cast<uint8_t>(random());
      std::memset(to.get(), 0xee, offset + size + kReadSlack);
      foldCase(from.get() + offset, size, to.get() + offset);
      for (size_t i = 0; i < offset; ++i) ASSERT_EQ(to[i], 0xee);
      for (size_t i = 0; i < size; ++i) ASSERT_EQ(to[offset + i], reference(from[offset + i]));
    }
  }
}

TEST(FoldCase, AgreesWithToLower) {
  for (unsigned c = 0; c < 256; ++c) EXPECT_EQ(toLower(static_cast<uint8_t>(c)), reference(static_cast<uint8_t>(c)));
}

}  // namespace
}  // namespace idetcd::dns
