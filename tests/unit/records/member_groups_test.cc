// The members of a cluster together, as a store's readers find them.
#include "records/member_groups.h"

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "records/member_data.h"
#include "records/record_store.h"
#include "table_support.h"

namespace idetcd::records {
namespace {

using test::find;
using test::name;

constexpr const char* kAnyUuid = "6c3e0f1a-0000-4000-8000-0123456789ab";
using Names = std::set<std::string>;

class MemberGroupsTest : public ::testing::Test {
 protected:
  explicit MemberGroupsTest(std::string_view zone = "tf.local.")
      : store_(epochs_, {.zone = name(zone), .addresses = {}, .hash_seed = 99, .is_member = [](const dns::Name& one) {
                           return one.toString().starts_with("worker");
                         }}) {}

  void put(const std::string& owner, const std::vector<std::string>& services = {}, bool has_address = true) {
    std::vector<Service> offered;
    for (const std::string& service : services)
      offered.push_back({.name = service, .port = static_cast<uint16_t>(services.size())});
    HostAddresses addresses;
    if (has_address) addresses.ipv4 = IpAddress::v4({10, 0, 0, 1});
    ++revision_;
    store_.put(name(owner), addresses, revision_, memberData(kAnyUuid, revision_, offered));
  }
  void remove(const std::string& owner) { store_.remove(name(owner), ++revision_); }

  const MemberGroup* group(std::string_view owner) const {
    const Entry* entry = find(store_.table(), name(owner));
    return entry != nullptr ? MemberGroup::of(*entry) : nullptr;
  }
  Names members(std::string_view owner) const {
    Names names;
    if (const MemberGroup* found = group(owner); found != nullptr) {
      for (const Entry* entry : found->members()) names.insert(dns::Name::fromWire(entry->name()).toString());
    }
    return names;
  }
  bool exists(std::string_view owner) const { return find(store_.table(), name(owner)) != nullptr; }

  EpochDomain epochs_;
  RecordStore store_;
  int64_t revision_ = 100;
};

TEST_F(MemberGroupsTest, MembersComeAndGo) {
  EXPECT_FALSE(exists("all.tf.local."));
  put("worker1.tf.local.", {"http", "metrics"});
  put("worker2.tf.local.", {"http"});
  put("db.tf.local.", {"http"});  // no member
  EXPECT_EQ(members("all.tf.local."), (Names{"worker1.tf.local.", "worker2.tf.local."}));
  EXPECT_EQ(members("_http._tcp.tf.local."), (Names{"worker1.tf.local.", "worker2.tf.local."}));
  EXPECT_EQ(members("_metrics._tcp.tf.local."), Names{"worker1.tf.local."});
  EXPECT_TRUE(exists("_tcp.tf.local.")) << "an empty non-terminal";
  put("worker1.tf.local.", {"metrics"});
  EXPECT_EQ(members("_http._tcp.tf.local."), Names{"worker2.tf.local."});
  EXPECT_EQ(members("_metrics._tcp.tf.local."), Names{"worker1.tf.local."});
  remove("worker2.tf.local.");
  EXPECT_FALSE(exists("_http._tcp.tf.local."));
  EXPECT_TRUE(exists("_tcp.tf.local."));
  remove("worker1.tf.local.");
  for (const char* owner : {"_metrics._tcp.tf.local.", "_tcp.tf.local.", "all.tf.local."})
    EXPECT_FALSE(exists(owner)) << owner;
}

TEST_F(MemberGroupsTest, AMemberIsShownAsItIsNow) {
  put("worker1.tf.local.");
  store_.put(name("worker1.tf.local."), {.ipv4 = IpAddress::v4({10, 0, 0, 7}), .ipv6 = {}}, ++revision_);
  ASSERT_EQ(group("all.tf.local.")->members().size(), 1u);
  EXPECT_EQ(group("all.tf.local.")->members()[0], find(store_.table(), name("worker1.tf.local.")));
}

TEST_F(MemberGroupsTest, WhoHasNoAddressDoesNotServe) {
  put("worker1.tf.local.", {"http"});
  put("worker2.tf.local.", {"http"});
  put("worker1.tf.local.", {"http"}, false);
  EXPECT_EQ(members("_http._tcp.tf.local."), Names{"worker2.tf.local."});
  EXPECT_EQ(members("all.tf.local."), Names{"worker2.tf.local."});
  put("worker1.tf.local.", {"http"});
  EXPECT_EQ(members("all.tf.local.").size(), 2u);
}

TEST_F(MemberGroupsTest, ANameThatASourceHoldsIsItsOwn) {
  put("all.tf.local.");
  put("worker1.tf.local.");
  EXPECT_EQ(group("all.tf.local."), nullptr);
  remove("all.tf.local.");
  EXPECT_EQ(members("all.tf.local."), Names{"worker1.tf.local."});
  put("all.tf.local.");
  EXPECT_EQ(group("all.tf.local."), nullptr);
  remove("worker1.tf.local.");
  remove("all.tf.local.");
  EXPECT_FALSE(exists("all.tf.local."));
}

TEST_F(MemberGroupsTest, TheyTakeTurns) {
  for (const char* owner : {"worker1.tf.local.", "worker2.tf.local.", "worker3.tf.local."}) put(owner);
  const MemberGroup* all = group("all.tf.local.");
  std::set<size_t> turns;
  for (int i = 0; i < 3; ++i) turns.insert(all->nextTurn());
  EXPECT_EQ(turns, (std::set<size_t>{0, 1, 2}));
}

TEST_F(MemberGroupsTest, OfMoreThanFitOthersComeWhenSomeGo) {
  constexpr int kAll = 5000;
  const auto numbered = [](int i) { return "worker" + std::to_string(i) + ".tf.local."; };
  for (int i = 0; i < kAll; ++i) put(numbered(i));
  EXPECT_EQ(members("all.tf.local.").size(), MemberGroups::kMaxShown);
  for (int i = 0; i < kAll - 100; ++i) remove(numbered(i));
  Names left;
  for (int i = kAll - 100; i < kAll; ++i) left.insert(numbered(i));
  EXPECT_EQ(members("all.tf.local."), left);
  for (int i = kAll - 100; i < kAll; ++i) remove(numbered(i));
  EXPECT_FALSE(exists("all.tf.local."));
}

TEST_F(MemberGroupsTest, WhenThereIsRoomAllAreShown) {
  constexpr int kAll = 6000;
  const auto numbered = [](int i) { return "worker" + std::to_string(i) + ".tf.local."; };
  for (int i = 0; i < kAll; ++i) put(numbered(i));
  for (int i = 0; i < 2000; ++i) remove(numbered(i));
  EXPECT_EQ(members("all.tf.local.").size(), 4000u);
}

TEST_F(MemberGroupsTest, FamiliesAreCounted) {
  put("worker1.tf.local.");
  const auto families = [this] { return group("all.tf.local.")->families(); };
  EXPECT_EQ(families().ipv4, 1u);
  EXPECT_EQ(families().ipv6, 0u);
  store_.put(name("worker1.tf.local."), {.ipv4 = {}, .ipv6 = IpAddress::parse("2001:db8::1")}, ++revision_);
  put("worker2.tf.local.");
  EXPECT_EQ(families().ipv4, 1u);
  EXPECT_EQ(families().ipv6, 1u);
}

// Where the pattern gives a member the name of a group, it is the member's.
TEST(MemberGroups, AMembersOwnNameIsNoGroups) {
  EpochDomain epochs;
  RecordStore store(
      epochs, {.zone = name("tf.local."), .addresses = {}, .hash_seed = 99, .is_member = [](const dns::Name& one) {
                 return one.toString().ends_with("ll.tf.local.");
               }});
  const HostAddresses address{.ipv4 = IpAddress::v4({10, 0, 0, 1}), .ipv6 = {}};
  int64_t revision = 0;
  for (int round = 0; round < 200; ++round) {
    for (const char* owner : {"1ll.tf.local.", "all.tf.local.", "2ll.tf.local."})
      store.put(name(owner), address, ++revision);
    const Entry* all = find(store.table(), name("all.tf.local."));
    ASSERT_TRUE(all != nullptr && all->isHeld() && MemberGroup::of(*all) == nullptr);
    for (const char* owner : {"all.tf.local.", "1ll.tf.local.", "2ll.tf.local."}) store.remove(name(owner), ++revision);
    ASSERT_EQ(find(store.table(), name("all.tf.local.")), nullptr);
  }
}

class RootGroupsTest : public MemberGroupsTest {
 protected:
  RootGroupsTest() : MemberGroupsTest(".") {}
};

TEST_F(RootGroupsTest, OfNoZoneThereAreNone) {
  put("worker1.", {"http"});
  EXPECT_FALSE(exists("all."));
  EXPECT_FALSE(exists("_http._tcp."));
}

}  // namespace
}  // namespace idetcd::records
