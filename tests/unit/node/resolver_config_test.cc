#include "node/resolver_config.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace idetcd::node {
namespace {

TEST(ResolverConfig, IsReadAsGlibcReadsIt) {
  const ResolverConfig config = parseResolverConfig(
      "# nameserver 192.0.2.9\n"
      "nameserver 127.0.0.1\n"
      "  nameserver\tfe80::1%eth0 # the router\n"
      "nameserver nonsense\n"
      "domain first.example\n"
      "search TF.internal. example.org\n"
      "options rotate ndots:3 edns0");
  EXPECT_EQ(config.servers, (std::vector{*IpAddress::parse("127.0.0.1"), *IpAddress::parse("fe80::1")}));
  EXPECT_EQ(config.search, (std::vector<std::string>{"tf.internal", "example.org"}));
  EXPECT_EQ(config.ndots, 3);
}

TEST(ResolverConfig, OfNothing) {
  for (const char* text : {"", "\n\n", "nameserver", "options ndots:x", "search"}) {
    const ResolverConfig config = parseResolverConfig(text);
    EXPECT_TRUE(config.servers.empty() && config.search.empty()) << text;
    EXPECT_EQ(config.ndots, 1) << text;
  }
  EXPECT_EQ(parseResolverConfig("options ndots:999").ndots, 15);
  EXPECT_FALSE(readResolverConfig("/nowhere/resolv.conf"));
}

}  // namespace
}  // namespace idetcd::node
