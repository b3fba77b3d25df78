// The names of members in further networks, as a store's readers find them.
#include <string>

#include <gtest/gtest.h>

#include "records/member_data.h"
#include "records/record_store.h"
#include "records/record_union.h"
#include "table_support.h"

namespace idetcd::records {
namespace {

using test::name;

constexpr const char* kSomeUuid = "6c3e0f1a-0000-4000-8000-0123456789ab";

IpAddress address(const char* text) { return *IpAddress::parse(text); }

Network network(const std::string& label, const char* ip) {
  const IpAddress parsed = address(ip);
  Network made{.name = label, .addresses = {}};
  (parsed.isV4() ? made.addresses.ipv4 : made.addresses.ipv6) = parsed;
  return made;
}

class MemberNetworksTest : public ::testing::Test {
 protected:
  explicit MemberNetworksTest(std::string_view zone = "tf.local.") : zone_(zone), store_(epochs_, options()) {}

  RecordStore::Options options() const {
    return {.zone = name(zone_), .addresses = {}, .hash_seed = 99, .is_member = [](const dns::Name& one) {
              return one.toString().starts_with("worker");
            }};
  }
  void put(const std::string& owner, const std::vector<Network>& networks) { put(store_, owner, networks); }
  void put(RecordStore& store, const std::string& owner, const std::vector<Network>& networks) {
    ++revision_;
    store.put(name(owner), {.ipv4 = address("192.0.2.1"), .ipv6 = {}}, revision_,
              memberData(kSomeUuid, revision_, {}, networks));
  }
  std::string at(std::string_view owner) const { return at(store_, owner); }
  // The addresses; "-": there is no such name.
  static std::string at(const RecordStore& store, std::string_view owner) {
    const Entry* entry = test::find(store.table(), name(owner));
    if (entry == nullptr) return "-";
    std::string found;
    visitAddresses(*entry, [&found](const IpAddress& ip, uint32_t) { found += (found.empty() ? "" : " ") + ip.toString(); });
    return found;
  }
  std::string nameOf(const char* ip) const {
    const auto found = store_.reverse().find(address(ip));
    return found.entries().empty() ? "-" : dns::Name::fromWire(found.entries().front()->name()).toString();
  }

  const std::string zone_;
  EpochDomain epochs_;
  RecordStore store_;
  int64_t revision_ = 100;
};

TEST_F(MemberNetworksTest, ComeChangeAndGoWithTheMember) {
  put("worker1.tf.local.", {network("fabric", "10.0.0.1"), network("storage", "fd00::1")});
  EXPECT_EQ(at("worker1.tf.local."), "192.0.2.1");
  EXPECT_EQ(at("worker1.fabric.tf.local."), "10.0.0.1");
  EXPECT_EQ(at("worker1.storage.tf.local."), "fd00::1");
  EXPECT_EQ(at("fabric.tf.local."), "") << "an empty non-terminal";
  EXPECT_EQ(nameOf("10.0.0.1"), "worker1.fabric.tf.local.");
  EXPECT_EQ(store_.size(), 1u) << "etcd has one key";
  put("worker1.tf.local.", {network("fabric", "10.0.0.2")});
  EXPECT_EQ(at("worker1.fabric.tf.local."), "10.0.0.2");
  EXPECT_EQ(at("worker1.storage.tf.local."), "-");
  EXPECT_EQ(nameOf("10.0.0.1"), "-");
  store_.remove(name("worker1.tf.local."), ++revision_);
  EXPECT_EQ(at("worker1.fabric.tf.local."), "-");
  EXPECT_EQ(at("fabric.tf.local."), "-");
}

TEST_F(MemberNetworksTest, AreOfMembersOfTheZoneOnly) {
  put("db.tf.local.", {network("fabric", "10.0.0.1")});
  EXPECT_EQ(at("db.fabric.tf.local."), "-");
  put("worker1.other.", {network("fabric", "10.0.0.1")});
  EXPECT_EQ(at("worker1.fabric.other."), "-");
  EXPECT_EQ(nameOf("10.0.0.1"), "-");
}

TEST_F(MemberNetworksTest, AKeyOfTheSameNameAddsToIt) {
  put("worker1.tf.local.", {network("fabric", "10.0.0.1")});
  store_.put(name("worker1.fabric.tf.local."), {.ipv4 = address("10.9.9.9"), .ipv6 = {}}, ++revision_);
  EXPECT_EQ(at("worker1.fabric.tf.local."), "10.9.9.9 10.0.0.1");
  // Neither is in the next snapshot: the removal of the one replaces the other.
  store_.beginSnapshot(SourceHistory::Revisions::kGoOn);
  EXPECT_EQ(store_.endSnapshot(++revision_).size(), 2u);
  EXPECT_EQ(at("worker1.tf.local."), "-");
  EXPECT_EQ(at("worker1.fabric.tf.local."), "-");
}

TEST_F(MemberNetworksTest, OfTwoStoresTheUnionHasThem) {
  RecordStore second(epochs_, options());
  RecordUnion both(epochs_, options(), store_, second, RecordUnion::Second::kNeeded);
  put(store_, "worker1.tf.local.", {network("fabric", "10.0.0.1")});
  both.begin();
  put(second, "worker1.tf.local.", {network("fabric", "10.0.0.1")});
  EXPECT_EQ(at(both.sum(), "worker1.fabric.tf.local."), "10.0.0.1");
  store_.remove(name("worker1.tf.local."), ++revision_);
  EXPECT_EQ(at(both.sum(), "worker1.fabric.tf.local."), "10.0.0.1") << "the second has it";
  put(second, "worker1.tf.local.", {});
  EXPECT_EQ(at(both.sum(), "worker1.fabric.tf.local."), "-");
  EXPECT_EQ(at(both.sum(), "worker1.tf.local."), "192.0.2.1");
}

TEST(NameInNetwork, HasTheLabelBetweenTheMembersAndTheZone) {
  const auto made = [](std::string_view member, std::string_view zone, std::string_view label) {
    const auto found = nameInNetwork(name(member), name(zone), label);
    return found ? found->toString() : "-";
  };
  EXPECT_EQ(made("worker3.tf.local.", "tf.local.", "fabric"), "worker3.fabric.tf.local.");
  EXPECT_EQ(made("gpu.rack2.node3.tf.local.", "tf.local.", "fabric"), "gpu.rack2.node3.fabric.tf.local.");
  EXPECT_EQ(made("worker3.", ".", "fabric"), "worker3.fabric.");
  EXPECT_EQ(made("worker3.tf.local.", "other.", "fabric"), "-");
  const std::string label(63, 'x');
  const std::string longest = label + "." + label + "." + label + ".";
  EXPECT_EQ(made(longest, ".", std::string(61, 'n')).size(), 254u);
  EXPECT_EQ(made(longest, ".", std::string(62, 'n')), "-");
}

}  // namespace
}  // namespace idetcd::records
