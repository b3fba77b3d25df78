#include "dns/types.h"

#include <cctype>
#include <string>

#include <gtest/gtest.h>

namespace idetcd::dns {
namespace {

TEST(Types, KnownAndUnknownOnesArePrinted) {
  EXPECT_EQ(kTypeNames.toString(code(RrType::kA)), "A");
  EXPECT_EQ(kTypeNames.toString(code(RrType::kAaaa)), "AAAA");
  EXPECT_EQ(kTypeNames.toString(code(RrType::kSoa)), "SOA");
  EXPECT_EQ(kTypeNames.toString(code(RrType::kAny)), "ANY");
  EXPECT_EQ(kTypeNames.toString(0), "TYPE0");
  EXPECT_EQ(kTypeNames.toString(65280), "TYPE65280");
  EXPECT_EQ(kTypeNames.toString(65535), "TYPE65535");
}

TEST(Types, ClassesRcodesAndOpcodes) {
  EXPECT_EQ(kClassNames.toString(1), "IN");
  EXPECT_EQ(kClassNames.toString(3), "CH");
  EXPECT_EQ(kClassNames.toString(255), "ANY");
  EXPECT_EQ(kClassNames.toString(42), "CLASS42");
  EXPECT_EQ(kRcodeNames.toString(code(Rcode::kNoError)), "NOERROR");
  EXPECT_EQ(kRcodeNames.toString(code(Rcode::kNxDomain)), "NXDOMAIN");
  EXPECT_EQ(kRcodeNames.toString(code(Rcode::kBadVers)), "BADVERS");
  EXPECT_EQ(kRcodeNames.toString(4095), "RCODE4095");
  EXPECT_EQ(kOpcodeNames.toString(5), "UPDATE");
  EXPECT_EQ(kOpcodeNames.toString(3), "OPCODE3");
}

TEST(Types, EveryNumberComesBackFromItsText) {
  const auto check = [](const Mnemonics& names, unsigned largest) {
    for (unsigned number = 0; number <= largest; ++number) {
      std::string text = names.toString(static_cast<uint16_t>(number));
      ASSERT_EQ(names.parse(text), number) << text;
      for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      ASSERT_EQ(names.parse(text), number) << text;
    }
  };
  check(kTypeNames, 0xffff);
  check(kClassNames, 0xffff);
  check(kRcodeNames, 0xfff);
  check(kOpcodeNames, 0xf);
}

TEST(Types, NumbersAndOtherNamesAreUnderstood) {
  EXPECT_EQ(kTypeNames.parse("type1"), code(RrType::kA));
  EXPECT_EQ(kTypeNames.parse("NSAP-PTR"), 23);
  EXPECT_EQ(kRcodeNames.parse("badsig"), code(Rcode::kBadVers));
  EXPECT_EQ(kRcodeNames.parse("NOTIMPL"), code(Rcode::kNotImp));
}

TEST(Types, WhatIsNoneIsRefused) {
  for (const char* text :
       {"", "TYPE", "TYPE65536", "TYPE-1", "TYPE+1", "TYPE1 ", "TYPE 1", "TYPE0x1", "AA", "1", "IN"}) {
    EXPECT_FALSE(kTypeNames.parse(text)) << text;
  }
  EXPECT_FALSE(kRcodeNames.parse("NXDOMAINS"));
  EXPECT_FALSE(kRcodeNames.parse("3"));
  EXPECT_FALSE(kRcodeNames.parse("RCODE4096"));
  EXPECT_FALSE(kOpcodeNames.parse("OPCODE16"));
}

}  // namespace
}  // namespace idetcd::dns
