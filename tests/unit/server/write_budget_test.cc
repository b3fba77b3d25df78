#include "server/client_connections.h"

#include <gtest/gtest.h>

namespace idetcd::server {
namespace {

using Room = WriteBudget::Room;

IpAddress address(std::string_view text) { return IpAddress::parse(text).value(); }

TEST(WriteBudget, AClientIsAnAddressOrANetwork) {
  const auto client = [](std::string_view text) { return WriteBudget::clientOf(address(text)); };
  EXPECT_EQ(client("192.0.2.1"), address("192.0.2.1"));
  EXPECT_EQ(client("::ffff:192.0.2.1"), address("192.0.2.1"));
  EXPECT_EQ(client("2001:db8:0:1:2:3:4:5"), address("2001:db8:0:1::"));
  EXPECT_NE(client("2001:db8:0:2::1"), client("2001:db8:0:1::1"));
  for (const char* loopback : {"127.0.0.1", "127.1.2.3", "::1"}) EXPECT_EQ(client(loopback), std::nullopt);
}

TEST(WriteBudget, OfOneClientAndOfAll) {
  WriteBudget budget({.process = 1000, .client = 100});
  const WriteBudget::Client a = address("192.0.2.1");
  const WriteBudget::Client b = address("192.0.2.2");
  const WriteBudget::Client local;
  EXPECT_EQ(budget.room(a), Room::kPlenty);
  budget.change(a, 0, 49);
  EXPECT_EQ(budget.room(a), Room::kPlenty);
  budget.change(a, 0, 1);  // another connection
  EXPECT_EQ(budget.room(a), Room::kScarce);
  EXPECT_EQ(budget.room(b), Room::kPlenty);
  budget.change(a, 49, 99);
  EXPECT_EQ(budget.room(a), Room::kNone);
  EXPECT_EQ(budget.room(local), Room::kPlenty);
  budget.change(local, 0, 400);
  EXPECT_EQ(budget.room(local), Room::kScarce) << "half of the process's";
  EXPECT_EQ(budget.room(b), Room::kScarce);
  budget.change(local, 400, 900);
  EXPECT_EQ(budget.room(b), Room::kNone);
  EXPECT_EQ(budget.total(), 1000u);
  budget.change(local, 900, 0);
  budget.change(a, 99, 0);
  budget.change(a, 1, 0);
  EXPECT_EQ(budget.total(), 0u);
  EXPECT_EQ(budget.room(a), Room::kPlenty);
}

}  // namespace
}  // namespace idetcd::server
