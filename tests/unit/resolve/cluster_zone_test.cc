#include "resolve/cluster_zone.h"

#include <gtest/gtest.h>

#include "records/member_data.h"
#include "support/query_fixture.h"

namespace idetcd::resolve {
namespace {

using records::Freshness;

constexpr uint16_t kA = 1;
constexpr uint16_t kNs = 2;
constexpr uint16_t kSoa = 6;
constexpr uint16_t kTxt = 16;
constexpr uint16_t kAaaa = 28;
constexpr uint16_t kAny = 255;

dns::Name name(std::string_view text) { return dns::Name::parse(text).value(); }

class ClusterZoneTest : public testing::Test {
 protected:
  ClusterZoneTest() { store_.setFreshness(Freshness::kFresh); }

  void put(std::string_view owner, std::string_view ipv4, std::string_view ipv6 = "") {
    records::HostAddresses addresses;
    if (!ipv4.empty()) addresses.ipv4 = IpAddress::parse(ipv4);
    if (!ipv6.empty()) addresses.ipv6 = IpAddress::parse(ipv6);
    store_.put(name(owner), addresses, ++revision_);
  }

  // 0: passed on.
  size_t ask(Message& message, const ClusterZone& zone) {
    dns::Query query;
    EXPECT_EQ(dns::parseQuery(message.data(), message.size(), Message::kSeed, query), dns::ParseOutcome::kQuery);
    const records::ReadSection section(reader_);
    const QueryOutcome outcome = zone.answer(query, query.has_edns ? 1232 : 512, 0, now_);
    if (!outcome.isNext()) message.setResponse(outcome.size);
    return outcome.size;
  }
  size_t ask(Message& message) { return ask(message, zone_); }

  static uint16_t ede(const Message& message) {
    for (const auto& record : message.records()) {
      if (record.type == code(dns::RrType::kOpt) && record.rdata_size == 6)
        return dns::load16(message.rdata(record).data() + 4);
    }
    return 0;
  }

  records::EpochDomain epochs_;
  records::RecordStore store_{epochs_,
                              {.zone = name("tf.local."),
                               .ttl_seconds = 7,
                               .addresses = {*IpAddress::parse("192.0.2.9"), *IpAddress::parse("2001:db8::9")},
                               .hash_seed = Message::kSeed}};
  ClusterZone zone_{store_, {}};
  records::EpochDomain::Reader reader_{epochs_};
  BootClock::time_point now_ = BootClock::now();
  int64_t revision_ = 100;
};

TEST_F(ClusterZoneTest, AnswersTheTypeThatIsHeld) {
  put("worker1.tf.local.", "192.0.2.1", "2001:db8::1");
  Message a("WORKER1.tf.LOCAL.", kA);
  ASSERT_GT(ask(a), 0u);
  EXPECT_EQ(a.rcode(), 0);
  EXPECT_TRUE(a.flag(dns::kFlagQr) && a.flag(dns::kFlagAa) && a.flag(dns::kFlagRd));
  EXPECT_FALSE(a.flag(dns::kFlagRa) || a.flag(dns::kFlagTc));
  ASSERT_EQ(a.records().size(), 1u);
  EXPECT_EQ(a.records()[0].owner, "worker1.tf.local.");
  EXPECT_EQ(a.records()[0].ttl, 7u);
  EXPECT_EQ(a.rdata(a.records()[0]), (std::vector<uint8_t>{192, 0, 2, 1}));

  Message aaaa("worker1.tf.local.", kAaaa, 4096);
  ASSERT_GT(ask(aaaa), 0u);
  EXPECT_EQ(aaaa.answers(), 1);
  EXPECT_EQ(aaaa.additionals(), 1) << "OPT";
  EXPECT_EQ(aaaa.records()[0].rdata_size, 16u);
}

TEST_F(ClusterZoneTest, DeniesOtherTypesWithSoa) {
  put("worker1.tf.local.", "192.0.2.1");
  for (const uint16_t type : {kAaaa, kTxt, kSoa, kNs, uint16_t{65280}}) {
    Message message("worker1.tf.local.", type);
    ASSERT_GT(ask(message), 0u);
    EXPECT_EQ(message.rcode(), 0);
    EXPECT_EQ(message.answers(), 0);
    ASSERT_EQ(message.authorities(), 1);
    EXPECT_EQ(message.records()[0].owner, "tf.local.");
    EXPECT_EQ(message.records()[0].type, kSoa);
    EXPECT_EQ(message.records()[0].ttl, 7u);
    EXPECT_TRUE(message.flag(dns::kFlagAa));
  }
}

// The names `worker…` are members'.
class MemberZoneTest : public ClusterZoneTest {
 protected:
  MemberZoneTest() { members_.setFreshness(Freshness::kFresh); }

  void member(int number, const std::vector<std::string>& services = {}, bool has_ipv6 = false) {
    std::vector<records::Service> offered;
    for (const std::string& service : services)
      offered.push_back({.name = service, .port = static_cast<uint16_t>(8000 + number), .weight = 7});
    records::HostAddresses addresses{
        .ipv4 = IpAddress::v4({10, 0, static_cast<uint8_t>(number >> 8), static_cast<uint8_t>(number)}), .ipv6 = {}};
    if (has_ipv6) addresses.ipv6 = IpAddress::parse("2001:db8::7");
    members_.put(name("worker" + std::to_string(number) + ".tf.local."), addresses, ++revision_,
                 records::memberData("6c3e0f1a-0000-4000-8000-0123456789ab", 4711, offered));
  }
  size_t ask(Message& message) { return ClusterZoneTest::ask(message, zone_of_members_); }

  records::RecordStore members_{
      epochs_,
      {.zone = name("tf.local."), .addresses = {}, .hash_seed = Message::kSeed, .is_member = [](const dns::Name& one) {
         return one.toString().starts_with("worker");
       }}};
  ClusterZone zone_of_members_{members_, {}};
};

constexpr uint16_t kSrv = 33;

TEST_F(MemberZoneTest, AMemberSaysWhoItIs) {
  member(1);
  Message txt("worker1.tf.local.", kTxt);
  ASSERT_GT(ask(txt), 0u);
  ASSERT_EQ(txt.answers(), 1);
  const auto rdata = txt.rdata(txt.records()[0]);
  EXPECT_EQ(std::string(rdata.begin(), rdata.end()), "\x29uuid=6c3e0f1a-0000-4000-8000-0123456789ab\x0atoken=4711");
  Message any("worker1.tf.local.", kAny);
  ASSERT_GT(ask(any), 0u);
  EXPECT_EQ(any.records()[0].type, kA);
  Message other("worker1.tf.local.", kAaaa);
  ASSERT_GT(ask(other), 0u);
  EXPECT_EQ(other.answers(), 0);
  EXPECT_EQ(other.authorities(), 1);
}

TEST_F(MemberZoneTest, AServiceHasItsMembersAndTheirAddresses) {
  member(1, {"http"}, true);
  member(2, {"http", "metrics"});
  member(3, {"metrics"});
  Message srv("_HTTP._tcp.tf.local.", kSrv, 1232);
  ASSERT_GT(ask(srv), 0u);
  ASSERT_EQ(srv.answers(), 2);
  EXPECT_TRUE(srv.flag(dns::kFlagAa));
  EXPECT_FALSE(srv.flag(dns::kFlagTc));
  ASSERT_EQ(srv.additionals(), 4) << "A, AAAA, A, OPT";
  std::set<std::string> targets, owners;
  for (const auto& record : srv.records()) {
    if (record.type != kSrv) {
      if (record.type != code(dns::RrType::kOpt)) owners.insert(record.owner);
      continue;
    }
    EXPECT_EQ(record.owner, "_http._tcp.tf.local.");
    const auto rdata = srv.rdata(record);
    size_t at = record.rdata + 6;
    targets.insert(fmt::format("{} {} {} {}", dns::load16(rdata.data()), dns::load16(rdata.data() + 2),
                               dns::load16(rdata.data() + 4), srv.nameAt(at)));
  }
  EXPECT_EQ(targets, (std::set<std::string>{"0 7 8001 worker1.tf.local.", "0 7 8002 worker2.tf.local."}));
  EXPECT_EQ(owners, (std::set<std::string>{"worker1.tf.local.", "worker2.tf.local."}));

  for (const char* owner : {"_tcp.tf.local.", "_http._tcp.tf.local."}) {
    Message txt(owner, kTxt);
    ASSERT_GT(ask(txt), 0u);
    EXPECT_EQ(txt.rcode(), 0);
    EXPECT_EQ(txt.answers(), 0);
    EXPECT_EQ(txt.authorities(), 1);
  }
  for (const char* owner : {"_http._udp.tf.local.", "_other._tcp.tf.local."}) {
    Message none(owner, kSrv);
    ASSERT_GT(ask(none), 0u);
    EXPECT_EQ(none.rcode(), 3) << owner;
  }
}

TEST_F(MemberZoneTest, WhatAMemberSaysTwiceIsInTheAnswerOnce) {
  member(1, {"http", "http"});
  Message srv("_http._tcp.tf.local.", kSrv);
  ASSERT_GT(ask(srv), 0u);
  EXPECT_EQ(srv.answers(), 1);
}

TEST_F(MemberZoneTest, AllAreOneName) {
  for (int i = 1; i <= 3; ++i) member(i, {}, i == 2);
  Message a("all.tf.local.", kA);
  ASSERT_GT(ask(a), 0u);
  EXPECT_EQ(a.answers(), 3);
  Message aaaa("all.tf.local.", kAaaa);
  ASSERT_GT(ask(aaaa), 0u);
  EXPECT_EQ(aaaa.answers(), 1);
  Message srv("all.tf.local.", kSrv);
  ASSERT_GT(ask(srv), 0u);
  EXPECT_EQ(srv.rcode(), 0);
  EXPECT_EQ(srv.answers(), 0);
  std::set<uint8_t> first;
  for (int i = 0; i < 3; ++i) {
    Message again("all.tf.local.", kA);
    ASSERT_GT(ask(again), 0u);
    first.insert(again.rdata(again.records()[0])[3]);
  }
  EXPECT_EQ(first, (std::set<uint8_t>{1, 2, 3})) << "in turn";
}

TEST_F(MemberZoneTest, WhatDoesNotFitIsCutWithTc) {
  for (int i = 1; i <= 300; ++i) member(i, {"http"});
  std::set<std::vector<uint8_t>> seen;
  for (int i = 0; i < 300; ++i) {
    Message a("all.tf.local.", kA, 1232);
    const size_t size = ask(a);
    ASSERT_LE(size, 1232u);
    EXPECT_GT(size, 1232u - 16);
    EXPECT_TRUE(a.flag(dns::kFlagTc));
    for (const auto& record : a.records()) {
      if (record.type == kA) seen.insert(a.rdata(record));
    }
  }
  EXPECT_EQ(seen.size(), 300u) << "each member is in some answer";
  Message srv("_http._tcp.tf.local.", kSrv, 1232);
  ASSERT_LE(ask(srv), 1232u);
  EXPECT_TRUE(srv.flag(dns::kFlagTc));
  EXPECT_GT(srv.answers(), 20);
  EXPECT_FALSE(srv.records().empty()) << "well-formed";
}

TEST_F(MemberZoneTest, GroupsAreMarkedAsOldAndUnknownAsNamesAre) {
  member(1);
  members_.setFreshness(Freshness::kStale);
  Message old("all.tf.local.", kA, 1232);
  ASSERT_GT(ask(old), 0u);
  EXPECT_EQ(old.answers(), 1);
  EXPECT_EQ(ede(old), code(dns::EdeCode::kStaleAnswer));
  members_.setFreshness(Freshness::kFromFile);
  Message incomplete("all.tf.local.", kAaaa, 1232);
  ASSERT_GT(ask(incomplete), 0u);
  EXPECT_EQ(incomplete.rcode(), 2);
  members_.setFreshness(Freshness::kLoading);
  Message unknown("all.tf.local.", kA, 1232);
  ASSERT_GT(ask(unknown), 0u);
  EXPECT_EQ(unknown.rcode(), 2);
}

TEST_F(ClusterZoneTest, SoaIsWellFormedWhereverItIsWritten) {
  Message message("a.b.c.tf.local.", kA);
  ASSERT_GT(ask(message), 0u);
  EXPECT_EQ(message.rcode(), 3);
  const auto records = message.records();
  ASSERT_EQ(records.size(), 1u);
  size_t pos = records[0].rdata;
  EXPECT_EQ(message.nameAt(pos), "ns.dns.tf.local.");
  EXPECT_EQ(message.nameAt(pos), "hostmaster.tf.local.");
  EXPECT_EQ(pos + 20, records[0].rdata + records[0].rdata_size);
  EXPECT_EQ(dns::load32(message.data() + pos), store_.serial());
  EXPECT_EQ(dns::load32(message.data() + pos + 16), 7u) << "negative TTL";
}

TEST_F(ClusterZoneTest, ApexHasSoaAndNsWithGlue) {
  put("worker1.tf.local.", "192.0.2.1");
  Message soa("tf.local.", kSoa);
  ASSERT_GT(ask(soa), 0u);
  ASSERT_EQ(soa.answers(), 1);
  EXPECT_EQ(soa.records()[0].owner, "tf.local.");
  EXPECT_EQ(store_.serial(), 101u) << "the newest revision";

  Message ns("tf.local.", kNs);
  ASSERT_GT(ask(ns), 0u);
  ASSERT_EQ(ns.answers(), 1);
  ASSERT_EQ(ns.additionals(), 2);
  size_t target = ns.records()[0].rdata;
  EXPECT_EQ(ns.nameAt(target), "ns.dns.tf.local.");
  for (size_t i = 1; i < 3; ++i) EXPECT_EQ(ns.records()[i].owner, "ns.dns.tf.local.");

  Message server("ns.dns.tf.local.", kA);
  ASSERT_GT(ask(server), 0u);
  EXPECT_EQ(server.rdata(server.records()[0]), (std::vector<uint8_t>{192, 0, 2, 9}));

  Message a("tf.local.", kA);
  ASSERT_GT(ask(a), 0u);
  EXPECT_EQ(a.rcode(), 0);
  EXPECT_EQ(a.answers(), 0);
  EXPECT_EQ(a.authorities(), 1);
}

TEST_F(ClusterZoneTest, ApexKeepsSoaAndNsWhenEtcdHoldsAnAddressForIt) {
  put("tf.local.", "192.0.2.50");
  Message a("tf.local.", kA);
  ASSERT_GT(ask(a), 0u);
  EXPECT_EQ(a.answers(), 1);
  for (const uint16_t type : {kSoa, kNs}) {
    Message message("tf.local.", type);
    ASSERT_GT(ask(message), 0u);
    ASSERT_EQ(message.answers(), 1);
    EXPECT_EQ(message.records()[0].type, type);
  }
}

TEST_F(ClusterZoneTest, EmptyNonTerminalsExist) {
  put("a.b.tf.local.", "192.0.2.1");
  Message between("b.tf.local.", kA);
  ASSERT_GT(ask(between), 0u);
  EXPECT_EQ(between.rcode(), 0);
  EXPECT_EQ(between.authorities(), 1);
  Message beside("c.tf.local.", kA);
  ASSERT_GT(ask(beside), 0u);
  EXPECT_EQ(beside.rcode(), 3);
}

TEST_F(ClusterZoneTest, AnyGetsOneRrset) {
  put("worker1.tf.local.", "192.0.2.1", "2001:db8::1");
  Message message("worker1.tf.local.", kAny);
  ASSERT_GT(ask(message), 0u);
  EXPECT_EQ(message.answers(), 1);
}

TEST_F(ClusterZoneTest, PassesOnOtherNames) {
  Message message("example.org.", kA);
  EXPECT_EQ(ask(message), 0u);
  Message tail("xtf.local.", kA);
  EXPECT_EQ(ask(tail), 0u) << "the zone's text, but not at a label";
}

TEST_F(ClusterZoneTest, ANameOutsideTheZoneIsItsOwnApex) {
  put("db.example.org.", "192.0.2.7");
  Message a("db.example.org.", kA);
  ASSERT_GT(ask(a), 0u);
  EXPECT_EQ(a.answers(), 1);
  Message aaaa("db.example.org.", kAaaa);
  ASSERT_GT(ask(aaaa), 0u);
  ASSERT_EQ(aaaa.authorities(), 1);
  EXPECT_EQ(aaaa.records()[0].owner, "db.example.org.");
}

TEST_F(ClusterZoneTest, UnknownIsNotNonExistent) {
  store_.setFreshness(Freshness::kLoading);
  put("worker1.tf.local.", "192.0.2.1");
  put("x.deep.tf.local.", "192.0.2.2");
  for (const char* text : {"worker2.tf.local.", "deep.tf.local.", "tf.local."}) {
    Message message(text, kA, 1232);
    ASSERT_GT(ask(message), 0u);
    EXPECT_EQ(message.rcode(), 2) << text;
    EXPECT_EQ(ede(message), 14) << text;
    EXPECT_FALSE(message.flag(dns::kFlagAa)) << text;
  }
  Message known("worker1.tf.local.", kA);
  ASSERT_GT(ask(known), 0u);
  EXPECT_EQ(known.answers(), 1);
  Message no_edns("worker2.tf.local.", kA);
  ASSERT_GT(ask(no_edns), 0u);
  EXPECT_EQ(no_edns.additionals(), 0);
}

TEST_F(ClusterZoneTest, StaleAnswersSaySo) {
  put("worker1.tf.local.", "192.0.2.1");
  store_.setFreshness(Freshness::kStale);
  Message known("worker1.tf.local.", kA, 1232);
  ASSERT_GT(ask(known), 0u);
  EXPECT_EQ(known.answers(), 1);
  EXPECT_EQ(ede(known), 3);
  Message denied("worker9.tf.local.", kA, 1232);
  ASSERT_GT(ask(denied), 0u);
  EXPECT_EQ(denied.rcode(), 3);
  EXPECT_EQ(ede(denied), 19);
}

// No call to the store is needed: a process that wakes too late finds its names stale with the first query.
TEST_F(ClusterZoneTest, FreshnessEndsByItself) {
  put("worker1.tf.local.", "192.0.2.1");
  store_.setFreshUntil(now_ + std::chrono::seconds(1));
  Message fresh("worker1.tf.local.", kA, 1232);
  ASSERT_GT(ask(fresh), 0u);
  EXPECT_EQ(ede(fresh), 0);
  now_ += std::chrono::seconds(1);
  Message known("worker1.tf.local.", kA, 1232);
  ASSERT_GT(ask(known), 0u);
  EXPECT_EQ(known.answers(), 1);
  EXPECT_EQ(ede(known), 3);
  Message denied("worker9.tf.local.", kA, 1232);
  ASSERT_GT(ask(denied), 0u);
  EXPECT_EQ(denied.rcode(), 3);
  EXPECT_EQ(ede(denied), 19);
}

TEST_F(ClusterZoneTest, WhatAFileHasKeptIsStaleAndTheRestUnknown) {
  put("worker1.tf.local.", "192.0.2.1");
  put("x.deep.tf.local.", "192.0.2.2");
  put("db.example.org.", "192.0.2.3");
  store_.setFreshness(Freshness::kFromFile);
  for (const char* text : {"worker1.tf.local.", "db.example.org."}) {
    Message known(text, kA, 1232);
    ASSERT_GT(ask(known), 0u);
    EXPECT_EQ(known.answers(), 1) << text;
    EXPECT_EQ(ede(known), 3) << text;
  }
  Message no_data("worker1.tf.local.", kAaaa, 1232);
  ASSERT_GT(ask(no_data), 0u);
  EXPECT_EQ(no_data.rcode(), 0);
  EXPECT_EQ(no_data.authorities(), 1);
  EXPECT_EQ(ede(no_data), 3);
  // What lies at a non-terminal or at the apex the file does not say.
  for (const char* text : {"worker2.tf.local.", "deep.tf.local.", "tf.local."}) {
    Message message(text, kA, 1232);
    ASSERT_GT(ask(message), 0u);
    EXPECT_EQ(message.rcode(), 2) << text;
    EXPECT_EQ(ede(message), 14) << text;
    EXPECT_FALSE(message.flag(dns::kFlagAa)) << text;
  }
  Message soa("tf.local.", kSoa);
  ASSERT_GT(ask(soa), 0u);
  EXPECT_EQ(soa.answers(), 1);
  const ClusterZone falls_through(store_, {.fallthrough = {name(".")}});
  Message unknown("worker2.tf.local.", kA);
  EXPECT_GT(ask(unknown, falls_through), 0u) << "another server would deny it";
  Message foreign("a.example.org.", kA);
  EXPECT_EQ(ask(foreign), 0u) << "no zone of ours";
}

TEST_F(ClusterZoneTest, FallsThroughWhereAsked) {
  put("worker1.tf.local.", "192.0.2.1");
  const ClusterZone some(store_, {.fallthrough = {name("x.tf.local.")}});
  Message inside("a.x.tf.local.", kA);
  EXPECT_EQ(ask(inside, some), 0u);
  Message outside("a.y.tf.local.", kA);
  EXPECT_GT(ask(outside, some), 0u);
  Message held("worker1.tf.local.", kAaaa);
  EXPECT_GT(ask(held, some), 0u) << "a name that exists is ours, whatever the type";
}

TEST_F(ClusterZoneTest, WhatTheZoneIsReadFromGoesOn) {
  const ClusterZone zone(store_, {.sources = {name("etcd.tf.local."), name("tf.local.")}});
  put("below.etcd.tf.local.", "192.0.2.1");
  for (const Freshness freshness : {Freshness::kLoading, Freshness::kFresh, Freshness::kStale}) {
    store_.setFreshness(freshness);
    for (const char* text : {"etcd.tf.local.", "ETCD.tf.local.", "tf.local."}) {
      Message message(text, kA);
      EXPECT_EQ(ask(message, zone), 0u) << text;
    }
    Message beside("etcd2.tf.local.", kA);
    EXPECT_GT(ask(beside, zone), 0u);
    Message soa("tf.local.", kSoa);
    ASSERT_GT(ask(soa, zone), 0u);
    EXPECT_EQ(soa.answers(), 1) << "the apex stays ours";
  }
  put("etcd.tf.local.", "192.0.2.2");
  Message held("etcd.tf.local.", kA);
  ASSERT_GT(ask(held, zone), 0u);
  EXPECT_EQ(held.answers(), 1) << "what etcd says itself counts more";
}

TEST_F(ClusterZoneTest, NsRecordsOfTheLongestZonesFitToo) {
  const std::string label(63, 'x');
  const std::string zone_text = label + "." + label + "." + label + "." + std::string(61, 'y') + ".";
  records::RecordStore store(epochs_,
                             {.zone = name(zone_text), .ttl_seconds = 5, .addresses = {}, .hash_seed = Message::kSeed});
  store.setFreshness(Freshness::kFresh);
  const ClusterZone zone(store, {});
  for (const uint16_t type : {kSoa, kNs, kA}) {
    Message message(zone_text, type);
    ASSERT_GT(ask(message, zone), 0u);
    EXPECT_EQ(message.records().size(), 1u);
  }
}

}  // namespace
}  // namespace idetcd::resolve
