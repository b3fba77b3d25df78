#include "zones/zone_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "support/zone_fixture.h"

namespace idetcd::zones {
namespace {

// "name TTL TYPE data" of the answer to a query.
std::vector<std::string> answerOf(const Zone& zone, std::string_view name, uint16_t type) {
  return ask(zone, name, type).answer;
}

using Texts = std::vector<std::string>;

std::string errorOf(std::string_view records) {
  const auto zone = parseZone(std::string(kApexText) + std::string(records));
  return zone ? "" : zone.error().message;
}

TEST(ZoneFile, OwnersTtlsAndClassesAreLeftOutOrInAnyOrder) {
  const auto zone = zoneWith(
      "a 10 IN A 192.0.2.1\nb IN 20 A 192.0.2.2\nc 1m A 192.0.2.3\nd A 192.0.2.4\n IN TXT x\n\n TXT y\nE.EXAMPLE. "
      "CLASS1 A 192.0.2.5\n");
  EXPECT_EQ(answerOf(*zone, "a.example.", 1), Texts{"a.example. 10 A 192.0.2.1"});
  EXPECT_EQ(answerOf(*zone, "b.example.", 1), Texts{"b.example. 20 A 192.0.2.2"});
  EXPECT_EQ(answerOf(*zone, "c.example.", 1), Texts{"c.example. 60 A 192.0.2.3"});
  EXPECT_EQ(answerOf(*zone, "d.example.", 1), Texts{"d.example. 300 A 192.0.2.4"});
  EXPECT_EQ(answerOf(*zone, "d.example.", 16).size(), 2u);
  EXPECT_EQ(answerOf(*zone, "e.example.", 1), Texts{"e.example. 300 A 192.0.2.5"});
}

TEST(ZoneFile, RecordsOfANameMayStandApart) {
  std::string text;
  for (int i = 0; i < 9; ++i) text += fmt::format("www A 192.0.2.{}\nhost{} A 192.0.2.1\n", i, i);
  const auto zone = zoneWith(text + "www TXT x\n");
  const Texts all = answerOf(*zone, "www.example.", 1);
  ASSERT_EQ(all.size(), 9u);
  EXPECT_EQ(all.front(), "www.example. 300 A 192.0.2.0");
  EXPECT_EQ(all.back(), "www.example. 300 A 192.0.2.8");
  EXPECT_EQ(answerOf(*zone, "www.example.", 16).size(), 1u);
  EXPECT_EQ(zone->names(), 12u) << "www, nine hosts, ns, the zone";
}

TEST(ZoneFile, OriginAndTtlChange) {
  const auto zone = zoneWith("$ORIGIN sub\n$TTL 5\na A 192.0.2.1\n@ A 192.0.2.2\n$ORIGIN example.\nb A 192.0.2.3\n");
  EXPECT_EQ(answerOf(*zone, "a.sub.example.", 1), Texts{"a.sub.example. 5 A 192.0.2.1"});
  EXPECT_EQ(answerOf(*zone, "sub.example.", 1), Texts{"sub.example. 5 A 192.0.2.2"});
  EXPECT_EQ(answerOf(*zone, "b.example.", 1), Texts{"b.example. 5 A 192.0.2.3"});
}

TEST(ZoneFile, WithoutTtl) {
  const auto zone = parseZone("@ SOA ns m 1 2 3 4 77\n@ NS ns\na 9 A 192.0.2.1\nb A 192.0.2.2\n");
  ASSERT_TRUE(zone);
  EXPECT_EQ(answerOf(**zone, "example.", 2), Texts{"example. 77 NS ns.example."}) << "the SOA's minimum";
  EXPECT_EQ(answerOf(**zone, "b.example.", 1), Texts{"b.example. 9 A 192.0.2.2"}) << "that of the record before";
  EXPECT_EQ(parseZone("a A 192.0.2.1\n").error().message,
            "db:1: there is no TTL: write $TTL SECONDS before the first record");
}

// BIND, and any client of what Knot sends.
TEST(ZoneFile, ATtlThatIsTooLargeCountsAsZero) {
  const auto zone = zoneWith("a 2147483647 A 192.0.2.1\nb 2147483648 A 192.0.2.2\n$TTL 4294967295\nc A 192.0.2.3\n");
  EXPECT_EQ(answerOf(*zone, "a.example.", 1), Texts{"a.example. 2147483647 A 192.0.2.1"});
  EXPECT_EQ(answerOf(*zone, "b.example.", 1), Texts{"b.example. 0 A 192.0.2.2"});
  EXPECT_EQ(answerOf(*zone, "c.example.", 1), Texts{"c.example. 0 A 192.0.2.3"});
  const auto minimum = parseZone("@ SOA ns m 1 2 3 4 2147483648\n@ NS ns\n");
  ASSERT_TRUE(minimum) << minimum.error().message;
  EXPECT_EQ(answerOf(**minimum, "example.", 2), Texts{"example. 0 NS ns.example."});
  EXPECT_NE(errorOf("a 4294967296 A 192.0.2.1\n").find("'4294967296' is no TTL"), std::string::npos);
}

TEST(ZoneFile, Generate) {
  const auto zone = zoneWith(
      "$GENERATE 1-5/2 h$ A 192.0.2.$\n$GENERATE 9-10 ${0,3,d}.n 7 IN CNAME x${-9,2,x}\\$\n$GENERATE 255-255 ${0,3,n} "
      "PTR a\n");
  EXPECT_EQ(answerOf(*zone, "h1.example.", 1), Texts{"h1.example. 300 A 192.0.2.1"});
  EXPECT_EQ(answerOf(*zone, "h5.example.", 1), Texts{"h5.example. 300 A 192.0.2.5"});
  EXPECT_TRUE(answerOf(*zone, "h2.example.", 1).empty());
  EXPECT_EQ(answerOf(*zone, "009.n.example.", 5), Texts{"009.n.example. 7 CNAME x00$.example."});
  EXPECT_EQ(answerOf(*zone, "010.n.example.", 5), Texts{"010.n.example. 7 CNAME x01$.example."});
  EXPECT_EQ(answerOf(*zone, "f.f.example.", 12), Texts{"f.f.example. 300 PTR a.example."});
  const auto quoted = zoneWith(R"($GENERATE 1-2 m$ MX "0 mail$"
$GENERATE 1-1 t TXT "a $ \"c d\""
$GENERATE 1-1 u TXT "a $" "b"
$GENERATE 1-1 v TXT "a" "b c"
)");
  EXPECT_EQ(answerOf(*quoted, "m2.example.", 15), Texts{"m2.example. 300 MX mail2.example."}) << "as BIND reads it";
  EXPECT_EQ(answerOf(*quoted, "t.example.", 16), Texts{"t.example. 300 TXT 8"}) << "bytes: three strings";
  EXPECT_EQ(answerOf(*quoted, "u.example.", 16), Texts{"u.example. 300 TXT 6"}) << "two, as they were written";
  EXPECT_EQ(answerOf(*quoted, "v.example.", 16), Texts{"v.example. 300 TXT 6"}) << "the first is no type";
  EXPECT_NE(errorOf("$GENERATE 1-2000000 h$ A 192.0.2.1\n").find("db:5: more than 1000000"), std::string::npos);
  EXPECT_NE(errorOf("$GENERATE 2-1 h$ A 192.0.2.1\n").find("no START-STOP"), std::string::npos);
  EXPECT_NE(errorOf("$GENERATE 1-2/0 h$ A 192.0.2.1\n").find("no START-STOP"), std::string::npos);
  EXPECT_NE(errorOf("$GENERATE 1-300 h$ A 192.0.2.$\n").find("'192.0.2.256' is no IPv4 address"), std::string::npos);
}

// What named-checkzone makes of them.
TEST(ZoneFile, GenerateWithNegativeNumbers) {
  const auto zone = zoneWith(
      "$GENERATE 0-2 d${-1} A 192.0.2.1\n$GENERATE 0-0 w${-1,4,d} A 192.0.2.2\n$GENERATE 0-0 x${-3,0,x} A 192.0.2.3\n"
      "$GENERATE 0-0 o${-3,0,o} A 192.0.2.4\n$GENERATE 0-0 ${-3,0,n} A 192.0.2.5\n"
      "$GENERATE 0-0 m${-2147483648} A 192.0.2.6\n$GENERATE 2147483647-2147483647 l$ A 192.0.2.7\n");
  for (const char* name : {"d-1", "d0", "d1", "w-001", "xfffffffd", "o37777777775", "d.f.f.f.f.f.f.f", "m-2147483648",
                           "l2147483647"})
    EXPECT_EQ(answerOf(*zone, fmt::format("{}.example.", name), 1).size(), 1u) << name;
  for (const char* range : {"-1-2", "0--2", "0-2147483648", "2147483648-2147483649", "1-2/-1", "1-2/2147483648"})
    EXPECT_NE(errorOf(fmt::format("$GENERATE {} h$ A 192.0.2.1\n", range)).find("no START-STOP"), std::string::npos) << range;
  for (const char* offset : {"2147483647", "2147483648", "-2147483649", ""})
    EXPECT_NE(errorOf(fmt::format("$GENERATE 1-1 h${{{}}} A 192.0.2.1\n", offset)).find("no template"), std::string::npos)
        << offset;
}

TEST(ZoneFile, IncludesStayInTheFolder) {
  const TemporaryDirectory directory;
  const auto load = [&](std::string_view line) {
    overwrite(directory / "db", std::string(kApexText) + std::string(line) + "\nb A 192.0.2.2\n TXT z\n");
    ZoneBuilder builder(dns::Name::parse("example.").value(), Message::kSeed);
    std::vector<ReadFile> files;
    auto read = readZoneFile(directory / "db", builder, files);
    return read ? builder.build() : Result<std::unique_ptr<const Zone>>(tl::unexpected(read.error()));
  };
  std::filesystem::create_directory(directory / "sub");
  overwrite(directory / "sub/more", "a A 192.0.2.1\n$ORIGIN elsewhere.\n");
  const auto zone = load("$INCLUDE sub/more of");
  ASSERT_TRUE(zone) << zone.error().message;
  EXPECT_EQ(answerOf(**zone, "a.of.example.", 1), Texts{"a.of.example. 300 A 192.0.2.1"});
  EXPECT_EQ(answerOf(**zone, "b.example.", 1), Texts{"b.example. 300 A 192.0.2.2"}) << "the origin is as before";
  EXPECT_TRUE(load("$INCLUDE " + directory / "sub/more"));
  for (const char* outside : {"../db", "/etc/hostname", "sub/../../x"}) {
    const auto refused = load(std::string("$INCLUDE ") + outside);
    ASSERT_FALSE(refused) << outside;
    EXPECT_NE(refused.error().message.find("db:5: '"), std::string::npos) << refused.error().message;
    EXPECT_NE(refused.error().message.find("outside of the zone file's folder"), std::string::npos);
  }
  std::filesystem::create_symlink("/etc/hostname", directory / "link");
  EXPECT_FALSE(load("$INCLUDE link")) << "not by a link either";
  EXPECT_TRUE(load("$INCLUDE missing/../sub/more")) << "what was checked is what is read";
  const auto missing = load("$INCLUDE nothing");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("db:5: "), std::string::npos) << missing.error().message;
  EXPECT_EQ(missing.error().code, ErrorCode::kOther) << "the zone's own file is there";
  overwrite(directory / "sub/more", "$INCLUDE more\n");
  EXPECT_FALSE(load("$INCLUDE sub/more")) << "itself, for ever";
  overwrite(directory / "sub/more", "\nb A x\n");
  EXPECT_NE(load("$INCLUDE sub/more").error().message.find("sub/more:2: 'x' is no IPv4 address"), std::string::npos);
}

// The files can be opened by way of a descriptor, but the path of the folder is longer than the system can tell.
TEST(ZoneFile, AFolderWithoutAPathIncludesNothing) {
  const TemporaryDirectory directory;
  std::vector<FileDescriptor> folders;
  folders.emplace_back(open(directory.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::string long_name(200, 'x');
  for (int depth = 0; depth < 25; ++depth) {
    const int above = folders.back().get();
    ASSERT_EQ(mkdirat(above, long_name.c_str(), 0700), 0);
    folders.emplace_back(openat(above, long_name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(folders.back().isOpen());
  }
  overwrite(directory / "outside", "a A 192.0.2.1\n");
  const std::string file = fmt::format("/proc/self/fd/{}/db", folders.back().get());
  overwrite(file, std::string(kApexText) + "$INCLUDE " + directory / "outside" + "\n");
  ZoneBuilder builder(dns::Name::parse("example.").value(), Message::kSeed);
  std::vector<ReadFile> files;
  const auto read = readZoneFile(file, builder, files);
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("db:5: '"), std::string::npos) << read.error().message;
  EXPECT_NE(read.error().message.find("outside of the zone file's folder"), std::string::npos);
}

TEST(ZoneFile, ErrorsSayFileLineAndWhatIsWrong) {
  EXPECT_EQ(errorOf("\na A 192.0.2.300\n"), "db:6: '192.0.2.300' is no IPv4 address");
  EXPECT_EQ(errorOf("a NOSUCH x\n"), "db:5: unknown type 'NOSUCH'");
  EXPECT_EQ(errorOf("a 300\n"), "db:5: a record without a type");
  EXPECT_EQ(errorOf("a CH TXT x\n"), "db:5: class CH: there is only IN");
  EXPECT_EQ(errorOf("a 1y A 192.0.2.1\n"), "db:5: '1y' is no TTL");
  EXPECT_EQ(errorOf("a AXFR x\n"), "db:5: type AXFR is not for zones");
  EXPECT_EQ(errorOf("$NOSUCH x\n"), "db:5: unknown '$NOSUCH'");
  EXPECT_EQ(errorOf("$TTL x\n"), "db:5: write: $TTL SECONDS, like 3600 or 1h");
  EXPECT_EQ(errorOf("a TXT (x\n"), "db:5: a '(' without a ')'");
  EXPECT_EQ(parseZone(" A 192.0.2.1\n").error().message, "db:1: the first record has no owner");
  ZoneBuilder builder(dns::Name(), 0);
  std::vector<ReadFile> files;
  const auto missing = readZoneFile("/nonexistent/db", builder, files);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(missing.error().message.starts_with("/nonexistent/db: ")) << missing.error().message;
}

TEST(ZoneFile, ZonesThatAreRefused) {
  EXPECT_EQ(errorOf("a CNAME b\na A 192.0.2.1\n"), "db:6: a.example. has a CNAME and other records");
  EXPECT_EQ(errorOf("a CNAME b\na CNAME c\n"), "db:6: a.example. has two CNAME records");
  EXPECT_EQ(errorOf("a DNAME b\na DNAME c\n"), "db:6: a.example. has two DNAME records");
  EXPECT_EQ(errorOf("a SOA b c 1 2 3 4 5\n"), "db:5: a.example. has a SOA, but is not the zone's name");
  EXPECT_EQ(errorOf("@ SOA b c 1 2 3 4 5\n"), "db:5: example. has two SOA records");
  EXPECT_NE(parseZone("$TTL 1\n@ NS a\n").error().message.find("example. has no SOA record"), std::string::npos);
  EXPECT_NE(parseZone("").error().message.find("no SOA record"), std::string::npos);
  std::string many;
  for (int i = 0; i < 300; ++i)
    many += "a TXT " + std::string(250, static_cast<char>('a' + i % 26)) + std::to_string(i) + "\n";
  EXPECT_NE(errorOf(many).find("a.example. has more than 60000 bytes of records"), std::string::npos);
}

TEST(ZoneFile, AZoneHasABoundOnItsNames) {
  const TemporaryDirectory directory;
  overwrite(directory / "db", std::string(kApexText) + "$GENERATE 1-2 h$ A 192.0.2.$\n$GENERATE 1-2 a.$.b TXT x\n");
  const auto errorWithin = [&](ZoneBuilder::Limits limits) {
    ZoneBuilder builder(dns::Name::parse("example.").value(), Message::kSeed, limits);
    std::vector<ReadFile> files;
    auto read = readZoneFile(directory / "db", builder, files);
    if (const auto zone = read ? builder.build() : tl::unexpected(read.error()); !zone) return zone.error().message;
    return std::string();
  };
  EXPECT_EQ(errorWithin({.records = 7, .non_terminals = 3}), "");
  EXPECT_EQ(errorWithin({.records = 6}), directory / "db:6: the zone has more than 6 records");
  EXPECT_EQ(errorWithin({.non_terminals = 2}),
            directory / "db:6: a.2.b.example. brings the zone to more than 2 names without records");
}

TEST(ZoneFile, ANameHasAtMost255Types) {
  std::string records = "a DNAME b\n";
  for (int type = 1000; type < 1254; ++type) records += fmt::format("a TYPE{} \\# 1 00\n", type);
  const auto zone = zoneWith(records);
  EXPECT_EQ(answerOf(*zone, "x.a.example.", 1),
            (Texts{"a.example. 300 DNAME b.example.", "x.a.example. 300 CNAME x.b.example."}));
  EXPECT_EQ(errorOf(records + "a TYPE1254 \\# 1 00\n"), "db:260: a.example. has more than 255 types");
}

TEST(ZoneFile, AZoneWithoutNsIsTaken) {
  const auto zone = parseZone("$TTL 1\n@ SOA b c 1 2 3 4 5\na A 192.0.2.1\n");
  ASSERT_TRUE(zone);
  EXPECT_EQ(answerOf(**zone, "a.example.", 1), Texts{"a.example. 1 A 192.0.2.1"});
  EXPECT_EQ(answerOf(**zone, "example.", 2), Texts{});
}

TEST(ZoneFile, RecordsThatAreTakenOrLeftOut) {
  const auto zone =
      zoneWith("a A 192.0.2.1\na 7 A 192.0.2.1\nA 9 A 192.0.2.2\nelsewhere. A 192.0.2.3\nb CNAME c\nb CNAME C\n");
  EXPECT_EQ(answerOf(*zone, "a.example.", 1), (Texts{"a.example. 300 A 192.0.2.1", "a.example. 300 A 192.0.2.2"}))
      << "one TTL for all, and no doubles";
  EXPECT_EQ(zone->outOfZoneCount(), 1u);
  EXPECT_EQ(zone->serial(), 7u);
  EXPECT_EQ(zone->recordCount(), 3u + 2 + 1);
}

}  // namespace
}  // namespace idetcd::zones
