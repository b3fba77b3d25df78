#include "directive/hosts/hosts.h"

#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/metric_values.h"
#include "support/query_fixture.h"

namespace idetcd::directive {
namespace {

using std::chrono::milliseconds;

constexpr uint16_t kA = 1;
constexpr uint16_t kSoa = 6;
constexpr uint16_t kPtr = 12;
constexpr uint16_t kMx = 15;
constexpr uint16_t kAaaa = 28;
constexpr uint16_t kAny = 255;

dns::Name name(std::string_view text) { return dns::Name::parse(text).value(); }

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = std::filesystem::temp_directory_path() / "hosts_test.XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::string file(std::string_view base) const { return path_ / base; }

 private:
  std::filesystem::path path_;
};

void write(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::trunc | std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

size_t recordCount(const HostsTable& hosts) {
  size_t count = 0;
  hosts.table().forEach([&count](const records::Entry& entry) {
    entry.visitRecords([&count](dns::RrType, uint32_t, records::Rdata) { ++count; });
  });
  return count;
}

class HostsTest : public testing::Test {
 protected:
  Hosts hosts(std::string_view text, HostsOptions options = {}) {
    if (options.file == "/etc/hosts") options.file = directory_.file("hosts");
    if (!text.empty()) write(options.file, text);
    options.reload = milliseconds(0);
    return Hosts(std::make_shared<const HostsSource>(std::move(options), Message::kSeed, std::make_shared<Executor>(),
                                                     Logger{}));
  }

  static resolve::QueryOutcome ask(const Hosts& hosts, Message& message, const dns::AddressOrder& order = {},
                              size_t limit = 4096) {
    dns::Query query;
    EXPECT_EQ(dns::parseQuery(message.data(), message.size(), Message::kSeed, query), dns::ParseOutcome::kQuery);
    const resolve::QueryOutcome outcome = hosts.answer(query, limit, 0, order);
    if (outcome.kind == resolve::QueryOutcome::Kind::kAnswer) message.setResponse(outcome.size);
    return outcome;
  }

  static bool isPassedOnAsExisting(const Hosts& hosts, std::string_view qname, uint16_t type = kPtr) {
    Message message(std::string(qname), type, 4096);
    return ask(hosts, message).isNextOfExisting();
  }
  // The answer in words: addresses or names, or what else there is.
  static std::string asked(const Hosts& hosts, std::string_view qname, uint16_t type,
                           const dns::AddressOrder& order = {}) {
    Message message(qname, type);
    if (ask(hosts, message, order).isNext()) return "next";
    const std::string rcode = message.rcode() == 0 ? "" : fmt::format("rcode {}", message.rcode());
    if (message.answers() == 0) return rcode.empty() ? "nodata" : rcode;
    std::string text;
    for (const auto& record : message.records()) {
      if (!text.empty()) text += ' ';
      if (record.owner != dns::Name::parse(qname)->toString()) text += "owner " + record.owner + ' ';
      const auto rdata = message.rdata(record);
      if (record.type == kA) text += IpAddress::v4({rdata[0], rdata[1], rdata[2], rdata[3]}).toString();
      if (record.type == kAaaa) {
        std::array<uint8_t, 16> bytes{};
        std::copy(rdata.begin(), rdata.end(), bytes.begin());
        text += IpAddress::v6(bytes).toString();
      }
      size_t pos = record.rdata;
      if (record.type == kPtr) text += message.nameAt(pos);
    }
    return text;
  }

  TemporaryDirectory directory_;
};

TEST_F(HostsTest, ReadsTheFormat) {
  const Hosts all = hosts(
      "\xef\xbb\xbf# a comment\r\n"
      "127.0.0.1\tlocalhost\r\n"
      "   192.0.2.1   Router.example.   ROUTER  gw # behind it\n"
      "192.0.2.2 gw#cut off\n"
      "192.0.2.2 gw\n"
      "2001:db8::1 router.EXAMPLE\n"
      "fe80::1%eth0 link\n"
      "fe80::2%lo link\n"
      "::ffff:192.0.2.3 mapped\n"
      "\n"
      "192.0.2.9\n"
      "192.0.2.300 wrong1\n"
      "192.0.2 wrong2\n"
      "010.0.0.1 wrong3\n"
      "router2 192.0.2.4\n"
      "192.0.2.5 a..b -ok- under_score * " +
      std::string(64, 'x') +
      " behind\n"
      "192.0.2.6 last");
  const struct {
    const char* name;
    uint16_t type;
    const char* answer;
  } cases[] = {
      {"localhost.", kA, "127.0.0.1"},
      {"router.example.", kA, "192.0.2.1"},
      {"ROUTER.example.", kAaaa, "2001:db8::1"},
      {"router.", kA, "192.0.2.1"},
      {"gw.", kA, "192.0.2.1 192.0.2.2"},
      {"gw.", kAaaa, "nodata"},
      {"gw.", kMx, "nodata"},
      {"gw.", 65, "nodata"},
      {"link.", kAaaa, "fe80::1 fe80::2"},
      {"link.", kA, "nodata"},
      {"mapped.", kA, "192.0.2.3"},
      {"mapped.", kAaaa, "nodata"},
      {"wrong1.", kA, "rcode 2"},
      {"wrong2.", kA, "rcode 2"},
      {"wrong3.", kA, "rcode 2"},
      {"router2.", kA, "rcode 2"},
      {"192.0.2.4.", kA, "rcode 2"},
      {"b.", kA, "rcode 2"},
      {"cut.", kA, "rcode 2"},
      {"off.", kA, "rcode 2"},
      {"-ok-.", kA, "192.0.2.5"},
      {"under_score.", kA, "192.0.2.5"},
      {"*.", kA, "192.0.2.5"},
      {"any.", kA, "rcode 2"},
      {"behind.", kA, "192.0.2.5"},
      {"last.", kA, "192.0.2.6"},
      {"example.", kA, "rcode 2"},
      {"x.router.", kA, "rcode 2"},
  };
  for (const auto& c : cases) EXPECT_EQ(asked(all, c.name, c.type), c.answer) << c.name << " " << c.type;
}

TEST_F(HostsTest, NamesAddressesInTheOrderOfTheFile) {
  const Hosts all = hosts(
      "192.0.2.1 zebra Alpha\n"
      "2001:db8::1f zebra\n"
      "192.0.2.1 beta zebra\n"
      "::ffff:192.0.2.1 mapped\n");
  EXPECT_EQ(asked(all, "1.2.0.192.in-addr.arpa.", kPtr), "zebra. alpha. beta. mapped.");
  EXPECT_EQ(asked(all, "F.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.B.D.0.1.0.0.2.ip6.arpa.", kPtr), "zebra.");
  EXPECT_EQ(asked(all, "2.2.0.192.in-addr.arpa.", kPtr), "next") << "as CoreDNS does, whatever fallthrough says";
  EXPECT_EQ(asked(all, "1.2.0.192.in-addr.arpa.", kA), "nodata") << "the name exists";
  EXPECT_EQ(asked(all, "zebra.", kPtr), "nodata");
  EXPECT_EQ(asked(all, "nothing.", kPtr), "next");
}

// RFC 8020 §2.
TEST_F(HostsTest, TheNamesAboveAReverseNameExist) {
  const Hosts all = hosts("192.0.2.1 a\n192.0.20.1 b\n2001:db8::1f c\n::ffff:198.51.100.1 d\n");
  for (const char* above : {"2.0.192.in-addr.arpa.", "192.in-addr.arpa.", "100.51.198.in-addr.arpa.", "2.ip6.arpa.",
                            "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa."}) {
    EXPECT_TRUE(isPassedOnAsExisting(all, above)) << above;
  }
  for (const char* other :
       {"3.0.192.in-addr.arpa.", "02.0.192.in-addr.arpa.", "in-addr.arpa.", "ip6.arpa.", "3.ip6.arpa.",
        "x.192.in-addr.arpa.", "11.2.ip6.arpa.", "256.in-addr.arpa.", "arpa.", "a.example."}) {
    EXPECT_FALSE(isPassedOnAsExisting(all, other)) << other;
  }
  EXPECT_FALSE(isPassedOnAsExisting(hosts("192.0.2.1 a\n", {.no_reverse = true}), "192.in-addr.arpa."));
  EXPECT_FALSE(isPassedOnAsExisting(hosts("192.0.2.1 *.a\n"), "192.in-addr.arpa.")) << "no PTR";
}

TEST_F(HostsTest, NoReverse) {
  const Hosts forward_only = hosts("192.0.2.1 a\n", {.no_reverse = true});
  EXPECT_EQ(asked(forward_only, "a.", kA), "192.0.2.1");
  EXPECT_EQ(asked(forward_only, "1.2.0.192.in-addr.arpa.", kPtr), "next");
  EXPECT_EQ(asked(forward_only, "1.2.0.192.in-addr.arpa.", kA), "rcode 2");
}

TEST_F(HostsTest, ZonesLimitWhatIsHeld) {
  const Hosts some = hosts("192.0.2.1 www.example.org other.test EXAMPLE.org notexample.org\n",
                           {.zones = {name("example.org."), name("sub.test.")}});
  EXPECT_EQ(asked(some, "www.example.org.", kA), "192.0.2.1");
  EXPECT_EQ(asked(some, "example.org.", kA), "192.0.2.1");
  EXPECT_EQ(asked(some, "no.example.org.", kA), "rcode 2");
  EXPECT_EQ(asked(some, "other.test.", kA), "next");
  EXPECT_EQ(asked(some, "notexample.org.", kA), "next");
  EXPECT_EQ(asked(some, "x.sub.test.", kA), "rcode 2");
  EXPECT_EQ(asked(some, "1.2.0.192.in-addr.arpa.", kPtr), "www.example.org. example.org.") << "in no zone of ours";
  EXPECT_EQ(asked(some, "1.2.0.192.in-addr.arpa.", kA), "nodata") << "NXDOMAIN would deny the PTR, too";
  EXPECT_EQ(asked(some, "1.2.0.192.in-addr.arpa.", kAny), "www.example.org. example.org.");
}

TEST_F(HostsTest, FallthroughIsForMissesOnly) {
  const Hosts some = hosts("192.0.2.1 www.example.org\n", {.zones = {}, .fallthrough = {name("example.org.")}});
  EXPECT_EQ(asked(some, "no.example.org.", kA), "next");
  EXPECT_EQ(asked(some, "example.org.", kA), "next");
  EXPECT_EQ(asked(some, "no.example.net.", kA), "rcode 2");
  EXPECT_EQ(asked(some, "www.example.org.", kAaaa), "nodata") << "the name exists";
  EXPECT_EQ(asked(some, "www.example.org.", kMx), "nodata");
}

TEST_F(HostsTest, TypesThatAHostsFileHasNotGoOnByOption) {
  const Hosts some = hosts("192.0.2.1 www.example.org www.example.net\n",
                           {.fallthrough = {name("example.org.")}, .fallthrough_unsupported = true});
  EXPECT_TRUE(isPassedOnAsExisting(some, "www.example.org.", kMx));
  EXPECT_EQ(asked(some, "www.example.org.", kA), "192.0.2.1");
  for (const uint16_t type : {kAaaa, kPtr}) EXPECT_EQ(asked(some, "www.example.org.", type), "nodata") << type;
  EXPECT_EQ(asked(some, "www.example.org.", kAny), "192.0.2.1");
  EXPECT_EQ(asked(some, "www.example.net.", kMx), "nodata") << "where nothing falls through";
}

TEST_F(HostsTest, HitsAreAuthoritativeAndHaveTheTtl) {
  const Hosts all = hosts("192.0.2.1 www\n", {.ttl_seconds = 77});
  Message hit("www.", kA, 1232);
  ask(all, hit);
  EXPECT_TRUE(hit.flag(dns::kFlagAa) && hit.flag(dns::kFlagQr) && hit.flag(dns::kFlagRd));
  EXPECT_EQ(hit.records()[0].ttl, 77u);
  EXPECT_EQ(hit.additionals(), 1) << "OPT";

  Message nodata("www.", kAaaa);
  ask(all, nodata);
  EXPECT_TRUE(nodata.flag(dns::kFlagAa));
  ASSERT_EQ(nodata.authorities(), 1);
  const auto soa = nodata.records()[0];
  EXPECT_EQ(soa.type, kSoa);
  EXPECT_EQ(soa.owner, "www.");
  EXPECT_EQ(soa.ttl, 77u);
  size_t pos = soa.rdata;
  EXPECT_EQ(nodata.nameAt(pos), "www.");
  EXPECT_EQ(nodata.nameAt(pos), "nobody.invalid.");
  EXPECT_EQ(pos + 20, soa.rdata + soa.rdata_size);
  EXPECT_EQ(dns::load32(nodata.data() + pos + 16), 77u);

  Message miss("no.", kA);
  ask(all, miss);
  EXPECT_EQ(miss.rcode(), 2);
  EXPECT_FALSE(miss.flag(dns::kFlagAa));
}

TEST_F(HostsTest, AnyIsAnsweredWithOneRrset) {
  const Hosts all = hosts("192.0.2.1 www\n192.0.2.2 www\n2001:db8::1 www six\n");
  EXPECT_EQ(asked(all, "www.", kAny), "192.0.2.1 192.0.2.2");
  EXPECT_EQ(asked(all, "six.", kAny), "2001:db8::1");
}

TEST_F(HostsTest, RotatesAddressesOnly) {
  const Hosts all = hosts("192.0.2.1 w\n192.0.2.2 w\n192.0.2.3 w\n2001:db8::1 w\n2001:db8::2 w\n192.0.2.1 x\n");
  EXPECT_EQ(asked(all, "w.", kA, {.rotation = 0}), "192.0.2.1 192.0.2.2 192.0.2.3");
  EXPECT_EQ(asked(all, "w.", kA, {.rotation = 1}), "192.0.2.2 192.0.2.3 192.0.2.1");
  EXPECT_EQ(asked(all, "w.", kA, {.rotation = 0xffffffff - 1}), "192.0.2.3 192.0.2.1 192.0.2.2");
  EXPECT_EQ(asked(all, "w.", kAaaa, {.rotation = 3}), "2001:db8::2 2001:db8::1");
  EXPECT_EQ(asked(all, "1.2.0.192.in-addr.arpa.", kPtr, {.rotation = 1}), "w. x.");
}

TEST_F(HostsTest, PreferredNetworksComeFirst) {
  const Hosts all = hosts("192.0.2.1 w\n10.0.0.1 w\n192.0.2.2 w\n2001:db8::1 w\n2001:db8:1::1 w\n");
  const std::vector<IpNetwork> preferred{IpNetwork::parse("10.0.0.0/8").value(),
                                         IpNetwork::parse("2001:db8:1::/48").value(),
                                         IpNetwork::parse("192.0.2.2/32").value()};
  EXPECT_EQ(asked(all, "w.", kA, {.preferred = preferred}), "10.0.0.1 192.0.2.2 192.0.2.1");
  EXPECT_EQ(asked(all, "w.", kA, {.rotation = 2, .preferred = preferred}), "10.0.0.1 192.0.2.2 192.0.2.1");
  EXPECT_EQ(asked(all, "w.", kAaaa, {.rotation = 4, .preferred = preferred}), "2001:db8:1::1 2001:db8::1");
  const std::vector<IpNetwork> both{IpNetwork::parse("192.0.2.0/24").value()};
  EXPECT_EQ(asked(all, "w.", kA, {.preferred = both}), "192.0.2.1 192.0.2.2 10.0.0.1");
  EXPECT_EQ(asked(all, "w.", kA, {.rotation = 2, .preferred = both}), "192.0.2.2 192.0.2.1 10.0.0.1")
      << "rotated among themselves";
}

TEST_F(HostsTest, AWildcardStandsForOneLabelThatIsNotHeld) {
  const Hosts all = hosts("192.0.2.1 *.Example.org\n192.0.2.2 a.example.org\n2001:db8::1 *.example.org\n",
                          {.zones = {name("example.org.")}});
  EXPECT_EQ(asked(all, "apps.EXAMPLE.org.", kA), "192.0.2.1");
  EXPECT_EQ(asked(all, "apps.example.org.", kAaaa), "2001:db8::1");
  EXPECT_EQ(asked(all, "apps.example.org.", kMx), "nodata");
  EXPECT_EQ(asked(all, "*.example.org.", kA), "192.0.2.1") << "as any other label";
  EXPECT_EQ(asked(all, "a.example.org.", kA), "192.0.2.2");
  EXPECT_EQ(asked(all, "a.example.org.", kAaaa), "nodata") << "a name that is held has nothing of the wildcard";
  EXPECT_EQ(asked(all, "example.org.", kA), "rcode 2") << "not the name above";
  EXPECT_EQ(asked(all, "deep.apps.example.org.", kA), "rcode 2") << "not two labels";
  EXPECT_EQ(asked(all, "1.2.0.192.in-addr.arpa.", kPtr), "next") << "no PTR";
  EXPECT_EQ(asked(all, "2.2.0.192.in-addr.arpa.", kPtr), "a.example.org.");
  EXPECT_EQ(asked(all, ".", kA), "next");
}

TEST_F(HostsTest, AnAnswerSaysWhichWildcardItIsFrom) {
  HostsOptions options;
  options.fallthrough_unsupported = true;
  options.fallthrough = {dns::Name()};
  const Hosts all = hosts("192.0.2.1 *.example.org *.example.net\n192.0.2.2 held.example.org\n", options);
  const auto wildcardOf = [&all](std::string_view qname, uint16_t type) {
    Message message(qname, type);
    dns::Query query;
    EXPECT_EQ(dns::parseQuery(message.data(), message.size(), Message::kSeed, query), dns::ParseOutcome::kQuery);
    uint32_t wildcard = 0;
    all.answer(query, 4096, 0, {}, false, &wildcard);
    return wildcard;
  };
  const uint32_t of_org = wildcardOf("a.example.org.", kA);
  EXPECT_NE(of_org, 0u);
  EXPECT_EQ(wildcardOf("b.example.org.", kA), of_org);
  EXPECT_EQ(wildcardOf("b.example.org.", kAaaa), of_org) << "a denial too";
  EXPECT_NE(wildcardOf("a.example.net.", kA), of_org);
  EXPECT_EQ(wildcardOf("held.example.org.", kA), 0u);
  EXPECT_EQ(wildcardOf("a.example.com.", kA), 0u);
  EXPECT_EQ(wildcardOf("a.example.org.", kMx), 0u) << "another directive answers";
}

TEST_F(HostsTest, ALineOfWildcardsAndNamesHasPtrOfTheNames) {
  const Hosts all = hosts("192.0.2.1 *.a b\n");
  EXPECT_EQ(asked(all, "1.2.0.192.in-addr.arpa.", kPtr), "b.");
  EXPECT_EQ(asked(all, "x.a.", kA), "192.0.2.1");
  EXPECT_EQ(asked(all, std::string(63, 'x') + ".a.", kA), "192.0.2.1");
}

TEST_F(HostsTest, TruncatesWhatDoesNotFit) {
  std::string text;
  for (int i = 1; i < 100; ++i) text += fmt::format("192.0.2.{} many\n", i);
  const Hosts all = hosts(text);
  for (const uint32_t rotation : {0u, 1u, 98u}) {
    Message message("many.", kA);
    ask(all, message, {.rotation = rotation}, 512);
    EXPECT_TRUE(message.flag(dns::kFlagTc));
    EXPECT_EQ(message.answers(), 0);
  }
}

TEST_F(HostsTest, InlineLinesComeBehindTheFileAndSayNothingTwice) {
  const Hosts all = hosts("192.0.2.1 a\n", {.inline_lines = {"192.0.2.2 a b", "192.0.2.1 a # same"}});
  EXPECT_EQ(asked(all, "a.", kA), "192.0.2.1 192.0.2.2");
  EXPECT_EQ(asked(all, "b.", kA), "192.0.2.2");
  EXPECT_EQ(asked(all, "1.2.0.192.in-addr.arpa.", kPtr), "a.");
}

TEST_F(HostsTest, WorksWithoutTheFile) {
  for (const std::string& file : {directory_.file("missing"), directory_.file(""), std::string("/dev/zero")}) {
    const Hosts all = hosts("", {.file = file, .inline_lines = {"192.0.2.2 a"}});
    EXPECT_EQ(asked(all, "a.", kA), "192.0.2.2") << file;
    EXPECT_EQ(asked(all, "b.", kA), "rcode 2") << file;
  }
}

TEST_F(HostsTest, HoldsNoMoreOfANameThanAMessageDoes) {
  std::string text;
  for (int i = 0; i < 9000; ++i)
    text += fmt::format("10.0.{}.{} many\n0.0.0.0 blocked{}.example\n", i / 256, i % 256, i);
  for (int i = 0; i < 3000; ++i) text += fmt::format("2001:db8::{:x} many\n", i);
  const std::string_view texts[] = {text};
  const auto table = *HostsTable::build(texts, {.seed = Message::kSeed});
  EXPECT_GT(table->droppedCount(), 0u);
  const auto many = name("many.");
  const auto* entry = table->find(hashBytes(many.data(), many.size(), Message::kSeed), many.wire());
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->find(kA).count, 60000 / 16);
  EXPECT_EQ(entry->find(kAaaa).count, 0);
  const auto zero = name("0.0.0.0.in-addr.arpa.");
  const auto* blocked = table->find(hashBytes(zero.data(), zero.size(), Message::kSeed), zero.wire());
  ASSERT_NE(blocked, nullptr);
  EXPECT_GT(blocked->find(kPtr).count, 1500);
  EXPECT_LE(blocked->find(kPtr).wire.size(), 60000u);
  EXPECT_EQ(recordCount(*table) + table->droppedCount(), 2u * (9000 + 9000 + 3000));
  const auto name_8999 = name("blocked8999.example.");
  EXPECT_NE(table->find(hashBytes(name_8999.data(), name_8999.size(), Message::kSeed), name_8999.wire()), nullptr);
}

TEST(HostsTableTest, HasEachAddressAndNameOnce) {
  const std::string_view texts[] = {"192.0.2.1 a b a\n", "::1 a\n"};
  EXPECT_EQ(recordCount(**HostsTable::build(texts, {})), 6u);
  EXPECT_EQ(recordCount(**HostsTable::build(texts, {.reverse = false})), 3u);
  EXPECT_EQ(recordCount(**HostsTable::build({}, {})), 0u);
}

TEST(HostsTableTest, RefusesMoreNamesThanItHolds) {
  std::string text;
  for (size_t i = 0; i <= HostsTable::kMaxNames / 1000; ++i) {
    text += "::1";
    for (int n = 0; n < 1000; ++n) text += " a";
    text += '\n';
  }
  const std::string_view texts[] = {text};
  const auto table = HostsTable::build(texts, {});
  ASSERT_FALSE(table);
  EXPECT_EQ(table.error().message, "more than 4000000 names");
}

TEST(HostsTableTest, AddressOfALine) {
  EXPECT_EQ(parseHostsAddress("fe80::1%eth0"), IpAddress::parse("fe80::1"));
  EXPECT_EQ(parseHostsAddress("::ffff:192.0.2.1"), IpAddress::parse("192.0.2.1"));
  EXPECT_EQ(parseHostsAddress("::192.0.2.1"), IpAddress::parse("::192.0.2.1"));
  for (const char* text : {"", "%eth0", "ttl", "no-reverse", "1.2.3", "192.0.2.1/24"}) {
    EXPECT_FALSE(parseHostsAddress(text)) << text;
  }
}

// --- the file changes ---

class HostsReloadTest : public HostsTest {
 protected:
  static constexpr std::chrono::seconds kTimeout{20};

  std::shared_ptr<const HostsSource> source(milliseconds reload = milliseconds(5)) {
    HostsOptions options{.file = file_, .inline_lines = {"192.0.2.99 inline"}, .reload = reload};
    return std::make_shared<const HostsSource>(std::move(options), Message::kSeed, std::make_shared<Executor>(),
                                               Logger{});
  }

  // Until the answer is this one: there is no event to wait for, the handler looks at the next query.
  static bool becomes(const Hosts& hosts, std::string_view qname, uint16_t type, std::string_view expected) {
    const auto deadline = std::chrono::steady_clock::now() + kTimeout;
    while (asked(hosts, qname, type) != expected) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }

  const std::string file_ = directory_.file("hosts");
};

TEST_F(HostsReloadTest, NamesAreCounted) {
  write(file_, "192.0.2.1 a b\n192.0.2.2 c\n");
  const metrics::Registry registry;
  const HostsSource source({.file = file_, .inline_lines = {"192.0.2.99 inline"}, .no_reverse = true}, Message::kSeed,
                           std::make_shared<Executor>(), Logger{}, registry.scope());
  EXPECT_EQ(test_support::valuesOf(registry).at("coredns_hosts_entries{hostsfile=\"" + file_ + "\"}"), 4);
}

TEST_F(HostsReloadTest, TheTimeOfTheFileIsShown) {
  constexpr std::string_view kTimestamp = "coredns_hosts_reload_timestamp_seconds";
  const metrics::Registry registry;
  const auto reload = std::make_shared<HostsReload>(registry.scope());
  const auto read = [&] {
    const HostsSource source({.file = file_}, Message::kSeed, std::make_shared<Executor>(), Logger{}, {}, reload);
    return test_support::sumOf(registry, kTimestamp);
  };
  EXPECT_EQ(read(), 0) << "there is no file";
  write(file_, "192.0.2.1 a\n");
  const timespec times[]{{.tv_sec = 1000, .tv_nsec = 500'000'000}, {.tv_sec = 2000, .tv_nsec = 250'000'000}};
  ASSERT_EQ(utimensat(AT_FDCWD, file_.c_str(), times, 0), 0);
  EXPECT_EQ(read(), 2000.25);
}

TEST_F(HostsReloadTest, FollowsTheFile) {
  write(file_, "192.0.2.1 a\n");
  const Hosts hosts(source());
  EXPECT_EQ(asked(hosts, "a.", kA), "192.0.2.1");
  write(file_, "192.0.2.2 a\n");  // the same size, within the same tick of the clock
  EXPECT_TRUE(becomes(hosts, "a.", kA, "192.0.2.2"));
  write(directory_.file("new"), "192.0.2.3 b\n");
  std::filesystem::rename(directory_.file("new"), file_);
  EXPECT_TRUE(becomes(hosts, "b.", kA, "192.0.2.3"));
  EXPECT_EQ(asked(hosts, "a.", kA), "rcode 2");
  EXPECT_EQ(asked(hosts, "inline.", kA), "192.0.2.99");
}

TEST_F(HostsReloadTest, KeepsTheLastOneWhileTheFileIsAway) {
  write(file_, "192.0.2.1 a\n");
  const auto shared = source();
  const Hosts hosts(shared);
  std::filesystem::remove(file_);
  std::filesystem::create_directory(file_);
  std::this_thread::sleep_for(milliseconds(60));  // nothing must happen
  EXPECT_EQ(asked(hosts, "a.", kA), "192.0.2.1");
  EXPECT_EQ(shared->generation(), 1u);
  std::filesystem::remove(file_);
  write(file_, "192.0.2.2 a\n");
  EXPECT_TRUE(becomes(hosts, "a.", kA, "192.0.2.2"));
}

TEST_F(HostsReloadTest, FindsAFileThatComesLater) {
  const Hosts hosts(source());
  EXPECT_EQ(asked(hosts, "inline.", kA), "192.0.2.99");
  write(file_, "192.0.2.1 a\n");
  EXPECT_TRUE(becomes(hosts, "a.", kA, "192.0.2.1"));
}

TEST_F(HostsReloadTest, AFileThatIsTouchedIsTheSameTable) {
  write(file_, "192.0.2.1 a\n");
  const auto shared = source();
  std::filesystem::last_write_time(file_, std::filesystem::last_write_time(file_) + std::chrono::hours(1));
  std::this_thread::sleep_for(milliseconds(60));  // nothing must happen
  EXPECT_EQ(shared->generation(), 1u);
}

TEST_F(HostsReloadTest, ReloadZeroReadsOnce) {
  write(file_, "192.0.2.1 a\n");
  const auto shared = source(milliseconds(0));
  write(file_, "192.0.2.2 a\n");
  std::this_thread::sleep_for(milliseconds(50));  // nothing must happen
  EXPECT_EQ(shared->generation(), 1u);
}

TEST_F(HostsReloadTest, StopsAtOnce) {
  write(file_, "192.0.2.1 a\n");
  const auto start = std::chrono::steady_clock::now();
  { const auto shared = source(std::chrono::hours(1)); }
  EXPECT_LT(std::chrono::steady_clock::now() - start, kTimeout);
}

TEST_F(HostsReloadTest, LoopsAnswerWhileTablesChange) {
  write(file_, "192.0.2.1 a\n");
  const auto shared = source(milliseconds(1));
  std::atomic<bool> done{false};
  std::vector<std::thread> loops;
  for (int i = 0; i < 2; ++i) {
    loops.emplace_back([&] {
      const Hosts hosts(shared);
      while (!done) {
        const std::string answer = asked(hosts, "a.", kA);
        ASSERT_TRUE(answer == "192.0.2.1" || answer == "192.0.2.2") << answer;
      }
    });
  }
  for (int i = 0; i < 10; ++i) {
    write(directory_.file("new"), fmt::format("192.0.2.{} a\n", 2 - i % 2));
    const uint64_t generation = shared->generation();
    std::filesystem::rename(directory_.file("new"), file_);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (shared->generation() == generation && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  }
  done = true;
  for (auto& loop : loops) loop.join();
  EXPECT_GT(shared->generation(), 5u);
}

}  // namespace
}  // namespace idetcd::directive
