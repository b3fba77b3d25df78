#include "resolve/upstream.h"

#include <cstdio>
#include <fstream>

#include <gtest/gtest.h>

namespace idetcd::resolve {
namespace {

std::string parsed(std::string_view text) {
  const auto target = parseUpstreamTarget(text);
  if (!target) return "error: " + target.error().message;
  return target->server ? target->server->toString() : "file " + target->file;
}

TEST(UpstreamTargetTest, Addresses) {
  EXPECT_EQ(parsed("192.0.2.1"), "192.0.2.1:53");
  EXPECT_EQ(parsed("192.0.2.1:5353"), "192.0.2.1:5353");
  EXPECT_EQ(parsed("dns://192.0.2.1"), "192.0.2.1:53");
  EXPECT_EQ(parsed("dns://192.0.2.1:1"), "192.0.2.1:1");
  EXPECT_EQ(parsed("tls://192.0.2.1"), "tls://192.0.2.1:853");
  EXPECT_EQ(parsed("tls://[2001:db8::1]:8853"), "tls://[2001:db8::1]:8853");
  EXPECT_EQ(parsed("2001:db8::1"), "[2001:db8::1]:53");
  EXPECT_EQ(parsed("[2001:db8::1]"), "[2001:db8::1]:53");
  EXPECT_EQ(parsed("[2001:db8::1]:65535"), "[2001:db8::1]:65535");
}

TEST(UpstreamTargetTest, LinkLocalAddressesHaveAnInterface) {
  const auto target = parseUpstreamTarget("fe80::1%lo");
  ASSERT_TRUE(target && target->server);
  EXPECT_NE(target->server->address.scope_id, 0u);
  EXPECT_EQ(parsed("fe80::1%nosuchinterface"), "error: not an IP address or file: \"fe80::1%nosuchinterface\"");
  EXPECT_EQ(parsed("192.0.2.1%lo"), "error: not an IP address or file: \"192.0.2.1%lo\"");
}

TEST(UpstreamTargetTest, WhatIsNoServerIsRefused) {
  for (const char* text : {"", "localhost", "192.0.2.1:0", "192.0.2.1:65536", "192.0.2.1:", "192.0.2.1:53x", "[::1",
                           "[::1]x", "[]:53", "192.0.2.256", "/nonexistent/resolv.conf"}) {
    EXPECT_TRUE(parsed(text).starts_with("error: not an IP address")) << text;
  }
  EXPECT_EQ(parsed("https://192.0.2.1/dns-query"), "error: https:// is not supported: 'https://192.0.2.1/dns-query'");
  EXPECT_EQ(parsed("grpc://192.0.2.1"), "error: grpc:// is not supported: 'grpc://192.0.2.1'");
  EXPECT_EQ(parsed("tls://dns.example"), "error: not an IP address: 'tls://dns.example'");
  EXPECT_EQ(parsed("tls:///etc/hosts"), "error: not an IP address: 'tls:///etc/hosts'");
  EXPECT_TRUE(parsed("0.0.0.0").starts_with("error: no server's address"));
  EXPECT_TRUE(parsed("ff02::fb").starts_with("error: no server's address"));
}

class ResolvConfTest : public testing::Test {
 protected:
  ResolvConfTest() {
    char pattern[] = "/tmp/idetcd-resolv-XXXXXX";
    close(mkstemp(pattern));
    file_ = pattern;
  }
  ~ResolvConfTest() override { std::remove(file_.c_str()); }
  std::vector<std::string> read(const std::string& text) const {
    std::vector<std::string> servers;
    for (const auto& server : parseResolvConf(text)) servers.push_back(server.toString());
    return servers;
  }
  std::string file_;
};

TEST_F(ResolvConfTest, NameserversInOrder) {
  EXPECT_EQ(read("# comment\n; nameserver 192.0.2.9\nsearch example.org\nnameserver 192.0.2.1\n"
                 "nameserver\t2001:db8::1  # here\noptions edns0\nnameserver 192.0.2.1\nnameserver 192.0.2.2"),
            (std::vector<std::string>{"192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.2:53"}));
  EXPECT_EQ(parsed(file_), "file " + file_);
}

TEST_F(ResolvConfTest, WhatCannotBeReadIsSkipped) {
  EXPECT_TRUE(read("").empty());
  EXPECT_TRUE(read("nameserver\nnameserver x\nnameserver 0.0.0.0\n nameservers 192.0.2.1\n\0\n").empty());
  EXPECT_EQ(read("nameserver 1.2.3.4.5\r\n  nameserver 192.0.2.1\r\n"), std::vector<std::string>{"192.0.2.1:53"});
}

TEST(ResolvConfErrorTest, NoFile) {
  EXPECT_FALSE(parseUpstreamTarget("/nonexistent"));
  EXPECT_FALSE(parseUpstreamTarget("/tmp")) << "a directory";
}

TEST(RcodeTest, Mnemonics) {
  EXPECT_EQ(parseRcode("NXDOMAIN"), dns::Rcode::kNxDomain);
  EXPECT_EQ(parseRcode("nxdomain"), dns::Rcode::kNxDomain);
  EXPECT_EQ(parseRcode("SERVFAIL"), dns::Rcode::kServFail);
  EXPECT_EQ(parseRcode("BADCOOKIE"), static_cast<dns::Rcode>(23));
  EXPECT_FALSE(parseRcode(""));
  EXPECT_FALSE(parseRcode("NXDOMAINS"));
  EXPECT_FALSE(parseRcode("3"));
}

}  // namespace
}  // namespace idetcd::resolve
