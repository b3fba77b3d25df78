#include "directive/idetcd/cluster_reverse.h"

#include <gtest/gtest.h>

#include "dns/name.h"
#include "support/query_fixture.h"

namespace idetcd::directive {
namespace {

using records::Freshness;
using records::Source;

constexpr uint16_t kA = code(dns::RrType::kA);
constexpr uint16_t kPtr = code(dns::RrType::kPtr);
constexpr uint16_t kAny = 255;

dns::Name name(std::string_view text) { return dns::Name::parse(text).value(); }
IpAddress ip(std::string_view text) { return IpAddress::parse(text).value(); }

class ClusterReverseTest : public testing::Test {
 protected:
  ClusterReverseTest() {
    store_.setFreshness(Freshness::kFresh);
    put("worker1.tf.local.", "192.0.2.1", "2001:db8::1");
    put("worker2.tf.local.", "192.0.2.2", "2001:db8::2");
  }

  void put(std::string_view owner, std::string_view ipv4, std::string_view ipv6) {
    store_.put(name(owner), {.ipv4 = IpAddress::parse(ipv4), .ipv6 = IpAddress::parse(ipv6)}, ++revision_);
  }
  struct Said {
    std::vector<std::string> names;
    uint32_t ttl = 0;
    uint16_t ede = 0;
    bool operator==(const Said&) const = default;
  };
  // Nothing: the next handler is asked.
  std::optional<Said> ask(std::string_view address, uint16_t qtype = kPtr) {
    return ask(Message(dns::reverseName(ip(address)).toString(), qtype, 1232));
  }
  std::optional<Said> ask(Message message) {
    dns::Query query;
    EXPECT_EQ(dns::parseQuery(message.data(), message.size(), Message::kSeed, query), dns::ParseOutcome::kQuery);
    const records::ReadSection section(reader_);
    const resolve::QueryOutcome outcome = reverse_.answer(query, 1232, dns::kFlagRa, now_);
    if (outcome.isNextOfExisting()) return Said{{"exists"}, 0, 0};
    if (outcome.isNext()) return std::nullopt;
    message.setResponse(outcome.size);
    EXPECT_EQ(message.rcode(), 0);
    EXPECT_TRUE(message.flag(dns::kFlagAa) && message.flag(dns::kFlagRa) && !message.flag(dns::kFlagTc));
    Said said;
    for (const auto& record : message.records()) {
      if (record.type == code(dns::RrType::kOpt) && record.rdata_size == 6)
        said.ede = dns::load16(message.rdata(record).data() + 4);
      if (record.type != kPtr) continue;
      size_t target = record.rdata;
      said.names.push_back(message.nameAt(target));
      said.ttl = record.ttl;
    }
    return said;
  }

  records::EpochDomain epochs_;
  records::RecordStore store_{
      epochs_, {.zone = name("tf.local."), .ttl_seconds = 7, .addresses = {}, .hash_seed = Message::kSeed}};
  std::optional<std::string> own_ = "worker1.tf.local.";
  ClusterReverse reverse_{store_, [this](const IpAddress& address) {
                            OwnAddress own{.is_own = address == ip("192.0.2.1"), .name = {}, .ttl_seconds = 7};
                            if (own.is_own && own_) own.name = name(*own_);
                            return own;
                          }};
  records::EpochDomain::Reader reader_{epochs_};
  BootClock::time_point now_ = BootClock::now();
  int64_t revision_ = 100;
};

TEST_F(ClusterReverseTest, EveryAddressOfEveryName) {
  EXPECT_EQ(ask("192.0.2.1"), (Said{{"worker1.tf.local."}, 7, 0}));
  EXPECT_EQ(ask("192.0.2.2"), (Said{{"worker2.tf.local."}, 7, 0}));
  EXPECT_EQ(ask("2001:db8::1"), (Said{{"worker1.tf.local."}, 7, 0}));
  EXPECT_EQ(ask("2001:DB8::2"), (Said{{"worker2.tf.local."}, 7, 0}));
  EXPECT_EQ(ask("192.0.2.2", kAny), (Said{{"worker2.tf.local."}, 7, 0}));
}

TEST_F(ClusterReverseTest, WhatIsNotHeldIsForOthers) {
  EXPECT_EQ(ask("192.0.2.3"), std::nullopt);
  for (const char* other : {"3.0.192.in-addr.arpa.", "x.2.2.0.192.in-addr.arpa.", "worker1.tf.local.", ".", "arpa.",
                            "in-addr.arpa.", "a.8.b.d.0.1.0.0.2.ip6.arpa."}) {
    EXPECT_EQ(ask(Message(other, kPtr)), std::nullopt) << other;
  }
  store_.remove(name("worker2.tf.local."), ++revision_);
  EXPECT_EQ(ask("192.0.2.2"), std::nullopt);
  EXPECT_EQ(ask("192.0.2.2", kA), std::nullopt);
}

TEST_F(ClusterReverseTest, ANameWithAPointerHasNothingElse) {
  EXPECT_EQ(ask("192.0.2.2", kA), Said{});
  EXPECT_EQ(ask("2001:db8::1", code(dns::RrType::kTxt)), Said{});
  EXPECT_EQ(ask("192.0.2.2", code(dns::RrType::kDs)), (Said{{"exists"}, 0, 0})) << "the parent's side may know it";
}

TEST_F(ClusterReverseTest, TheNamesAboveExistForAsLongAsOneBelow) {
  const auto above = [this] {
    size_t count = 0;
    for (const char* top : {"2.0.192.in-addr.arpa.", "0.192.in-addr.arpa.", "192.in-addr.arpa.", "8.b.d.0.1.0.0.2.ip6.arpa.",
                            "2.ip6.arpa.", "0.0.0.0.0.0.0.0.0.0.0.0.8.B.D.0.1.0.0.2.ip6.arpa."}) {
      count += ask(Message(top, kPtr)) == Said{{"exists"}, 0, 0} ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(above(), 6u);
  store_.remove(name("worker2.tf.local."), ++revision_);
  put("worker1.tf.local.", "192.0.2.1", "2001:db8::1");
  EXPECT_EQ(above(), 6u);
  store_.remove(name("worker1.tf.local."), ++revision_);
  EXPECT_EQ(above(), 0u);
}

TEST_F(ClusterReverseTest, OfItsOwnAddressTheOwnName) {
  put("worker0.tf.local.", "192.0.2.1", "2001:db8::1");
  EXPECT_EQ(ask("192.0.2.1"), (Said{{"worker1.tf.local."}, 7, 0}));
  EXPECT_EQ(ask("2001:db8::1"), (Said{{"worker0.tf.local.", "worker1.tf.local."}, 7, 0})) << "as the store has it";
}

TEST_F(ClusterReverseTest, AnOwnAddressHasNoNameThatIsNotOwned) {
  own_.reset();
  EXPECT_EQ(ask("192.0.2.1"), std::nullopt);
  EXPECT_EQ(ask("192.0.2.2"), (Said{{"worker2.tf.local."}, 7, 0}));
  own_ = "worker9.tf.local.";  // the table does not show it yet
  store_.remove(name("worker1.tf.local."), ++revision_);
  EXPECT_EQ(ask("192.0.2.1"), (Said{{"worker9.tf.local."}, 7, 0}));
}

TEST_F(ClusterReverseTest, WhatIsOldSaysSo) {
  for (const Freshness freshness : {Freshness::kStale, Freshness::kFromFile}) {
    store_.setFreshness(freshness);
    EXPECT_EQ(ask("192.0.2.2"), (Said{{"worker2.tf.local."}, 7, 3}));
    EXPECT_EQ(ask("192.0.2.1"), (Said{{"worker1.tf.local."}, 7, 0})) << "the own name is confirmed";
    EXPECT_EQ(ask("192.0.2.3"), std::nullopt);
  }
}

TEST_F(ClusterReverseTest, OneTtlForAll) {
  const uint8_t bytes[] = {192, 0, 2, 2};
  const records::Rdata rdata[] = {bytes};
  const records::Rrset rrset{dns::RrType::kA, 3, rdata};
  store_.put(name("other.tf.local."), static_cast<Source>(2), {&rrset, 1});
  EXPECT_EQ(ask("192.0.2.2"), (Said{{"other.tf.local.", "worker2.tf.local."}, 3, 0}));
}

}  // namespace
}  // namespace idetcd::directive
