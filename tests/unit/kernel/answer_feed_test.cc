// A table's records in the kernel's maps: changes, too many of them, and those that another process has left.
#include "kernel/answer_feed.h"

#include <array>
#include <set>
#include <string>
#include <utility>

#include "dns/name.h"
#include "kernel_support.h"
#include "records/member_data.h"

namespace idetcd::kernel {
namespace {

using namespace test;

constexpr uint16_t kA = 1;
constexpr uint16_t kPtr = 12;

// A process with a table of its own.
class Server {
 public:
  Server(std::shared_ptr<Maps> maps, ZoneIdentity identity = {}, std::string_view zone = "tf.local.",
         uint32_t ttl_seconds = 5, size_t place = 0)
      : store_(epochs_, {.zone = name(zone), .ttl_seconds = ttl_seconds, .addresses = {}, .hash_seed = 7}) {
    maps->takeOver();
    feed_ = std::make_shared<AnswerFeed>(std::move(maps), place, identity, store_);
    store_.addObserver(feed_);
  }

  void put(std::string_view owner, std::string_view ipv4) {
    store_.put(name(owner), {.ipv4 = ip(ipv4), .ipv6 = {}}, ++revision_);
  }
  void put(int number) { put("w" + std::to_string(number) + ".tf.local.", "10.0.0." + std::to_string(number)); }
  void remove(std::string_view owner) { store_.remove(name(owner), ++revision_); }
  void remove(int number) { remove("w" + std::to_string(number) + ".tf.local."); }
  void confirm() { store_.setFreshUntil(BootClock::now() + std::chrono::hours(1)); }

  AnswerFeed& feed() { return *feed_; }
  records::RecordStore& store() { return store_; }

 private:
  records::EpochDomain epochs_;
  records::RecordStore store_;
  std::shared_ptr<AnswerFeed> feed_;
  int64_t revision_ = 100;
};

class AnswerFeedTest : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    if (!IsSkipped()) listen("127.0.0.1");
  }

  // "10.0.0.1", "NODATA", "NXDOMAIN"; "": it was passed.
  std::string a(std::string_view owner) {
    const Bytes response = ask(queryFor(owner, kA));
    if (response.empty()) return "";
    if ((response[3] & 0xf) != 0) return "NXDOMAIN";
    if (response[7] == 0) return "NODATA";
    return IpAddress::fromBytes(std::span(response).last(4)).toString();
  }
  std::string a(int number) { return a("w" + std::to_string(number) + ".tf.local."); }
  bool hasPointer(std::string_view address) { return !ask(queryFor(dns::reverseName(ip(address)), kPtr)).empty(); }
  uint32_t serial() { return maps().zone(0).serial; }
};

TEST_F(AnswerFeedTest, EachChangeIsSeenAtOnce) {
  Server server(program_.maps);
  server.confirm();
  EXPECT_EQ(a(1), "NXDOMAIN");
  server.put(1);
  EXPECT_EQ(a(1), "10.0.0.1");
  EXPECT_EQ(serial(), 101u);
  EXPECT_TRUE(hasPointer("10.0.0.1"));
  server.put("w1.tf.local.", "10.0.0.9");
  EXPECT_EQ(a(1), "10.0.0.9");
  EXPECT_FALSE(hasPointer("10.0.0.1"));
  EXPECT_TRUE(hasPointer("10.0.0.9"));
  server.put("a.b.tf.local.", "10.0.0.3");
  EXPECT_EQ(a("b.tf.local."), "NODATA");
  server.remove("a.b.tf.local.");
  EXPECT_EQ(a("b.tf.local."), "NXDOMAIN");
  server.remove(1);
  EXPECT_EQ(a(1), "NXDOMAIN");
  EXPECT_FALSE(hasPointer("10.0.0.9"));
  EXPECT_EQ(server.feed().names(), 2u);  // of the name server
}

TEST_F(AnswerFeedTest, WhatAMemberSaysOfItselfIsTheProcesses) {
  constexpr uint16_t kTxt = 16;
  constexpr uint16_t kAaaa = 28;
  Server server(program_.maps);
  server.confirm();
  server.put(2);
  const auto data = records::memberData("6c3e0f1a-0000-4000-8000-0123456789ab", 7, {});
  server.store().put(name("w1.tf.local."), {.ipv4 = ip("10.0.0.1"), .ipv6 = {}}, 1000, data);
  EXPECT_EQ(a(1), "10.0.0.1");
  EXPECT_FALSE(ask(queryFor("w1.tf.local.", kAaaa)).empty());
  EXPECT_FALSE(ask(queryFor("w1.tf.local.", 65)).empty()) << "HTTPS";
  EXPECT_TRUE(ask(queryFor("w1.tf.local.", kTxt)).empty());
  EXPECT_FALSE(ask(queryFor("w2.tf.local.", kTxt)).empty());
}

TEST_F(AnswerFeedTest, AReverseNameWithRecordsOfItsOwnIsTheProcesses) {
  Server server(program_.maps);
  server.put(1);
  server.put("2.0.0.10.in-addr.arpa.", "10.0.0.77");
  server.confirm();
  server.put(2);
  EXPECT_TRUE(hasPointer("10.0.0.1"));
  EXPECT_FALSE(hasPointer("10.0.0.2"));
  server.put("1.0.0.10.in-addr.arpa.", "10.0.0.77");
  EXPECT_FALSE(hasPointer("10.0.0.1"));
  server.remove("1.0.0.10.in-addr.arpa.");
  server.remove("2.0.0.10.in-addr.arpa.");
  EXPECT_TRUE(hasPointer("10.0.0.1"));
  EXPECT_TRUE(hasPointer("10.0.0.2"));
}

TEST_F(AnswerFeedTest, ANameWithMoreThanTwoAddressesIsTheProcesses) {
  Server server(program_.maps);
  server.confirm();
  const IpAddress first = ip("10.0.0.1");
  const IpAddress second = ip("10.0.0.2");
  const std::array<records::Rdata, 2> both{{{first.data(), 4}, {second.data(), 4}}};
  const std::array<records::Rrset, 1> rrsets{{{.type = dns::RrType::kA, .ttl_seconds = 5, .rdata = both}}};
  server.store().put(name("w1.tf.local."), records::Source::kEtcd, rrsets, 200);
  EXPECT_EQ(a(1), "");
  EXPECT_TRUE(ask(queryFor("w1.tf.local.", 28)).empty());
  server.put(1);
}

TEST_F(AnswerFeedTest, WhileNamesAreWrittenNothingIsDenied) {
  Server server(program_.maps);
  server.put(1);
  server.confirm();
  EXPECT_EQ(maps().zone(0).changes % 2, 0u);
  const uint32_t before = maps().zone(0).changes;
  server.put(2);
  EXPECT_EQ(maps().zone(0).changes, before + 2);
  maps().zone(0).changes = before + 3;  // killed in the middle of one
  EXPECT_EQ(a(9), "");
  EXPECT_EQ(a(1), "10.0.0.1");
  Server successor(program_.maps);
  successor.put(1);
  EXPECT_EQ(a(9), "");
  successor.confirm();
  EXPECT_EQ(a(9), "NXDOMAIN");
}

// The hash of a name in one zone is not that of another name in another zone, whatever the seed.
TEST_F(AnswerFeedTest, ZonesDoNotShareNames) {
  std::set<std::pair<uint64_t, uint64_t>> keys;
  size_t count = 0;
  for (size_t zone = 0; zone < kZones; ++zone) {
    for (uint8_t first = 0; first < 64; ++first) {
      const std::array<uint8_t, 3> labels{first, 'a', 'b'};
      const NameKey key = maps().keyOf(zone, labels);
      keys.insert({key.hash[0], key.hash[1]});
      ++count;
    }
  }
  EXPECT_EQ(keys.size(), count);
}

TEST_F(AnswerFeedTest, BeforeTheFirstSnapshotNothingIsSaid) {
  Server server(program_.maps);
  server.put(1);
  EXPECT_EQ(a(1), "");
  EXPECT_EQ(a(2), "");
  server.confirm();
  EXPECT_EQ(a(1), "10.0.0.1");
}

TEST_F(AnswerFeedTest, WhatHasNoRoomIsPassedAndNeverDenied) {
  Server server(program_.maps);
  server.confirm();
  const int room = static_cast<int>(kMaxNames) - 2;  // beside the name server
  for (int i = 1; i <= room + 3; ++i) server.put(i);
  EXPECT_EQ(server.feed().names(), kMaxNames);
  EXPECT_GE(server.feed().leftOut(), 3u);
  EXPECT_EQ(a(room), "10.0.0." + std::to_string(room));
  EXPECT_EQ(a(room + 1), "");
  EXPECT_EQ(a(200), "");  // not there; but the kernel cannot know that any more
  server.put("w" + std::to_string(room + 1) + ".tf.local.", "10.0.1.1");
  EXPECT_EQ(a(room + 1), "");
  server.remove(room + 2);
  server.remove(room + 3);
  EXPECT_EQ(a(200), "");
  server.remove(1);
  EXPECT_EQ(a(room + 1), "");
  server.confirm();
  EXPECT_EQ(a(room + 1), "10.0.1.1") << "it is taken in as soon as there is room";
  EXPECT_EQ(a(200), "NXDOMAIN");
  server.put("w" + std::to_string(room + 1) + ".tf.local.", "10.0.1.2");
  EXPECT_EQ(a(room + 1), "10.0.1.2");
  EXPECT_EQ(a(200), "NXDOMAIN");  // now it does
  server.remove(room + 1);
  EXPECT_EQ(a(room + 1), "NXDOMAIN");
}

TEST_F(AnswerFeedTest, RoomIsMadeByNamesOfAnyZone) {
  Server first(program_.maps);
  Server second(program_.maps, {}, "other.test.", 5, 1);
  first.confirm();
  second.confirm();
  for (int i = 1; i <= static_cast<int>(kMaxNames) - 4; ++i) first.put(i);  // beside two name servers
  second.put("w1.other.test.", "10.1.0.1");
  second.confirm();
  EXPECT_EQ(second.feed().names(), 2u);
  first.remove(1);
  second.confirm();
  EXPECT_EQ(second.feed().names(), 3u);
  second.put("w2.other.test.", "10.1.0.2");
  first.feed().close();
  second.confirm();
  EXPECT_EQ(second.feed().names(), 4u);
}

TEST_F(AnswerFeedTest, PointersThatHadNoRoomAreTakenInToo) {
  Server server(program_.maps);
  server.confirm();
  const int last = static_cast<int>(kMaxNames) / 2 + 1;
  for (int i = 1; i <= last; ++i) {
    const std::string number = std::to_string(i);
    server.store().put(name("w" + number + ".tf.local."),
                       {.ipv4 = ip("10.0.0." + number), .ipv6 = ip("2001:db8::" + number)}, i);
  }
  EXPECT_EQ(a(last), "10.0.0." + std::to_string(last));
  EXPECT_FALSE(hasPointer("10.0.0." + std::to_string(last)));
  server.remove(1);
  server.confirm();
  EXPECT_TRUE(hasPointer("10.0.0." + std::to_string(last)));
  EXPECT_TRUE(hasPointer("2001:db8::" + std::to_string(last)));
}

TEST_F(AnswerFeedTest, APointerThatGoesWithoutItsNameMakesRoom) {
  Server server(program_.maps);
  server.confirm();
  auto put = [&server, revision = 100](int number, const std::string& ipv4) mutable {
    server.store().put(name("w" + std::to_string(number) + ".tf.local."),
                       {.ipv4 = ip(ipv4), .ipv6 = ip("2001:db8::" + std::to_string(number))}, ++revision);
  };
  const int last = static_cast<int>(kMaxNames) / 2 + 1;
  for (int i = 1; i <= last; ++i) put(i, "10.0.0." + std::to_string(i));
  const auto left_out = server.feed().leftOut();
  put(1, "10.0.0.2");  // which has two names now, and no pointer
  server.confirm();
  EXPECT_TRUE(hasPointer("10.0.0." + std::to_string(last)));
  EXPECT_TRUE(hasPointer("2001:db8::" + std::to_string(last)));
  EXPECT_EQ(server.feed().leftOut(), left_out);
}

TEST_F(AnswerFeedTest, TheTruthOfAProcessThatEndedLastsUntilItsDeadline) {
  {
    Server server(program_.maps);
    server.put(1);
    server.put(2);
    server.confirm();
  }
  EXPECT_EQ(a(1), "10.0.0.1");
  EXPECT_EQ(a(3), "NXDOMAIN");
  maps().zone(0).fresh_until = 1;
  EXPECT_EQ(a(1), "");
}

TEST_F(AnswerFeedTest, ASuccessorGoesOnAndTakesOutWhatIsGone) {
  {
    Server server(program_.maps);
    for (const int i : {1, 2, 3}) server.put(i);
    server.confirm();
  }
  Server successor(program_.maps);
  EXPECT_EQ(a(1), "10.0.0.1");  // as it was left
  EXPECT_EQ(a(4), "NXDOMAIN");
  successor.put("w1.tf.local.", "10.0.0.11");  // out of a file: older than what was left
  successor.store().setFreshness(records::Freshness::kFromFile);
  EXPECT_EQ(a(1), "10.0.0.1");
  successor.put(1);
  successor.put("w2.tf.local.", "10.0.0.22");
  EXPECT_EQ(a(2), "10.0.0.2");
  EXPECT_EQ(a(3), "10.0.0.3");
  EXPECT_TRUE(hasPointer("10.0.0.3"));
  successor.confirm();
  EXPECT_EQ(a(1), "10.0.0.1");
  EXPECT_EQ(a(2), "10.0.0.22");
  EXPECT_EQ(a(3), "NXDOMAIN");
  EXPECT_FALSE(hasPointer("10.0.0.3"));
  EXPECT_FALSE(hasPointer("10.0.0.2"));
}

TEST_F(AnswerFeedTest, AZoneThatWasLeftHalfClearedIsMadeAnew) {
  {
    Server server(program_.maps);
    server.put(1);
    server.confirm();
  }
  maps().zone(0).name_size = 0;
  Server successor(program_.maps);
  successor.put(1);
  successor.confirm();
  EXPECT_EQ(a(1), "10.0.0.1");
}

TEST_F(AnswerFeedTest, WhatIsGoneTakesNoRoom) {
  {
    Server server(program_.maps);
    for (int i = 1; i <= 50; ++i) server.put(i);
    server.confirm();
  }
  Server successor(program_.maps);
  for (int i = 101; i <= 150; ++i) successor.put(i);
  successor.confirm();
  EXPECT_EQ(a(101), "10.0.0.101");
  EXPECT_EQ(a(150), "10.0.0.150");
  EXPECT_EQ(a(1), "NXDOMAIN");
  EXPECT_EQ(successor.feed().names(), 52u);
}

// Members of etcd come and go, and a TTL changes: the names stay, with the old TTL until the new process is level.
TEST_F(AnswerFeedTest, OfAConfigurationWithTheSameNamesEverythingIsGoneOnWith) {
  {
    Server server(program_.maps, {.endpoints = {1, 3}});
    server.put(1);
    server.confirm();
  }
  const auto ttl_of_denial = [this] {
    const Bytes response = ask(queryFor("none.tf.local.", kA));
    return response.empty() ? 0 : dns::load32(&response[response.size() - 4]);
  };
  EXPECT_EQ(ttl_of_denial(), 5u);
  Server successor(program_.maps, {.endpoints = {3, 5}}, "tf.local.", 7);
  EXPECT_EQ(a(1), "10.0.0.1");
  EXPECT_EQ(ttl_of_denial(), 5u);
  successor.put(2);
  successor.confirm();
  EXPECT_EQ(a(1), "NXDOMAIN");
  EXPECT_EQ(a(2), "10.0.0.2");
  EXPECT_EQ(ttl_of_denial(), 7u);
  Server other(program_.maps, {.endpoints = {1, 9}}, "tf.local.", 7);
  EXPECT_EQ(a(2), "") << "a cluster that shares no member with the last one";
}

TEST_F(AnswerFeedTest, OfAnotherConfigurationNothingIsGoneOnWith) {
  {
    Server server(program_.maps);
    server.put(1);
    server.confirm();
  }
  Server other(program_.maps, {.names = 3}, "other.local.");
  EXPECT_EQ(a(1), "");
  other.put("w1.other.local.", "10.0.0.7");
  EXPECT_EQ(a("w1.other.local."), "");
  other.confirm();
  EXPECT_EQ(a("w1.other.local."), "10.0.0.7");
  EXPECT_EQ(a("w2.other.local."), "NXDOMAIN");
  EXPECT_EQ(a(1), "");
}

TEST_F(AnswerFeedTest, PointersHaveTheZonesName) {
  const std::string zone = std::string(52, 'z') + ".a.example.";
  ASSERT_EQ(name(zone).size(), size_t{kZoneName});
  Server server(program_.maps, {.names = 3}, zone);
  server.put("w1." + zone, "10.0.0.1");
  server.confirm();
  const Bytes response = ask(queryFor(dns::reverseName(ip("10.0.0.1")), kPtr));
  ASSERT_FALSE(response.empty());
  const dns::Name owner = name("w1." + zone);
  EXPECT_TRUE(std::ranges::equal(std::span(response).last(owner.size()), owner.wire()));

  records::EpochDomain epochs;
  const records::RecordStore longer(epochs,
                                    {.zone = name("z" + zone), .ttl_seconds = 5, .addresses = {}, .hash_seed = 7});
  EXPECT_TRUE(AnswerFeed::isServable(server.store()));
  EXPECT_FALSE(AnswerFeed::isServable(longer));
}

TEST_F(AnswerFeedTest, AClosedOneLeavesNothing) {
  Server server(program_.maps);
  server.put(1);
  server.confirm();
  server.feed().close();
  EXPECT_EQ(a(1), "");
  server.put(2);
  server.confirm();
  EXPECT_EQ(a(2), "");
  size_t left = 0;
  EXPECT_TRUE(maps().names().forEach([&left](const NameKey&, const Name&) { ++left; }));
  EXPECT_TRUE(maps().pointers().forEach([&left](const NameKey&, const Pointer&) { ++left; }));
  EXPECT_EQ(left, 0u);
  EXPECT_EQ(maps().zone(0).identity, 0u);
}

TEST_F(AnswerFeedTest, AnObserverThatComesLateIsToldOfAllThereIs) {
  Server server(program_.maps);
  server.put(1);
  server.confirm();
  server.store().removeObserver(&server.feed());
  server.put(2);
  EXPECT_EQ(a(2), "NXDOMAIN");
  maps().takeOver();
  const auto late = std::make_shared<AnswerFeed>(program_.maps, 0, ZoneIdentity{}, server.store());
  server.store().addObserver(late);
  EXPECT_EQ(a(1), "10.0.0.1");
  EXPECT_EQ(a(2), "10.0.0.2");
  EXPECT_TRUE(hasPointer("10.0.0.2"));
}

TEST_F(AnswerFeedTest, AValueThatWasReadHalfIsPassed) {
  Server server(program_.maps);
  server.put(1);
  server.confirm();
  const auto owner = name("w1.tf.local.");
  const NameKey key = maps().keyOf(0, owner.wire().first(owner.size() - name("tf.local.").size()));
  EXPECT_TRUE(maps().names().forEach([&](const NameKey& other, const Name& value) {
    if (std::memcmp(&other, &key, sizeof(key)) != 0) return;
    Name torn = value;
    torn.ipv4[3] ^= 1;
    EXPECT_EQ(maps().names().put(key, torn), PutOutcome::kDone);
  }));
  EXPECT_EQ(a(1), "");
  EXPECT_EQ(maps().passed()[kPassChanging], 1u);
}

}  // namespace
}  // namespace idetcd::kernel
