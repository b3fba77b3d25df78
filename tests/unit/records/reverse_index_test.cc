#include "records/reverse_index.h"

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "records/entry.h"
#include "table_support.h"

namespace idetcd::records {
namespace {

using test::name;

IpAddress ip(std::string_view text) { return IpAddress::parse(text).value(); }
IpAddress numberedV4(size_t i) {
  return IpAddress::v4({10, static_cast<uint8_t>(i >> 16), static_cast<uint8_t>(i >> 8), static_cast<uint8_t>(i)});
}

class ReverseIndexTest : public testing::Test {
 protected:
  static bool isWorker(const dns::Name& name) { return name.toString().starts_with("worker"); }

  Entry* make(std::string_view owner, const std::vector<IpAddress>& addresses) {
    const dns::Name owner_name = name(owner);
    EntryBuilder builder;
    builder.begin(owner_name.wire(), 1, Source::kEtcd);
    for (const IpAddress& address : addresses) {
      const Rdata rdata(address.data(), address.size());
      builder.merge({address.isV4() ? dns::RrType::kA : dns::RrType::kAaaa, 5, {&rdata, 1}});
    }
    return builder.build(arena_, 0);
  }
  // As the store does: the old entry goes when the new one has its place.
  void put(const std::string& owner, const std::vector<IpAddress>& addresses) {
    Entry*& held = held_[owner];
    Entry* fresh = make(owner, addresses);
    index_.replace(held, fresh);
    if (held != nullptr) arena_.free(held);
    held = fresh;
  }
  void remove(const std::string& owner) {
    index_.replace(held_.at(owner), nullptr);
    arena_.free(held_.at(owner));
    held_.erase(owner);
  }
  std::vector<std::string> names(const IpAddress& address) const {
    std::vector<std::string> found;
    const ReverseIndex::Names names = index_.find(address);
    for (const Entry* entry : names.entries()) found.push_back(dns::Name::fromWire(entry->name()).toString());
    return found;
  }
  using Names = std::vector<std::string>;

  EntryArena arena_;
  EpochDomain epochs_;
  ReverseIndex index_{epochs_, 3, isWorker};
  std::map<std::string, Entry*> held_;
};

TEST_F(ReverseIndexTest, FindsTheNameOfEachAddress) {
  put("worker1.tf.local.", {ip("192.0.2.1"), ip("2001:db8::1")});
  EXPECT_EQ(names(ip("192.0.2.1")), Names{"worker1.tf.local."});
  EXPECT_EQ(names(ip("2001:db8::1")), Names{"worker1.tf.local."});
  EXPECT_EQ(names(ip("192.0.2.2")), Names{});
  put("worker1.tf.local.", {ip("192.0.2.2"), ip("2001:db8::1")});
  EXPECT_EQ(names(ip("192.0.2.1")), Names{});
  EXPECT_EQ(names(ip("192.0.2.2")), Names{"worker1.tf.local."});
  EXPECT_EQ(names(ip("2001:db8::1")), Names{"worker1.tf.local."});
  put("worker1.tf.local.", {});
  EXPECT_EQ(index_.size(), 0u);
  EXPECT_EQ(names(ip("192.0.2.2")), Names{});
}

TEST_F(ReverseIndexTest, TheAddressesOfEveryMachineHaveNoNames) {
  put("worker1.tf.local.", {ip("127.0.0.1"), ip("::1"), ip("0.0.0.0"), ip("::"), ip("127.0.0.2")});
  for (const char* address : {"127.0.0.1", "::1", "0.0.0.0", "::"}) EXPECT_EQ(names(ip(address)), Names{}) << address;
  EXPECT_EQ(names(ip("127.0.0.2")), Names{"worker1.tf.local."});
}

// Those of the pattern first, then as people count.
TEST_F(ReverseIndexTest, NamesOfOneAddressAreInOrder) {
  for (const char* owner : {"db.tf.local.", "worker10.tf.local.", "worker2.tf.local.", "alias.tf.local."}) {
    put(owner, {ip("192.0.2.1")});
  }
  const Names all{"worker2.tf.local.", "worker10.tf.local.", "db.tf.local.", "alias.tf.local."};
  EXPECT_EQ(names(ip("192.0.2.1")), all);
  EXPECT_EQ(index_.size(), 1u);
  put("worker2.tf.local.", {ip("192.0.2.1"), ip("192.0.2.3")});  // a new entry, the same place
  EXPECT_EQ(names(ip("192.0.2.1")), all);
  remove("worker10.tf.local.");
  remove("db.tf.local.");
  remove("alias.tf.local.");
  EXPECT_EQ(names(ip("192.0.2.1")), Names{"worker2.tf.local."});
  remove("worker2.tf.local.");
  EXPECT_EQ(index_.size(), 0u);
}

TEST_F(ReverseIndexTest, MoreNamesThanAnAnswerHoldsWait) {
  constexpr size_t kNames = ReverseIndex::kMaxNames + 20;
  const auto numbered = [](size_t i) { return "worker" + std::to_string(100 + i) + ".tf.local."; };
  for (size_t i = 0; i < kNames; ++i) put(numbered(i * 7 % kNames), {ip("192.0.2.1")});
  const auto expect_from = [&](size_t first) {
    const Names found = names(ip("192.0.2.1"));
    ASSERT_EQ(found.size(), std::min(ReverseIndex::kMaxNames, kNames - first));
    for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], numbered(first + i));
  };
  expect_from(0);
  put(numbered(kNames - 1), {ip("192.0.2.1"), ip("192.0.2.9")});  // one that waits
  for (size_t i = 0; i < kNames; ++i) {
    remove(numbered(i));
    expect_from(i + 1);
  }
  EXPECT_EQ(index_.size(), 0u);
}

// Exactly those, of however many addresses: else a name that does not exist gets an answer that says that it does.
TEST_F(ReverseIndexTest, TheNamesAboveThoseOfManyAddresses) {
  std::mt19937 random(7);
  const auto make_address = [&random](bool is_v4) {
    std::array<uint8_t, 16> bytes{0x20, 0x01, 0x0d, 0xb8};
    for (size_t i = 4; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(random());
    return is_v4 ? IpAddress::v4({10, static_cast<uint8_t>(random() % 4), bytes[4], bytes[5]}) : IpAddress::v6(bytes);
  };
  const auto names_above = [](const IpAddress& address) {
    std::vector<std::string> above;
    std::string text = dns::reverseName(address).toString();
    for (size_t left = address.isV4() ? 3 : 31; left > 0; --left)
      above.push_back(text = text.substr(text.find('.') + 1));
    return above;
  };
  std::vector<IpAddress> held;
  std::multiset<std::string> above;
  const auto expect_exact = [&] {
    for (const std::string& text : above) ASSERT_TRUE(index_.isAboveHeld(name(text).wire())) << text;
    for (int i = 0; i < 5000; ++i) {
      for (const std::string& text : names_above(make_address(i % 2 == 0)))
        ASSERT_EQ(index_.isAboveHeld(name(text).wire()), above.contains(text)) << text;
    }
    EXPECT_FALSE(index_.isAboveHeld(name("ip6.arpa.").wire()));
    EXPECT_FALSE(index_.isAboveHeld(dns::reverseName(held.front()).wire()));
  };
  const size_t count = 4000 / test::kSlowdown;
  for (size_t i = 0; i < count; ++i) {
    held.push_back(make_address(i % 2 == 0));
    put("n" + std::to_string(i) + ".", {held.back()});
    for (const std::string& text : names_above(held.back())) above.insert(text);
  }
  expect_exact();
  while (held.size() > 1) {
    remove("n" + std::to_string(held.size() - 1) + ".");
    for (const std::string& text : names_above(held.back())) above.erase(above.find(text));
    held.pop_back();
    if (held.size() == count / 2) expect_exact();
  }
  expect_exact();
}

TEST_F(ReverseIndexTest, GrowsAndAgreesWithAModel) {
  std::mt19937 random(5);
  std::map<std::string, std::vector<IpAddress>> model;
  const size_t rounds = 60000 / test::kSlowdown;
  for (size_t round = 0; round < rounds; ++round) {
    const std::string owner = "worker" + std::to_string(random() % (rounds / 4)) + ".";
    if (random() % 4 == 0 && model.contains(owner)) {
      remove(owner);
      model.erase(owner);
      continue;
    }
    std::vector<IpAddress> addresses{numberedV4(random() % (rounds / 3))};
    if (random() % 3 == 0) addresses.push_back(numberedV4(random() % (rounds / 3)));
    put(owner, addresses);
    model[owner] = addresses;
  }
  std::map<IpAddress, std::set<std::string>> expected;
  for (const auto& [owner, addresses] : model) {
    for (const IpAddress& address : addresses) expected[address].insert(owner);
  }
  EXPECT_EQ(index_.size(), expected.size());
  for (size_t i = 0; i < rounds / 3; ++i) {
    const Names found = names(numberedV4(i));
    ASSERT_EQ(std::set<std::string>(found.begin(), found.end()), expected[numberedV4(i)]) << i;
  }
}

}  // namespace
}  // namespace idetcd::records
