// The choice of the connection that gives way, of those of a loop's clients.
#include "server/client_connections.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace idetcd::server {
namespace {

IpAddress address(std::string_view text) { return IpAddress::parse(text).value(); }

class ClientConnectionsTest : public testing::Test {
 protected:
  struct Connection : ClientConnections::Connection {
    Connection(ClientConnections& all, std::string_view from) : ClientConnections::Connection(all, address(from)) {}
  };
  using Owned = std::unique_ptr<Connection>;

  Owned connect(std::string_view from) { return std::make_unique<Connection>(all_, from); }
  std::vector<Owned> connect(std::string_view from, size_t count) {
    std::vector<Owned> connections;
    for (size_t i = 0; i < count; ++i) connections.push_back(connect(from));
    return connections;
  }

  ClientConnections all_;
};

TEST_F(ClientConnectionsTest, AClientIsAnAddressOrANetwork) {
  const auto client = [](std::string_view text) { return ClientConnections::clientOf(address(text)); };
  EXPECT_EQ(client("192.0.2.1"), address("192.0.2.1"));
  EXPECT_EQ(client("::ffff:192.0.2.1"), address("192.0.2.1"));
  EXPECT_EQ(client("2001:db8:0:1:2:3:4:5"), address("2001:db8:0:1::"));
  EXPECT_NE(client("2001:db8:0:2::1"), client("2001:db8:0:1::1"));
  EXPECT_NE(client("127.0.0.1"), client("127.0.0.2"));
  EXPECT_EQ(client("::1"), address("::1"));
  EXPECT_FALSE(ClientConnections::isOneClient(address("127.0.0.1")));
  EXPECT_FALSE(ClientConnections::isOneClient(address("::ffff:127.0.0.1")));
  EXPECT_FALSE(ClientConnections::isOneClient(address("::1")));
  EXPECT_TRUE(ClientConnections::isOneClient(address("192.0.2.1")));
}

TEST_F(ClientConnectionsTest, NobodyGivesWayToTheOnlyOne) {
  const Owned only = connect("192.0.2.1");
  EXPECT_EQ(all_.toGiveWay(*only), nullptr);
  EXPECT_EQ(all_.longestIdleOfSame(*only), nullptr);
}

TEST_F(ClientConnectionsTest, TheLongestIdleOfTheClientWithMost) {
  const auto few = connect("192.0.2.1", 2);
  const auto many = connect("192.0.2.2", 3);
  const Owned newcomer = connect("192.0.2.3");
  EXPECT_EQ(all_.toGiveWay(*newcomer), many[0].get());
  many[0]->noteUse();
  EXPECT_EQ(all_.toGiveWay(*newcomer), many[1].get());
  many[1]->leave();
  const Owned one_more = connect("192.0.2.2");
  EXPECT_EQ(all_.toGiveWay(*one_more), many[2].get());
  EXPECT_EQ(all_.longestIdleOfSame(*one_more), many[2].get());
}

TEST_F(ClientConnectionsTest, AClientThatWouldHaveMostGivesItsOwn) {
  const auto others = connect("192.0.2.1", 3);
  const auto own = connect("192.0.2.2", 2);
  const Owned newcomer = connect("192.0.2.2");  // both have three now
  EXPECT_EQ(all_.toGiveWay(*newcomer), own[0].get());
}

TEST_F(ClientConnectionsTest, WhereEachHasOneTheLongestIdleOfAll) {
  const Owned first = connect("192.0.2.1");
  const Owned second = connect("192.0.2.2");
  first->noteUse();
  const Owned newcomer = connect("192.0.2.3");
  EXPECT_EQ(all_.toGiveWay(*newcomer), second.get());
}

TEST_F(ClientConnectionsTest, OneNetworkIsOneClient) {
  const Owned a = connect("2001:db8::1");
  const Owned b = connect("2001:db8::2");
  const Owned other = connect("2001:db8:0:1::1");
  EXPECT_EQ(all_.toGiveWay(*other), a.get());
  EXPECT_EQ(b->countOfClient(), 2u);
}

// Whatever comes and goes: nobody loses one to a client that has more then, and the count is right.
TEST_F(ClientConnectionsTest, NobodyLosesOneToAClientWithMore) {
  constexpr size_t kRoom = 60;
  std::mt19937 random(1);
  std::vector<std::pair<size_t, Owned>> open;  // with the number of the client
  std::map<size_t, size_t> counts;
  const auto drop = [&](auto it) {
    --counts[it->first];
    it->second->leave();
    open.erase(it);
  };
  for (int i = 0; i < 20'000; ++i) {
    const size_t client = std::min(random() % 12, random() % 12);  // some much more often than others
    if (random() % 8 == 0 && !open.empty()) drop(open.begin() + static_cast<ptrdiff_t>(random() % open.size()));
    if (random() % 2 == 0 && !open.empty()) open[random() % open.size()].second->noteUse();
    open.emplace_back(client, connect("192.0.2." + std::to_string(client)));
    ++counts[client];
    ASSERT_EQ(open.back().second->countOfClient(), counts[client]);
    ASSERT_EQ(all_.size(), open.size());
    if (open.size() <= kRoom) continue;
    const auto* victim = all_.toGiveWay(*open.back().second);
    const auto it = std::find_if(open.begin(), open.end(), [&](const auto& o) { return o.second.get() == victim; });
    ASSERT_NE(it, open.end());
    ASSERT_NE(it, std::prev(open.end()));
    const size_t loser = it->first;
    drop(it);
    ASSERT_TRUE(loser == client || counts[loser] + 1 >= counts[client]);
    for (const auto& [other, count] : counts) ASSERT_LE(count, counts[loser] + 1) << other;
  }
}

}  // namespace
}  // namespace idetcd::server
