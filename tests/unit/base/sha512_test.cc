#include "base/hash.h"

#include <gtest/gtest.h>

namespace idetcd {
namespace {

// FIPS 180-4's examples, and nothing at all.
TEST(Sha512, KnownAnswers) {
  EXPECT_EQ(sha512("abc"),
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
            "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f");
  EXPECT_EQ(sha512(""),
            "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce"
            "47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e");
}

}  // namespace
}  // namespace idetcd
