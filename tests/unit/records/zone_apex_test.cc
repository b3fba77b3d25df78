#include "records/record_store.h"

#include <string>

#include <gtest/gtest.h>

#include "table_support.h"

namespace idetcd::records {
namespace {

using test::name;
using test::text;

TEST(ZoneApex, SoaByteForByte) {
  const ZoneApex apex(name("tf.local."), 5);
  const ZoneApex::Soa soa = apex.soa(0x0116, 0x01020304);
  EXPECT_EQ(text(soa.span()), std::string("\xc1\x16\0\6\0\1\0\0\0\5\0\x2a"              // owner SOA IN 5, 42 bytes
                                          "\2ns\3dns\xc1\x16"                           // MNAME
                                          "\x0ahostmaster\xc1\x16"                      // RNAME
                                          "\1\2\3\4\0\0\x1c\x20\0\0\7\x08\0\1\x51\x80"  // serial 7200 1800 86400
                                          "\0\0\0\5",
                                          54));
  // A template: the next question gets its own.
  const ZoneApex::Soa next = apex.soa(12, 9);
  EXPECT_EQ(text(next.span()).substr(0, 2), "\xc0\x0c");
  EXPECT_EQ(text(next.span()).substr(34, 4), std::string("\0\0\0\x09", 4));
  EXPECT_EQ(text(apex.soa(0x3fff, 0).span()).substr(0, 2), "\xff\xff");
}

TEST(ZoneApex, NsByteForByte) {
  const ZoneApex apex(name("tf.local."), 0x00010203);
  EXPECT_EQ(text(apex.ns()), std::string("\xc0\x0c\0\2\0\1\0\1\2\3\0\x09\2ns\3dns\xc0\x0c", 21));
  EXPECT_EQ(text(apex.ns().subspan(ZoneApex::kNsTarget)), "\2ns\3dns\xc0\x0c");
  EXPECT_EQ(apex.nameServer(), name("ns.dns.tf.local."));
}

TEST(ZoneApex, AZoneTooLongForAPrefixIsItsOwnNameServer) {
  std::string zone;
  for (int i = 0; i < 3; ++i) zone += std::string(63, 'z') + ".";
  const std::string fits = zone + std::string(50, 'z') + ".";      // 244 bytes: 255 with "hostmaster"
  const std::string too_long = zone + std::string(51, 'z') + ".";  // 245
  ASSERT_EQ(name(fits).size(), 244u);

  EXPECT_EQ(ZoneApex(name(fits), 5).nameServer(), name("ns.dns." + fits));
  EXPECT_EQ(ZoneApex(name(fits), 5).soa(12, 1).span().size(), 54u);

  const ZoneApex apex(name(too_long), 5);
  EXPECT_EQ(apex.nameServer(), name(too_long));
  EXPECT_EQ(text(apex.ns()), std::string("\xc0\x0c\0\2\0\1\0\0\0\5\0\2\xc0\x0c", 14));
  EXPECT_EQ(text(apex.soa(0x20, 0x0a0b0c0d).span()),
            std::string("\xc0\x20\0\6\0\1\0\0\0\5\0\x18\xc0\x20\xc0\x20"
                        "\x0a\x0b\x0c\x0d\0\0\x1c\x20\0\0\7\x08\0\1\x51\x80\0\0\0\5",
                        36));
}

}  // namespace
}  // namespace idetcd::records
