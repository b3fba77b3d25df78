#include "base/hash.h"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace idetcd {
namespace {

std::array<uint8_t, 8> hashOfFirst(size_t size) {
  SipHashKey key;
  std::iota(key.begin(), key.end(), uint8_t{0});
  std::vector<uint8_t> message(size);
  std::iota(message.begin(), message.end(), uint8_t{0});
  return sipHash24(message, key);
}

// The vectors that come with the reference implementation: the key is 00 to 0f, the message 00, 01, 02, ...
TEST(SipHash, ReferenceVectors) {
  using Bytes = std::array<uint8_t, 8>;
  EXPECT_EQ(hashOfFirst(0), (Bytes{0x31, 0x0e, 0x0e, 0xdd, 0x47, 0xdb, 0x6f, 0x72}));
  EXPECT_EQ(hashOfFirst(1), (Bytes{0xfd, 0x67, 0xdc, 0x93, 0xc5, 0x39, 0xf8, 0x74}));
  EXPECT_EQ(hashOfFirst(7), (Bytes{0x37, 0xd1, 0x01, 0x8b, 0xf5, 0x00, 0x02, 0xab}));
  EXPECT_EQ(hashOfFirst(8), (Bytes{0x62, 0x24, 0x93, 0x9a, 0x79, 0xf5, 0xf5, 0x93}));
  EXPECT_EQ(hashOfFirst(15), (Bytes{0xe5, 0x45, 0xbe, 0x49, 0x61, 0xca, 0x29, 0xa1}));  // the paper's
}

}  // namespace
}  // namespace idetcd
