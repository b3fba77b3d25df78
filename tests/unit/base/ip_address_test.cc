#include "base/ip_address.h"

#include <arpa/inet.h>
#include <string>

#include <gtest/gtest.h>

namespace idetcd {
namespace {

TEST(IpAddress, ParsesBothFamilies) {
  const auto v4 = IpAddress::parse("192.0.2.1");
  ASSERT_TRUE(v4);
  EXPECT_TRUE(v4->isV4());
  EXPECT_EQ(v4->size(), 4u);
  EXPECT_EQ(*v4, IpAddress::v4({192, 0, 2, 1}));

  const auto v6 = IpAddress::parse("2001:DB8::1");
  ASSERT_TRUE(v6);
  EXPECT_TRUE(v6->isV6());
  EXPECT_EQ(v6->size(), 16u);
  EXPECT_EQ(*v6, IpAddress::v6({0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}));
}

TEST(IpAddress, RefusesEverythingElse) {
  using std::string_literals::operator""s;
  for (const std::string& text : {""s,
                                  " "s,
                                  "1"s,
                                  "1.2.3"s,
                                  "1.2.3.4.5"s,
                                  "256.1.1.1"s,
                                  "1.2.3.4 "s,
                                  " 1.2.3.4"s,
                                  "01.2.3.4"s,
                                  "1.2.3.-4"s,
                                  "0x7f.0.0.1"s,
                                  "1.2.3.4\0"s,
                                  "1.2.3.4\0x"s,
                                  ":"s,
                                  ":::"s,
                                  "1::2::3"s,
                                  "[::1]"s,
                                  "::1%lo"s,
                                  "fe80::1%eth0"s,
                                  "12345::"s,
                                  "::g"s,
                                  "1.2.3.4:53"s,
                                  "localhost"s,
                                  std::string(1000, ':'),
                                  std::string(46, '0')}) {
    EXPECT_FALSE(IpAddress::parse(text)) << '"' << text << '"';
  }
}

TEST(IpAddress, PrintsTheCanonicalForm) {
  for (const char* text : {"0.0.0.0", "255.255.255.255", "::", "::1", "2001:db8::1", "2001:db8:0:1:1:1:1:1",
                           "2001:0:0:1::1", "::ffff:192.0.2.1", "fe80::1"}) {
    const auto address = IpAddress::parse(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(address->toString(), text);
  }
  EXPECT_EQ(IpAddress::parse("2001:0DB8:0000:0000:0000:0000:0000:0001")->toString(), "2001:db8::1");
}

TEST(IpAddress, KnowsItsKind) {
  const auto is = [](const char* text) { return *IpAddress::parse(text); };
  for (const char* text : {"127.0.0.1", "127.255.255.254", "::1"}) EXPECT_TRUE(is(text).isLoopback()) << text;
  for (const char* text : {"128.0.0.1", "126.0.0.1", "::2", "::", "1::1"}) EXPECT_FALSE(is(text).isLoopback()) << text;
  for (const char* text : {"169.254.0.0", "169.254.255.255", "fe80::", "fe80::1", "febf::1"})
    EXPECT_TRUE(is(text).isLinkLocal()) << text;
  for (const char* text : {"169.253.0.1", "169.255.0.1", "170.254.0.1", "fe7f::1", "fec0::1", "fd00::1"})
    EXPECT_FALSE(is(text).isLinkLocal()) << text;
  for (const char* text : {"0.0.0.0", "::"}) EXPECT_TRUE(is(text).isUnspecified()) << text;
  for (const char* text : {"0.0.0.1", "::1"}) EXPECT_FALSE(is(text).isUnspecified()) << text;
  for (const char* text : {"224.0.0.1", "239.255.255.255", "ff02::1"}) EXPECT_TRUE(is(text).isMulticast()) << text;
  for (const char* text : {"223.255.255.255", "240.0.0.1", "fe80::1"}) EXPECT_FALSE(is(text).isMulticast()) << text;
}

TEST(IpAddress, KnowsPrivateNetworks) {
  const auto is = [](const char* text) { return IpAddress::parse(text)->isPrivate(); };
  for (const char* text :
       {"127.0.0.1", "::1", "169.254.169.253", "fe80::1", "10.0.0.0", "10.255.255.255", "172.16.0.0", "172.31.255.255",
        "192.168.0.1", "100.64.0.1", "100.127.255.255", "fc00::1", "fd00:ec2::253", "::ffff:10.0.0.2"}) {
    EXPECT_TRUE(is(text)) << text;
  }
  for (const char* text :
       {"9.255.255.255", "11.0.0.0", "172.15.255.255", "172.32.0.0", "192.167.0.1", "192.169.0.1", "100.63.255.255",
        "100.128.0.0", "8.8.8.8", "192.0.2.1", "fbff::1", "fe00::1", "2001:db8::1", "0.0.0.0", "::ffff:8.8.8.8"}) {
    EXPECT_FALSE(is(text)) << text;
  }
}

TEST(IpAddress, FamiliesAreNeverEqual) {
  EXPECT_NE(*IpAddress::parse("0.0.0.0"), *IpAddress::parse("::"));
  EXPECT_LT(*IpAddress::parse("192.0.2.1"), *IpAddress::parse("192.0.2.2"));
}

TEST(SocketAddress, IsReadAsItIsWritten) {
  for (const char* text : {"192.0.2.1:53", "[2001:db8::1]:65535"}) {
    const auto address = SocketAddress::parse(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(address->toString(), text);
  }
  for (const char* text : {"", ":", "192.0.2.1", "192.0.2.1:", "192.0.2.1:0", "192.0.2.1:65536", "192.0.2.1:5x",
                           "2001:db8::1:53", "[2001:db8::1]", "[2001:db8::1:53", "a.example:53"})
    EXPECT_FALSE(SocketAddress::parse(text)) << text;
}

TEST(SocketAddress, GoesToTheKernelAndBack) {
  for (const SocketAddress& address :
       {SocketAddress{*IpAddress::parse("192.0.2.1"), 53, 0}, SocketAddress{*IpAddress::parse("2001:db8::1"), 65535, 0},
        SocketAddress{*IpAddress::parse("fe80::1"), 1, 7}}) {
    sockaddr_storage storage;
    const socklen_t length = address.toSockaddr(&storage);
    EXPECT_EQ(length, address.ip.isV4() ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    const auto* generic = reinterpret_cast<const sockaddr*>(&storage);
    EXPECT_EQ(SocketAddress::fromSockaddr(generic), address);
    EXPECT_EQ(IpAddress::fromSockaddr(generic), address.ip);
  }
}

TEST(SocketAddress, PortIsInNetworkOrderForTheKernel) {
  sockaddr_storage storage;
  SocketAddress{*IpAddress::parse("127.0.0.1"), 0x1234, 0}.toSockaddr(&storage);
  EXPECT_EQ(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port, htons(0x1234));
}

TEST(SocketAddress, RefusesOtherFamilies) {
  sockaddr_storage storage{};
  storage.ss_family = AF_UNIX;
  EXPECT_FALSE(SocketAddress::fromSockaddr(reinterpret_cast<const sockaddr*>(&storage)));
  EXPECT_FALSE(IpAddress::fromSockaddr(reinterpret_cast<const sockaddr*>(&storage)));
}

TEST(SocketAddress, PrintsBracketsAroundV6) {
  EXPECT_EQ((SocketAddress{*IpAddress::parse("192.0.2.1"), 53, 0}.toString()), "192.0.2.1:53");
  EXPECT_EQ((SocketAddress{*IpAddress::parse("2001:db8::1"), 53, 0}.toString()), "[2001:db8::1]:53");
}

TEST(IpAddress, UnmapsIpv4) {
  EXPECT_EQ(IpAddress::parse("::ffff:192.0.2.1")->unmapped().toString(), "192.0.2.1");
  for (const char* text : {"192.0.2.1", "::1", "::192.0.2.1", "64:ff9b::192.0.2.1", "2001:db8::ffff:192.0.2.1"}) {
    EXPECT_EQ(IpAddress::parse(text)->unmapped(), *IpAddress::parse(text)) << text;
  }
}

}  // namespace
}  // namespace idetcd
