#include "dns/text.h"

#include <gtest/gtest.h>

#include "dns/wire.h"

namespace idetcd::dns {
namespace {

TEST(Text, Types) {
  EXPECT_EQ(typeToString(code(RrType::kA)), "A");
  EXPECT_EQ(typeToString(code(RrType::kAaaa)), "AAAA");
  EXPECT_EQ(typeToString(code(RrType::kSoa)), "SOA");
  EXPECT_EQ(typeToString(code(RrType::kAny)), "ANY");
  EXPECT_EQ(typeToString(0), "TYPE0");
  EXPECT_EQ(typeToString(65280), "TYPE65280");
  EXPECT_EQ(typeToString(65535), "TYPE65535");
}

TEST(Text, Classes) {
  EXPECT_EQ(classToString(1), "IN");
  EXPECT_EQ(classToString(3), "CH");
  EXPECT_EQ(classToString(255), "ANY");
  EXPECT_EQ(classToString(42), "CLASS42");
}

TEST(Text, Rcodes) {
  EXPECT_EQ(rcodeToString(code(Rcode::kNoError)), "NOERROR");
  EXPECT_EQ(rcodeToString(code(Rcode::kNxDomain)), "NXDOMAIN");
  EXPECT_EQ(rcodeToString(code(Rcode::kBadVers)), "BADVERS");
  EXPECT_EQ(rcodeToString(4095), "RCODE4095");
}

}  // namespace
}  // namespace idetcd::dns
