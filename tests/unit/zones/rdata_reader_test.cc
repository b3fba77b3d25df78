#include "zones/rdata_reader.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace idetcd::zones {
namespace {

const dns::Name kOrigin = dns::Name::parse("example.").value();

// In hex; or the error.
std::string read(std::string_view text) {
  MasterScanner scanner(text);
  EXPECT_TRUE(scanner.next().value_or(false));
  const auto type = dns::kTypeNames.parse(scanner.words().front().text);
  EXPECT_TRUE(type) << text;
  std::vector<uint8_t> rdata;
  const auto done = readRdata(type.value_or(0), scanner.words().subspan(1), kOrigin, rdata);
  if (!done) return done.error().message;
  std::string hex;
  for (const uint8_t byte : rdata) hex += fmt::format("{:02x}", byte);
  return hex;
}

TEST(RdataReader, Names) {
  EXPECT_EQ(read("NS a"), "0161076578616d706c6500");
  EXPECT_EQ(read("NS A.B."), "0161016200") << "folded, as its canonical form is";
  EXPECT_EQ(read("NS ."), "00");
  EXPECT_EQ(read("NS @"), "076578616d706c6500");
  EXPECT_EQ(read("NS a\\.b\\065."), "04612e626100");
  EXPECT_EQ(read("MX 10 a."), "000a016100");
  EXPECT_EQ(read("SRV 1 2 3 a."), "000100020003016100");
  EXPECT_EQ(read("NSEC A. A RRSIG"), "0141000006400000000002") << "keeps its case";
  EXPECT_NE(read("NS a..b").find("an empty label"), std::string::npos);
  EXPECT_NE(read("NS " + std::string(64, 'a')).find("63 bytes"), std::string::npos);
  std::string longest;
  for (int i = 0; i < 3; ++i) longest += std::string(63, 'a') + ".";
  EXPECT_EQ(read("NS " + longest + std::string(61, 'b') + ".").size(), 2 * 255u);
  EXPECT_NE(read("NS " + longest + std::string(62, 'b') + ".").find("255 bytes"), std::string::npos);
  EXPECT_NE(read("NS " + longest + std::string(60, 'b')).find("255 bytes"), std::string::npos) << "with the origin";
}

TEST(RdataReader, NumbersTextsAndAddresses) {
  EXPECT_EQ(read("A 192.0.2.1"), "c0000201");
  EXPECT_EQ(read("AAAA 2001:db8::1"), "20010db8000000000000000000000001");
  EXPECT_EQ(read("TXT a \"b c\" \"\""),
            "016103622063"
            "00");
  EXPECT_EQ(read("SPF \"v\""), "0176");
  EXPECT_EQ(read("HINFO a b"), "01610162");
  EXPECT_EQ(read("CAA 0 issue \"a.b\""), "00056973737565612e62");
  EXPECT_EQ(read("URI 1 2 \"x:y\""), "00010002783a79");
  EXPECT_EQ(read("SOA a. b. 1 1h 2m 3 1w"), "0161000162000000000100000e10000000780000000300093a80");
  EXPECT_EQ(read("NAPTR 1 2 u E2U+sip \"!a!b!\" ."),
            "00010002"
            "0175"
            "074532552b736970"
            "0521612162"
            "21"
            "00");
  EXPECT_EQ(read("EUI48 00-00-5e-00-53-2a"), "00005e00532a");
  EXPECT_EQ(read("L64 10 2001:0DB8:1140:1000"), "000a20010db811401000");
  EXPECT_NE(read("A ::1").find("no IPv4 address"), std::string::npos);
  EXPECT_NE(read("MX 65536 a").find("0 to 65535"), std::string::npos);
  EXPECT_NE(read("MX 1").find("too early"), std::string::npos);
  EXPECT_NE(read("A 192.0.2.1 x").find("more than"), std::string::npos);
  EXPECT_NE(read("TXT " + std::string(256, 'a')).find("more than 255"), std::string::npos);
  EXPECT_NE(read("TXT \\256").find("bad escape"), std::string::npos);
  EXPECT_NE(read("TXT").find("too early"), std::string::npos);
}

TEST(RdataReader, SecurityTypes) {
  EXPECT_EQ(read("DS 60485 5 1 2BB183AF 5F22588179"), "ec4505012bb183af5f22588179");
  EXPECT_EQ(read("DNSKEY 256 3 RSASHA256 AQ ID"),
            "01000308"
            "010203");
  EXPECT_EQ(read("CDNSKEY 0 3 0 AA=="), "0000030000");
  EXPECT_EQ(read("RRSIG A 8 2 3600 20260101000000 1767139200 12 a. AQID"),
            "0001080200000e106955b90069546780000c016100010203");
  EXPECT_EQ(read("NSEC3 1 1 12 aabb 2vptu5timamqttgl4luu9kg21e0aor3s A"),
            "0101000c02aabb1417f3df17b2b2adaef615257de4d2020b80ac6c7c000140");
  EXPECT_EQ(read("NSEC3PARAM 1 0 0 -"), "0100000000");
  EXPECT_EQ(read("TLSA 3 1 1 aabb"), "030101aabb");
  EXPECT_EQ(read("SSHFP 1 1 aa bb"), "0101aabb");
  EXPECT_EQ(read("CERT PGP 0 0 AQID"), "0003000000010203");
  EXPECT_NE(read("DS 1 8 2 abc").find("no hex"), std::string::npos);
  EXPECT_NE(read("OPENPGPKEY AQI").find("no base64"), std::string::npos);
  EXPECT_NE(read("RRSIG A 8 2 3600 20261301000000 1 1 a. AQID").find("no time"), std::string::npos);
  EXPECT_NE(read("NSEC a. NOSUCH").find("no type"), std::string::npos);
}

TEST(RdataReader, LocationsAsInRfc1876) {
  EXPECT_EQ(read("LOC 42 21 54 N 71 06 18 W -24m 30m"), "0033161389172dd070be15f000988d20");
  EXPECT_EQ(read("LOC 0 N 0 E 0"), "00121613800000008000000000989680");
  EXPECT_NE(read("LOC 91 N 0 E 0").find("a location is"), std::string::npos);
  EXPECT_NE(read("LOC 1 2 3 4 N 0 E 0").find("a location is"), std::string::npos);
}

TEST(RdataReader, ServiceParameters) {
  EXPECT_EQ(read("SVCB 0 a."), "0000016100");
  EXPECT_EQ(read("HTTPS 1 . port=53 alpn=\"h2,h3\""),
            "000100"
            "0001000602683202"
            "6833"
            "000300020035")
      << "in the order of the keys";
  EXPECT_EQ(read("HTTPS 1 . mandatory=port,alpn alpn=h2 port=1"),
            "000100"
            "0000000400010003"
            "00010003026832"
            "000300020001");
  EXPECT_EQ(read("SVCB 1 . ipv4hint=192.0.2.1,192.0.2.2"),
            "000100"
            "00040008c0000201c0000202");
  EXPECT_EQ(read("SVCB 1 . key667=\"a\\210b\""),
            "000100"
            "029b000361d262");
  EXPECT_EQ(read("SVCB 1 . no-default-alpn"),
            "000100"
            "00020000");
  EXPECT_EQ(read("SVCB 1 . alpn=f\\\\,oo,h2"),
            "000100"
            "0001000804662c6f6f026832");
  EXPECT_NE(read("SVCB 1 . port=x").find("bad value"), std::string::npos);
  EXPECT_NE(read("SVCB 1 . port=1 port=2").find("twice"), std::string::npos);
  EXPECT_NE(read("SVCB 1 . color=red").find("no parameter"), std::string::npos);
}

// As named-checkzone -F raw writes them; IPSECKEY without a key as Knot and NSD take it.
TEST(RdataReader, PrefixesGatewaysAndHostIdentities) {
  EXPECT_EQ(read("APL 1:192.168.32.0/21 !1:192.168.38.0/28"), "00011503c0a82000011c83c0a826");
  EXPECT_EQ(read("APL 2:2001:db8::/32 !2:::/0 1:0.0.0.0/0"), "0002200420010db80002008000010000");
  EXPECT_EQ(read("APL 1:192.168.32.1/21"), "00011504c0a82001") << "bits behind the prefix are kept";
  EXPECT_EQ(read("APL"), "");
  for (const char* wrong : {"1:192.168.32.0", "1:192.168.32.0/33", "2:2001:db8::/129", "2:192.0.2.0/24", "1:::/0", "3:00/1",
                            "!!1:10.0.0.0/8", "1:10/8", "1:/0", "1", "!", "1:10.0.0.0/"})
    EXPECT_NE(read(fmt::format("APL {}", wrong)).find("no address prefix"), std::string::npos) << wrong;

  EXPECT_EQ(read("IPSECKEY 10 1 2 192.0.2.38 AQNR U3mG"), "0a0102c000022601035153" "7986");
  EXPECT_EQ(read("IPSECKEY 10 0 2 . AQNRU3mG"), "0a0002" "010351537986");
  EXPECT_EQ(read("IPSECKEY 10 2 2 2001:0DB8:0:8002::2000:1 AQNR"), "0a020220010db8000080020000000020000001" "010351");
  EXPECT_EQ(read("IPSECKEY 10 3 2 A. AQNR"), "0a0302" "014100" "010351") << "keeps its case";
  EXPECT_EQ(read("IPSECKEY 10 1 0 192.0.2.38"), "0a0100c0000226");
  EXPECT_NE(read("IPSECKEY 10 4 0 . AQNR").find("'4' is no type of a gateway"), std::string::npos);
  EXPECT_NE(read("IPSECKEY 10 0 0 x AQNR").find("no gateway of type 0"), std::string::npos);
  EXPECT_NE(read("IPSECKEY 10 1 0 ::1 AQNR").find("no IPv4 address"), std::string::npos);
  EXPECT_NE(read("IPSECKEY 10 1 0").find("too early"), std::string::npos);
  EXPECT_NE(read("IPSECKEY 10 1 2 192.0.2.38 AQN").find("no base64"), std::string::npos);

  EXPECT_EQ(read("HIP 2 2001 AwEA"), "02020003" "2001" "030100");
  EXPECT_EQ(read("HIP 2 200100107B1A74DF365639CC39F1D578 AwEA R. b"),
            "10020003" "200100107b1a74df365639cc39f1d578" "030100" "015200" "0162076578616d706c6500");
  EXPECT_NE(read("HIP 2 200 AwEA .").find("no HIT"), std::string::npos);
  EXPECT_NE(read("HIP 2 \"\" AwEA .").find("no HIT"), std::string::npos);
  EXPECT_NE(read("HIP 2 20 AwEA=").find("no base64"), std::string::npos);
  EXPECT_NE(read("HIP 256 20 AwEA").find("0 to 255"), std::string::npos);
  EXPECT_NE(read("HIP 2 20").find("too early"), std::string::npos);
}

// As transfers bring them.
TEST(RdataReader, PrefixesGatewaysAndHostIdentitiesInWireForm) {
  for (const char* good : {"APL \\# 0", "APL \\# 5 00010881 0a", "APL \\# 4 00630080", "IPSECKEY \\# 3 0a0000",
                           "IPSECKEY \\# 8 0a0102c000022601", "IPSECKEY \\# 6 0a0302014100", "IPSECKEY \\# 4 0a0902ff",
                           "HIP \\# 6 010200012001", "HIP \\# 9 010200012001 014100"})
    EXPECT_EQ(read(good).find("no data of type"), std::string::npos) << good;
  for (const char* wrong :
       {"APL \\# 3 000108", "APL \\# 5 00010882 0a", "IPSECKEY \\# 2 0a00", "IPSECKEY \\# 6 0a0102c00002",
        "IPSECKEY \\# 5 0a03020141", "HIP \\# 3 010200", "HIP \\# 5 0102000120", "HIP \\# 8 010200012001 0141"})
    EXPECT_NE(read(wrong).find("no data of type"), std::string::npos) << wrong;
}

TEST(RdataReader, UnknownTypes) {
  EXPECT_EQ(read("TYPE65280 \\# 3 01 0203"), "010203");
  EXPECT_EQ(read("TYPE65280 \\# 0"), "");
  EXPECT_EQ(read("A \\# 4 c0000201"), "c0000201");
  EXPECT_EQ(read("NS \\# 3 014100"), "016100");
  EXPECT_NE(read("TYPE65280 1").find("\\# SIZE HEX"), std::string::npos);
  EXPECT_NE(read("TYPE65280 \\# 2 01").find("not 2 bytes"), std::string::npos);
  EXPECT_NE(read("A \\# 3 c00002").find("no data of type A"), std::string::npos);
  EXPECT_NE(read("MX \\# 5 000a014100ff").find("not 5 bytes"), std::string::npos);
}

TEST(RdataReader, Ttls) {
  EXPECT_EQ(parseTtl("0"), 0u);
  EXPECT_EQ(parseTtl("1h30m"), 5400u);
  EXPECT_EQ(parseTtl("1W2D"), 777600u);
  EXPECT_EQ(parseTtl("4294967295"), 4294967295u);
  EXPECT_EQ(effectiveTtl(2147483647), 2147483647u);
  EXPECT_EQ(effectiveTtl(2147483648), 0u);
  for (const char* wrong : {"4294967296", "10000w", "1x", "h", "-1"}) EXPECT_FALSE(parseTtl(wrong)) << wrong;
}

}  // namespace
}  // namespace idetcd::zones
