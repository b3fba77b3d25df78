#include "node/address_monitor.h"

#include <atomic>
#include <cstdlib>
#include <functional>
#include <sched.h>
#include <thread>

#include <gtest/gtest.h>

#include "node/addresses.h"
#include "support/eventually.h"

namespace idetcd::node {
namespace {

using namespace std::chrono_literals;

// On a thread with a network of its own, which the machine's other processes do not see.
void inOwnNetwork(const std::function<void()>& test) {
  bool possible = false;
  std::thread thread([&] {
    if (unshare(CLONE_NEWNET) != 0 || std::system("ip link set lo up") != 0) return;
    possible = true;
    test();
  });
  thread.join();
  if (!possible) GTEST_SKIP() << "no network namespace can be made here";
}

TEST(AddressMonitor, TellsOnceAtFirstAndOnceForASwarmOfChanges) {
  inOwnNetwork([] {
    std::atomic<int> calls{0};
    AddressMonitor monitor({.settle = 300ms, .at_latest = 10s}, [&] { ++calls; }, {});
    ASSERT_TRUE(eventually([&] { return calls == 1; }));
    ASSERT_EQ(std::system("ip addr add 127.5.0.1/8 dev lo && ip addr add 127.5.0.2/8 dev lo && "
                          "ip -6 addr add fd00:5::1/128 dev lo && ip addr del 127.5.0.1/8 dev lo"),
              0);
    ASSERT_TRUE(eventually([&] { return calls == 2; }));
    ASSERT_EQ(std::system("ip route add 198.51.100.0/24 dev lo"), 0);
    ASSERT_TRUE(eventually([&] { return calls == 3; }));
  });
}

TEST(AddressMonitor, TellsAtLastThoughItNeverGetsQuiet) {
  inOwnNetwork([] {
    std::atomic<int> calls{0};
    AddressMonitor monitor({.settle = 10s, .at_latest = 500ms}, [&] { ++calls; }, {});
    ASSERT_TRUE(eventually([&] {
      EXPECT_EQ(std::system("ip addr replace 127.5.0.1/8 dev lo && ip addr del 127.5.0.1/8 dev lo"), 0);
      return calls >= 2;
    }));
  });
}

TEST(AddressMonitor, TheMachineIsSeenAsItIsThen) {
  inOwnNetwork([] {
    std::atomic<bool> seen{false};
    AddressMonitor monitor({.settle = 100ms, .at_latest = 5s},
                           [&] {
                             const auto found =
                                 selectNodeAddresses({.addresses = {}, .interface_name = "lo"}, readNetworkView());
                             if (found && found->addresses.ipv4 == IpAddress::parse("192.0.2.55")) seen = true;
                           },
                           {});
    ASSERT_EQ(std::system("ip addr add 192.0.2.55/24 dev lo"), 0);
    EXPECT_TRUE(eventually([&] { return seen.load(); }));
  });
}

TEST(AddressMonitor, EndsAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  {
    AddressMonitor monitor({}, [] {}, {});
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 60s);
}

}  // namespace
}  // namespace idetcd::node
