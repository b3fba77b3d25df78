// Members that have the names from each other, over a real etcd. How they reach each other is a table here.
#include "naming/relay.h"

#include <algorithm>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "unit/naming/member_fixture.h"

namespace idetcd::naming {
namespace {

class RelayTest : public MemberTest {
 protected:
  ~RelayTest() override {
    for (const auto& node : nodes_) node->member.stop(0ms);
    thread_.stop();
  }

  // On the thread of the members.
  class Served final : public RelayService {
   public:
    Served(RelayTest& test, std::shared_ptr<store::Source> names, const IpAddress& address)
        : test_(test), card_{{"https://" + address.toString()}, "", std::to_string(++test.made_)} {
      test_.served_[card_.token] = std::move(names);
    }
    ~Served() override { test_.served_.erase(card_.token); }
    const RelayCard& card() const override { return card_; }
    size_t readers() const override { return 7; }

   private:
    RelayTest& test_;
    const RelayCard card_;
  };

  NodeOptions relaying(bool observe = false) {
    NodeOptions made = options(server_.endpoint());
    made.observe = observe;
    made.lease = 10s;
    made.relay.fan_out = 2;
    made.relay.connect = [this](const RelayCard& card) -> std::shared_ptr<store::Source> {
      const auto found = served_.find(card.token);
      return found == served_.end() ? nullptr : found->second;
    };
    made.relay.serve = [this](std::shared_ptr<store::Source> names,
                              const std::vector<IpAddress>& addresses) -> Result<std::unique_ptr<RelayService>> {
      return std::make_unique<Served>(*this, std::move(names), addresses.front());
    };
    return made;
  }
  size_t listed() { return keys("/idetcd/relay/").size(); }
  bool isListedAt(const std::string& address) {
    return std::ranges::any_of(keys("/idetcd/relay/"),
                               [&](const auto& listed) { return listed.second.find(address) != std::string::npos; });
  }

  int made_ = 0;
  std::map<std::string, std::shared_ptr<store::Source>> served_;
};

TEST_F(RelayTest, EveryOtherNodeServesTheNamesOnceThereAreFour) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(start(relaying()).ownsSomething());
  EXPECT_EQ(listed(), 0u);
  ASSERT_TRUE(start(relaying()).ownsSomething());
  EXPECT_TRUE(eventually([this] { return listed() == 2; }));
  EXPECT_TRUE(eventually([this] { return nodes_[0]->counted("idetcd_relay_readers") == 7; }));
  EXPECT_EQ(nodes_[1]->counted("idetcd_relay_readers"), 0u);

  Node& reader = start(relaying(true));
  EXPECT_TRUE(eventually([&] { return reader.counted("idetcd_relayed") == 1; }));
  EXPECT_TRUE(reader.sees("worker4.tf.local.", "192.0.2.2 fd00::2"));
  EXPECT_TRUE(eventually([&] { return reader.store.freshness() == records::Freshness::kFresh; }));
  server_.ctl({"put", "db.tf.local.", R"({"ipv4":"192.0.2.77"})"});
  EXPECT_TRUE(reader.sees("db.tf.local.", "192.0.2.77"));

  // Both relays end, and with them their keys; the reader goes on where it was.
  EXPECT_TRUE(nodes_[0]->member.stop(20s));
  EXPECT_TRUE(nodes_[2]->member.stop(20s));
  EXPECT_TRUE(eventually([this] { return listed() == 0; }));
  EXPECT_TRUE(eventually([&] { return reader.counted("idetcd_relayed") == 0; }));
  EXPECT_GE(reader.counted("idetcd_relay_failures_total"), 1u);
  server_.ctl({"del", "db.tf.local."});
  EXPECT_TRUE(reader.sees("db.tf.local.", "none"));
  EXPECT_EQ(reader.counted("idetcd_snapshots_total"), 1u);
}

TEST_F(RelayTest, ARelayIsListedAtTheNewAddressesOfItsNode) {
  NodeOptions moving = relaying();
  const auto moved = std::make_shared<std::promise<void>>();
  moving.find_addresses = [ready = moved->get_future().share()]() -> Result<node::NodeAddresses> {
    ready.wait_for(60s);
    return node::NodeAddresses{{{IpAddress::parse("192.0.2.99"), std::nullopt}, {}}, {}, {}};
  };
  Node& relay = start(moving);
  ASSERT_TRUE(relay.owns("worker1.tf.local."));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(start(relaying()).ownsSomething());
  EXPECT_TRUE(eventually([this] { return listed() == 2; }));
  EXPECT_FALSE(isListedAt("192.0.2.99"));
  moved->set_value();
  EXPECT_TRUE(eventually([this] { return listed() == 2 && isListedAt("192.0.2.99"); }));
  EXPECT_EQ(relay.name(), "worker1.tf.local.");
}

}  // namespace
}  // namespace idetcd::naming
