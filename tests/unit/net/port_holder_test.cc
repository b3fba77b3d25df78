#include "net/port_holder.h"

#include <unistd.h>

#include <gtest/gtest.h>

#include "net/udp_socket.h"
#include "sockets.h"
#include "support/free_port.h"

namespace idetcd::net {
namespace {

using test::address;

TEST(PortHolder, TheProgramIsFoundByItsSocket) {
  for (const char* held : {"127.0.0.1", "0.0.0.0", "::1", "::"}) {
    const auto socket = UdpSocket::bind(address(held, test_support::freePort()), false);
    if (!socket) continue;  // no IPv6 here
    const SocketAddress there = socket->localAddress();
    const bool is_v4 = there.ip.isV4();
    for (const char* wanted : {is_v4 ? "127.0.0.1" : "::1", is_v4 ? "0.0.0.0" : "::"}) {
      const auto holders = portHolders("udp", address(wanted, there.port));
      ASSERT_EQ(holders.size(), 1u) << held << " keeps from " << wanted;
      EXPECT_EQ(holders.front().address, there);
      EXPECT_EQ(holders.front().pid, getpid());
      EXPECT_FALSE(holders.front().program.empty());
      EXPECT_FALSE(holders.front().user.empty());
    }
    EXPECT_TRUE(portHolders("tcp", there).empty());
  }
}

TEST(PortHolder, AnotherAddressKeepsNobodyAway) {
  const auto socket = UdpSocket::bind(address("127.0.0.1", test_support::freePort()), false);
  ASSERT_TRUE(socket.has_value());
  EXPECT_TRUE(portHolders("udp", address("127.0.0.2", socket->localAddress().port)).empty());
}

TEST(PortHolder, WithoutRightsTheUserIsNamed) {
  const PortHolder holder{.address = address("127.0.0.53", 53), .user = "systemd-resolve", .program = {}};
  EXPECT_EQ(holder.toString(), "a process of user systemd-resolve has 127.0.0.53:53");
}

}  // namespace
}  // namespace idetcd::net
