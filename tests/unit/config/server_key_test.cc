#include "config/server_key.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace idetcd::config {
namespace {

std::vector<std::string> keys(std::string_view text) {
  const auto parsed = parseServerKey(text, 53);
  if (!parsed) return {parsed.error().message};
  std::vector<std::string> shown;
  for (const ServerKey& key : *parsed) {
    const std::string scheme = key.scheme == Scheme::kDns ? "" : std::string(schemeName(key.scheme)) + "://";
    EXPECT_EQ(key.text, scheme + key.zone.toString() + ":" + std::to_string(key.port));
    shown.push_back(key.text);
  }
  return shown;
}

using Keys = std::vector<std::string>;

TEST(ServerKey, ZoneAndPort) {
  EXPECT_EQ(keys("."), Keys{".:53"});
  EXPECT_EQ(keys(".:1053"), Keys{".:1053"});
  EXPECT_EQ(keys(".:0"), Keys{".:0"});
  EXPECT_EQ(keys("example.org"), Keys{"example.org.:53"});
  EXPECT_EQ(keys("Example.ORG.:65535"), Keys{"example.org.:65535"});
  EXPECT_EQ(keys("dns://example.org"), Keys{"example.org.:53"});
  EXPECT_EQ(keys("dns://.:5300"), Keys{".:5300"});
  EXPECT_EQ(keys("_srv.a-b.org:053"), Keys{"_srv.a-b.org.:53"});
  EXPECT_EQ(keys("0/25.2.0.192.in-addr.arpa"), Keys{"0/25.2.0.192.in-addr.arpa.:53"});  // RFC 2317
  EXPECT_EQ(keys("a\\.b.org:54"), Keys{"a\\.b.org.:54"});
  EXPECT_EQ(parseServerKey("tf.local", 1053)->front().text, "tf.local.:1053");
}

TEST(ServerKey, EscapedColonIsPartOfTheZone) {
  const auto parsed = parseServerKey("a\\:5.org:54", 53);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->front().port, 54);
  EXPECT_EQ(parsed->front().zone, *dns::Name::parse("a\\0585.org."));
  EXPECT_TRUE(parseServerKey("a\\058b", 53));
}

TEST(ServerKey, NetworksAreReverseZones) {
  EXPECT_EQ(keys("10.0.0.0/24"), Keys{"0.0.10.in-addr.arpa.:53"});
  EXPECT_EQ(keys("10.1.2.3/24:54"), Keys{"2.1.10.in-addr.arpa.:54"});  // host bits do not matter
  EXPECT_EQ(keys("10.1.2.3/32"), Keys{"3.2.1.10.in-addr.arpa.:53"});
  EXPECT_EQ(keys("10.0.0.0/8"), Keys{"10.in-addr.arpa.:53"});
  EXPECT_EQ(keys("0.0.0.0/0"), Keys{"in-addr.arpa.:53"});
  EXPECT_EQ(keys("2001:db8::/32"), Keys{"8.b.d.0.1.0.0.2.ip6.arpa.:53"});
  EXPECT_EQ(keys("2001:db8::/32:1053"), Keys{"8.b.d.0.1.0.0.2.ip6.arpa.:1053"});
  EXPECT_EQ(keys("dns://2001:DB8::1/36"), Keys{"0.8.b.d.0.1.0.0.2.ip6.arpa.:53"});
  EXPECT_EQ(keys("::/0"), Keys{"ip6.arpa.:53"});
}

TEST(ServerKey, NetworksBetweenLabelsAreSeveralZones) {
  EXPECT_EQ(keys("10.3.0.0/15:54"), (Keys{"2.10.in-addr.arpa.:54", "3.10.in-addr.arpa.:54"}));
  EXPECT_EQ(keys("192.0.2.130/30"), (Keys{"128.2.0.192.in-addr.arpa.:53", "129.2.0.192.in-addr.arpa.:53",
                                          "130.2.0.192.in-addr.arpa.:53", "131.2.0.192.in-addr.arpa.:53"}));
  EXPECT_EQ(keys("172.16.0.0/12").size(), 16u);
  EXPECT_EQ(keys("172.16.0.0/12").front(), "16.172.in-addr.arpa.:53");
  EXPECT_EQ(keys("172.16.0.0/12").back(), "31.172.in-addr.arpa.:53");
  EXPECT_EQ(keys("128.0.0.0/1").size(), 128u);
  EXPECT_EQ(keys("128.0.0.0/1").back(), "255.in-addr.arpa.:53");
  EXPECT_EQ(keys("fe80::/10"),
            (Keys{"8.e.f.ip6.arpa.:53", "9.e.f.ip6.arpa.:53", "a.e.f.ip6.arpa.:53", "b.e.f.ip6.arpa.:53"}));
  EXPECT_EQ(keys("2001:db8:4000::/34"), (Keys{"4.8.b.d.0.1.0.0.2.ip6.arpa.:53", "5.8.b.d.0.1.0.0.2.ip6.arpa.:53",
                                              "6.8.b.d.0.1.0.0.2.ip6.arpa.:53", "7.8.b.d.0.1.0.0.2.ip6.arpa.:53"}));
}

TEST(ServerKey, EachSchemeHasItsPort) {
  EXPECT_EQ(keys("dns://example.org"), (Keys{"example.org.:53"}));
  EXPECT_EQ(keys("tls://example.org"), (Keys{"tls://example.org.:853"}));
  EXPECT_EQ(keys("https://."), (Keys{"https://.:443"}));
  EXPECT_EQ(keys("https://example.org:8443"), (Keys{"https://example.org.:8443"}));
  EXPECT_EQ(keys("tls://10.0.0.0/24:8853"), (Keys{"tls://0.0.10.in-addr.arpa.:8853"}));
  EXPECT_EQ(parseServerKey("tls://.", 5353).value().front().scheme, Scheme::kTls);
  EXPECT_EQ(parseServerKey(".", 5353).value().front().scheme, Scheme::kDns);
}

TEST(ServerKey, Refuses) {
  const struct {
    std::string_view text;
    std::string_view error;
  } cases[] = {
      {"example.org:", "expecting data after last colon: \"example.org:\""},
      {":", "expecting data after last colon: \":\""},
      {"example.org:99999", "invalid port '99999' in 'example.org:99999'"},
      {"example.org:-1", "invalid port '-1' in 'example.org:-1'"},
      {"example.org:domain", "invalid port 'domain' in 'example.org:domain'"},
      {"a:1:2", "zone is not a valid domain name: 'a:1' (':' must be escaped)"},
      {"::1", "'::1' is an address and not a zone, its reverse zone is '::1/128'"},
      {"2001:db8::1", "'2001:db8::1' is an address and not a zone, its reverse zone is '2001:db8::1/128'"},
      {"[::1]:53", "zone is not a valid domain name: '[::1]' ('[' must be escaped)"},
      {"2001:db8::/129", "invalid port '/129' in '2001:db8::/129'"},
      {"(", "zone is not a valid domain name: '(' ('(' must be escaped)"},
      {"{}", "zone is not a valid domain name: '{}' ('{' must be escaped)"},
      {"{$HALF", "zone is not a valid domain name: '{$HALF' ('{' must be escaped)"},
      {"a.org b.org", "zone is not a valid domain name: 'a.org b.org' (' ' must be escaped)"},
      {"grpc://example.org:443",
       "grpc:// is not supported, only dns://, tls:// and https:// are: 'grpc://example.org:443'"},
      {"https3://.", "https3:// is not supported, only dns://, tls:// and https:// are: 'https3://.'"},
      {"quic://.", "quic:// is not supported, only dns://, tls:// and https:// are: 'quic://.'"},
      {"http://example.org", "unknown scheme 'http' in 'http://example.org'"},
  };
  for (const auto& each : cases) EXPECT_EQ(keys(each.text), Keys{std::string(each.error)}) << each.text;
}

TEST(ServerKey, EscapesTakeEveryCharacter) {
  EXPECT_TRUE(parseServerKey("a\\ b\\(\\{.org", 53));
  EXPECT_TRUE(parseServerKey("b\u00fccher.example", 53));
}

TEST(ServerKey, ThePortForPlainDns) {
  std::vector<ServerKey> all;
  EXPECT_FALSE(dnsPortOf(all).has_value());
  for (const char* text : {"tls://a", "https://a"}) all.push_back(parseServerKey(text, 53).value().front());
  EXPECT_FALSE(dnsPortOf(all).has_value());
  for (const char* text : {"a:5300", "a:5301"}) all.push_back(parseServerKey(text, 53).value().front());
  EXPECT_EQ(dnsPortOf(all), 5300);
}

TEST(ServerKey, RefusesBadZones) {
  EXPECT_LT(keys(std::string(1'000'000, 'a'))[0].size(), 200u);

  for (const std::string& zone :
       {std::string("a..b"), std::string(".a"), std::string(64, 'x') + ".org", std::string(":53"),
        std::string("dns://"), std::string("a\\"), std::string(300, 'x')}) {
    const Keys shown = keys(zone);
    ASSERT_EQ(shown.size(), 1u);
    EXPECT_TRUE(shown[0].starts_with("zone is not a valid domain name: '")) << shown[0];
  }
}

}  // namespace
}  // namespace idetcd::config
