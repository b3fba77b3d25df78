#include "directive/idetcd/cluster_copies.h"

#include <gtest/gtest.h>

namespace idetcd::directive {
namespace {

class ClusterCopiesTest : public testing::Test {
 protected:
  ClusterCopiesTest() { store_.setFreshness(records::Freshness::kFresh); }

  void put(std::string_view label, const char* ipv4) {
    store_.put(nameOf(label), {.ipv4 = IpAddress::parse(ipv4), .ipv6 = std::nullopt}, ++revision_);
  }
  void remove(std::string_view label) { store_.remove(nameOf(label), ++revision_); }
  static dns::Name nameOf(std::string_view label) { return dns::Name::parse(std::string(label) + ".tf.local.").value(); }

  using Records = std::vector<std::string>;
  // All that a client takes: the serial, and the other records, sorted.
  std::pair<uint32_t, Records> take(const IpAddress& client) {
    const records::ReadSection section(reader_);
    const auto copy = copies_.copyOf(zone_.wire()).copy;
    Records records;
    for (zones::ZoneCopy::Record record; copy->next(record);) records.push_back(textOf(record));
    std::ranges::sort(records);
    copies_.noteGiven(zone_.wire(), copy->serial(), client);
    return {copy->serial(), records};
  }
  // The changes, sorted between two SOAs; nothing: they are not known.
  std::optional<Records> changesSince(uint32_t serial, const IpAddress& client) {
    const records::ReadSection section(reader_);
    const auto changes = copies_.changesSince(zone_.wire(), serial, client);
    if (!changes) return std::nullopt;
    Records records;
    ptrdiff_t sorted = 0;
    for (zones::ZoneCopy::Record record; changes->next(record);) {
      records.push_back(textOf(record));
      if (dns::isType(record.type, dns::RrType::kSoa)) sorted = std::ssize(records);
      std::sort(records.begin() + sorted, records.end());
    }
    copies_.noteGiven(zone_.wire(), changes->serial(), client);
    return records;
  }
  static std::string textOf(const zones::ZoneCopy::Record& record) {
    if (dns::isType(record.type, dns::RrType::kSoa)) return fmt::format("SOA {}", zones::ZoneCopy::serialOf(record.rdata));
    return fmt::format("{} {}", dns::nameToString(record.owner.data()), record.rdata.back());
  }

  records::EpochDomain epochs_;
  const dns::Name zone_ = dns::Name::parse("tf.local.").value();
  records::RecordStore store_{epochs_, {.zone = zone_, .addresses = {IpAddress::v4({192, 0, 2, 53})}}};
  const ClusterCopies copies_{store_};
  records::EpochDomain::Reader reader_{epochs_};
  int64_t revision_ = 0;
  const IpAddress client_ = IpAddress::v4({192, 0, 2, 100});
  const IpAddress other_ = IpAddress::v4({192, 0, 2, 101});
};

TEST_F(ClusterCopiesTest, AClientHasTheChangesSinceWhatItWasGiven) {
  put("worker1", "192.0.2.1");
  const auto [serial, records] = take(client_);
  EXPECT_EQ(serial, 1u);
  EXPECT_EQ(records, (Records{"ns.dns.tf.local. 53", "tf.local. 0", "worker1.tf.local. 1"}));
  put("worker2", "192.0.2.2");
  put("worker3", "192.0.2.3");
  EXPECT_EQ(changesSince(1, client_), (Records{"SOA 1", "SOA 3", "worker2.tf.local. 2", "worker3.tf.local. 3"}));
  remove("worker2");
  put("worker3", "192.0.2.4");
  EXPECT_EQ(changesSince(3, client_),
            (Records{"SOA 3", "worker2.tf.local. 2", "worker3.tf.local. 3", "SOA 5", "worker3.tf.local. 4"}));
  EXPECT_EQ(changesSince(1, client_)->size(), 9u) << "both, though it had the second one";
}

TEST_F(ClusterCopiesTest, WhoHasTheSerialFromElsewhereNeedsAll) {
  put("worker1", "192.0.2.1");
  take(client_);
  put("worker2", "192.0.2.2");
  EXPECT_EQ(changesSince(1, other_), std::nullopt);
  EXPECT_NE(changesSince(1, client_), std::nullopt);
  take(other_);
  put("worker3", "192.0.2.3");
  EXPECT_EQ(changesSince(1, other_), std::nullopt);
  EXPECT_NE(changesSince(2, other_), std::nullopt);
}

TEST_F(ClusterCopiesTest, AFewOfManyClientsAreRemembered) {
  put("worker1", "192.0.2.1");
  take(client_);
  put("worker2", "192.0.2.2");
  EXPECT_NE(changesSince(1, client_), std::nullopt);
  for (int i = 0; i < 2000; ++i) take(IpAddress::v4({198, 51, static_cast<uint8_t>(i / 256), static_cast<uint8_t>(i % 256)}));
  EXPECT_EQ(changesSince(1, client_), std::nullopt);
}

TEST_F(ClusterCopiesTest, NothingIsKnownWhileTheNamesAreNot) {
  put("worker1", "192.0.2.1");
  take(client_);
  put("worker2", "192.0.2.2");
  store_.setFreshness(records::Freshness::kLoading);
  EXPECT_EQ(changesSince(1, client_), std::nullopt);
}

}  // namespace
}  // namespace idetcd::directive
