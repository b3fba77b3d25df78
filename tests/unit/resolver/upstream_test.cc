#include "resolver/upstream.h"

#include <cstdio>
#include <fstream>

#include <gtest/gtest.h>

namespace idetcd::resolver {
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
  EXPECT_EQ(parsed("https://192.0.2.1"), "https://192.0.2.1:443");
  EXPECT_EQ(parsed("https://[2001:db8::1]:8443"), "https://[2001:db8::1]:8443");
  EXPECT_EQ(parsed("2001:db8::1"), "[2001:db8::1]:53");
  EXPECT_EQ(parsed("[2001:db8::1]"), "[2001:db8::1]:53");
  EXPECT_EQ(parsed("[2001:db8::1]:65535"), "[2001:db8::1]:65535");
}

TEST(UpstreamTargetTest, LinkLocalAddressesHaveAnInterface) {
  const auto target = parseUpstreamTarget("fe80::1%lo");
  ASSERT_TRUE(target && target->server);
  EXPECT_NE(target->server->address.scope_id, 0u);
  EXPECT_EQ(parsed("fd00::1%lo"), parsed("fd00::1"));
  EXPECT_EQ(parsed("[fd01::1%ens3]:153"), parsed("[fd01::1]:153"));
  const auto later = parseUpstreamTarget("[fe80::1%nosuchinterface]:54");
  ASSERT_TRUE(later && later->server);
  EXPECT_EQ(later->server->interface, "nosuchinterface") << "it may come";
  EXPECT_EQ(later->server->address.scope_id, 0u);
  EXPECT_EQ(parsed("fe80::1%"), "error: not an IP address, file or host name: 'fe80::1%'");
  EXPECT_EQ(parsed("192.0.2.1%lo"), "error: not an IP address, file or host name: '192.0.2.1%lo'");
}

TEST(UpstreamTargetTest, ATlsServerMayHaveAName) {
  const auto named = [](std::string_view text) {
    const auto target = parseUpstreamTarget(text);
    if (!target || !target->server) return "error: " + (target ? "" : target.error().message);
    return target->server->toString() + " " + target->server->server_name;
  };
  EXPECT_EQ(named("tls://192.0.2.1%dns.example"), "tls://192.0.2.1:853 dns.example");
  EXPECT_EQ(named("https://192.0.2.1%dns.example"), "https://192.0.2.1:443 dns.example");
  EXPECT_EQ(named("tls://192.0.2.1%dns.example:8853"), "tls://192.0.2.1:8853 dns.example");
  EXPECT_EQ(named("tls://2001:db8::1%dns.example"), "tls://[2001:db8::1]:853 dns.example");
  EXPECT_EQ(named("tls://2001:db8::1%dns.example:8853"), "tls://[2001:db8::1]:8853 dns.example");
  EXPECT_EQ(named("tls://[2001:db8::1%dns.example]:8853"), "tls://[2001:db8::1]:8853 dns.example");
  EXPECT_EQ(named("tls://[2001:db8::1]%dns.example:8853"), "tls://[2001:db8::1]:8853 dns.example");
  EXPECT_EQ(named("tls://[fe80::1%lo]:8853"), "tls://[fe80::1]:8853 ") << "an interface";
  EXPECT_EQ(named("tls://fe80::1%lo%dns.example"), "tls://[fe80::1]:853 dns.example");
  EXPECT_TRUE(named("tls://192.0.2.1%a..b").starts_with("error: not a server's name"));
  EXPECT_TRUE(named("dns://192.0.2.1%dns.example").starts_with("error: not an IP address"));
  EXPECT_TRUE(named("tls://dns.example%dns.example").starts_with("error: not an IP address"));
}

TEST(UpstreamTargetTest, WhatIsNoServerIsRefused) {
  for (const char* text : {"", "192.0.2.1:0", "192.0.2.1:65536", "192.0.2.1:", "192.0.2.1:53x", "[::1", "[::1]x",
                           "[]:53", "192.0.2.256", "nonexistent/resolv.conf"}) {
    EXPECT_TRUE(parsed(text).starts_with("error: not an IP address, file or host name")) << text;
  }
  EXPECT_EQ(parsed("https://192.0.2.1/dns-query"),
            "error: https:// has no path here, it is always /dns-query: 'https://192.0.2.1/dns-query'");
  EXPECT_EQ(parsed("quic://192.0.2.1"), "error: quic:// is not supported: 'quic://192.0.2.1'");
  EXPECT_EQ(parsed("grpc://192.0.2.1"), "error: grpc:// is not supported: 'grpc://192.0.2.1'");
  EXPECT_EQ(parsed("tls:///etc/hosts"), "error: not an IP address, file or host name: 'tls:///etc/hosts'");
  EXPECT_TRUE(parsed("0.0.0.0").starts_with("error: no server's address"));
  EXPECT_TRUE(parsed("ff02::fb").starts_with("error: no server's address"));
}

TEST(UpstreamTargetTest, AFileMayComeLater) {
  const auto target = parseUpstreamTarget("/nonexistent/resolv.conf");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->file, "/nonexistent/resolv.conf");
}

TEST(UpstreamTargetTest, Hosts) {
  const auto host = [](std::string_view text) -> std::string {
    const auto target = parseUpstreamTarget(text);
    if (!target || !target->host) return "none";
    return (target->host->protocol == UpstreamProtocol::kTls ? "tls " : "") + target->host->name.toString() + " " +
           std::to_string(target->host->port);
  };
  EXPECT_EQ(host("Dns.Example"), "dns.example. 53");
  EXPECT_EQ(host("localhost:5353"), "localhost. 5353");
  EXPECT_EQ(host("a-b_c.svc.cluster.local."), "a-b_c.svc.cluster.local. 53");
  EXPECT_EQ(host("tls://dns.example"), "tls dns.example. 853");
  EXPECT_EQ(host("dns://dns.example:54"), "dns.example. 54");
  for (const char* text : {"dns.example:", "dns.example:0", "dns.example:x", "a..b", "a b", ".", "192.0.2.256", "1.2",
                           "tls://", "./dns.example", "dns.example/x", "dns.example%eth0"}) {
    EXPECT_EQ(host(text), "none") << text;
  }
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

}  // namespace
}  // namespace idetcd::resolver
