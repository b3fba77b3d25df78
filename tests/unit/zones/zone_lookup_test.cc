#include "zones/zone_lookup.h"

#include "support/zone_fixture.h"

namespace idetcd::zones {
namespace {

using Texts = std::vector<std::string>;

constexpr uint16_t kA = 1;
constexpr uint16_t kNs = 2;
constexpr uint16_t kCname = 5;
constexpr uint16_t kSoa = 6;
constexpr uint16_t kMx = 15;
constexpr uint16_t kTxt = 16;
constexpr uint16_t kAaaa = 28;
constexpr uint16_t kSrv = 33;
constexpr uint16_t kDname = 39;
constexpr uint16_t kDs = 43;
constexpr uint16_t kAny = 255;

const Texts kSoaOnly{"example. 60 SOA 47"};

// NOERROR or NXDOMAIN with the SOA, and nothing else.
testing::AssertionResult denies(const Reply& reply, std::string_view head) {
  const bool soa = reply.authority.size() == 1 && reply.authority.front().find(" 60 SOA ") != std::string::npos;
  if (reply.head == head && reply.answer.empty() && soa && reply.additional.empty()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << reply.head << ": " << reply.answer.size() << " answers, authority "
                                     << (reply.authority.empty() ? "" : reply.authority.front());
}
testing::AssertionResult isNoData(const Reply& reply) { return denies(reply, "NOERROR aa"); }
testing::AssertionResult isNoName(const Reply& reply) { return denies(reply, "NXDOMAIN aa"); }

TEST(ZoneLookup, HeldNamesAndTypes) {
  const auto zone = zoneWith("a A 192.0.2.1\na A 192.0.2.2\nb.c.d A 192.0.2.3\n");
  const Reply hit = ask(*zone, "a.example.", kA);
  EXPECT_EQ(hit.head, "NOERROR aa");
  EXPECT_EQ(hit.answer, (Texts{"a.example. 300 A 192.0.2.1", "a.example. 300 A 192.0.2.2"}));
  EXPECT_TRUE(hit.authority.empty() && hit.additional.empty());
  EXPECT_TRUE(isNoData(ask(*zone, "a.example.", kAaaa)));
  EXPECT_TRUE(isNoData(ask(*zone, "c.d.example.", kA))) << "an empty non-terminal";
  EXPECT_TRUE(isNoData(ask(*zone, "example.", kTxt)));
  EXPECT_TRUE(isNoName(ask(*zone, "x.example.", kA)));
  EXPECT_TRUE(isNoName(ask(*zone, "x.a.example.", kA)));
  EXPECT_EQ(ask(*zone, "example.", kSoa).answer.size(), 1u);
}

TEST(ZoneLookup, TheNegativeTtlIsTheSmallerOne) {
  const auto zone = parseZone("$TTL 30\n@ SOA ns m 1 2 3 4 3600\n@ NS ns\n");
  ASSERT_TRUE(zone);
  EXPECT_EQ(ask(**zone, "x.example.", kA).authority.front().substr(0, 16), "example. 30 SOA ");
  EXPECT_EQ(ask(**zone, "example.", kSoa).answer.front().substr(0, 16), "example. 30 SOA ");
}

TEST(ZoneLookup, Wildcards) {
  const auto zone = zoneWith("* A 192.0.2.1\n* MX 1 ns\nhost TXT x\nb.ent TXT x\n*.w CNAME host\na.*.l TXT x\n");
  EXPECT_EQ(ask(*zone, "any.example.", kA).answer, Texts{"any.example. 300 A 192.0.2.1"});
  EXPECT_EQ(ask(*zone, "a.b.any.example.", kA).answer, Texts{"a.b.any.example. 300 A 192.0.2.1"})
      << "for more labels too";
  EXPECT_EQ(ask(*zone, "*.example.", kA).answer, Texts{"*.example. 300 A 192.0.2.1"});
  EXPECT_TRUE(isNoData(ask(*zone, "any.example.", kAaaa)));
  EXPECT_TRUE(isNoData(ask(*zone, "host.example.", kA))) << "a name that exists is none of the wildcard's";
  EXPECT_TRUE(isNoName(ask(*zone, "x.host.example.", kA))) << "nor what is below it";
  EXPECT_TRUE(isNoData(ask(*zone, "ent.example.", kA))) << "nor an empty non-terminal";
  EXPECT_TRUE(isNoName(ask(*zone, "x.ent.example.", kA)));
  EXPECT_TRUE(isNoName(ask(*zone, "x.*.example.", kA))) << "the wildcard's own name exists";
  EXPECT_TRUE(isNoData(ask(*zone, "x.l.example.", kA))) << "a wildcard that only has others below it";
  const Reply alias = ask(*zone, "q.w.example.", kTxt);
  EXPECT_EQ(alias.answer, (Texts{"q.w.example. 300 CNAME host.example.", "host.example. 300 TXT 2"}));
}

TEST(ZoneLookup, AliasesAreFollowedWithinTheZone) {
  const auto zone = zoneWith(
      "a CNAME b\nb CNAME c\nc A 192.0.2.1\nout CNAME elsewhere.\nno CNAME nothing\nself CNAME self\nl1 CNAME l2\nl2 "
      "CNAME l1\nnd CNAME c\n*.w CNAME x.w\n");
  EXPECT_EQ(
      ask(*zone, "a.example.", kA).answer,
      (Texts{"a.example. 300 CNAME b.example.", "b.example. 300 CNAME c.example.", "c.example. 300 A 192.0.2.1"}));
  EXPECT_EQ(ask(*zone, "a.example.", kCname).answer, Texts{"a.example. 300 CNAME b.example."});
  EXPECT_EQ(ask(*zone, "a.example.", kAny).answer, Texts{"a.example. 300 CNAME b.example."});
  const Reply out = ask(*zone, "out.example.", kA);
  EXPECT_EQ(out.head, "NOERROR aa");
  EXPECT_EQ(out.answer, Texts{"out.example. 300 CNAME elsewhere."});
  EXPECT_TRUE(out.authority.empty());
  const Reply missing = ask(*zone, "no.example.", kA);
  EXPECT_EQ(missing.head, "NXDOMAIN aa") << "RFC 6604";
  EXPECT_EQ(missing.answer, Texts{"no.example. 300 CNAME nothing.example."});
  EXPECT_EQ(missing.authority.size(), 1u);
  const Reply no_data = ask(*zone, "nd.example.", kAaaa);
  EXPECT_EQ(no_data.head, "NOERROR aa");
  EXPECT_EQ(no_data.answer.size(), 1u);
  EXPECT_EQ(no_data.authority.size(), 1u);
  EXPECT_EQ(ask(*zone, "self.example.", kA).answer, Texts{"self.example. 300 CNAME self.example."});
  EXPECT_EQ(ask(*zone, "l1.example.", kA).answer.size(), 2u);
  EXPECT_EQ(ask(*zone, "q.w.example.", kA).answer,
            (Texts{"q.w.example. 300 CNAME x.w.example.", "x.w.example. 300 CNAME x.w.example."}));
}

TEST(ZoneLookup, AliasesIntoADelegationEndInAReferral) {
  const auto zone = zoneWith("a CNAME x.sub\nsub NS ns.sub\nns.sub A 192.0.2.2\n");
  const Reply reply = ask(*zone, "a.example.", kA);
  EXPECT_EQ(reply.head, "NOERROR aa");
  EXPECT_EQ(reply.answer, Texts{"a.example. 300 CNAME x.sub.example."});
  EXPECT_EQ(reply.authority, Texts{"sub.example. 300 NS ns.sub.example."});
  EXPECT_EQ(reply.additional, Texts{"ns.sub.example. 300 A 192.0.2.2"});
}

TEST(ZoneLookup, NamesBelowADname) {
  const auto zone = zoneWith("d 20 DNAME t\na.t A 192.0.2.1\nhidden.d A 192.0.2.9\nout DNAME elsewhere.\nd TXT x\n");
  const Reply reply = ask(*zone, "a.d.example.", kA);
  EXPECT_EQ(reply.head, "NOERROR aa");
  EXPECT_EQ(reply.answer, (Texts{"d.example. 20 DNAME t.example.", "a.d.example. 20 CNAME a.t.example.",
                                 "a.t.example. 300 A 192.0.2.1"}));
  EXPECT_EQ(ask(*zone, "d.example.", kDname).answer, Texts{"d.example. 20 DNAME t.example."});
  EXPECT_EQ(ask(*zone, "d.example.", kTxt).answer.size(), 1u) << "its own name is as any other";
  EXPECT_TRUE(isNoData(ask(*zone, "d.example.", kA)));
  EXPECT_EQ(ask(*zone, "hidden.d.example.", kA).head, "NXDOMAIN aa") << "what is below is hidden";
  EXPECT_EQ(ask(*zone, "x.out.example.", kA).answer,
            (Texts{"out.example. 300 DNAME elsewhere.", "x.out.example. 300 CNAME x.elsewhere."}));
}

TEST(ZoneLookup, ADnameIsInAnAnswerOnce) {
  const auto zone = zoneWith("self DNAME self\nd DNAME a.d\n");
  EXPECT_EQ(ask(*zone, "x.self.example.", kA).answer,
            (Texts{"self.example. 300 DNAME self.example.", "x.self.example. 300 CNAME x.self.example."}));
  const Texts longer = ask(*zone, "x.d.example.", kA).answer;
  EXPECT_EQ(longer.size(), 1 + kMaxChain + 1);
  EXPECT_EQ(longer[2], "x.a.d.example. 300 CNAME x.a.a.d.example.");
}

TEST(ZoneLookup, ADnameWithoutRoom) {
  std::string target;
  for (int i = 0; i < 3; ++i) target += std::string(60, 'a') + ".";
  const auto zone = zoneWith("d DNAME " + target + std::string(50, 'b') + ".\n");
  const Reply reply = ask(*zone, "0123456789012345678901.d.example.", kA);
  EXPECT_EQ(reply.head, "YXDOMAIN aa");
  EXPECT_EQ(reply.answer.size(), 1u);
  EXPECT_EQ(ask(*zone, "x.d.example.", kA).head, "NOERROR aa");
}

TEST(ZoneLookup, Delegations) {
  const auto zone = zoneWith(
      "sub NS ns.sub\nsub NS ns.other\nsub NS ns.elsewhere.\nns.sub A 192.0.2.1\nns.sub AAAA ::1\nother NS "
      "ns.other\nns.other A 192.0.2.2\nsub TXT x\nsub DS 1 8 2 00\nx.y.sub A 192.0.2.3\n");
  for (const char* name :
       {"sub.example.", "www.sub.example.", "x.y.sub.example.", "ns.sub.example.", "z.y.sub.example."}) {
    const Reply reply = ask(*zone, name, kA);
    EXPECT_EQ(reply.head, "NOERROR") << name;
    EXPECT_TRUE(reply.answer.empty()) << name;
    EXPECT_EQ(reply.authority, (Texts{"sub.example. 300 NS ns.sub.example.", "sub.example. 300 NS ns.other.example.",
                                      "sub.example. 300 NS ns.elsewhere."}));
    EXPECT_EQ(reply.additional, (Texts{"ns.sub.example. 300 A 192.0.2.1", "ns.sub.example. 300 AAAA 16",
                                       "ns.other.example. 300 A 192.0.2.2"}));
  }
  EXPECT_EQ(ask(*zone, "sub.example.", kTxt).head, "NOERROR") << "data beside NS are not this zone's";
  EXPECT_EQ(ask(*zone, "sub.example.", kNs).head, "NOERROR");
  const Reply ds = ask(*zone, "sub.example.", kDs);
  EXPECT_EQ(ds.head, "NOERROR aa");
  EXPECT_EQ(ds.answer.size(), 1u);
  EXPECT_TRUE(isNoData(ask(*zone, "other.example.", kDs)));
  EXPECT_EQ(ask(*zone, "x.sub.example.", kDs).head, "NOERROR") << "below it DS is as any type";
  EXPECT_EQ(ask(*zone, "example.", kDs).head, "parent's");
}

TEST(ZoneLookup, GlueThatDoesNotFitTruncates) {
  std::string text;
  for (int i = 0; i < 20; ++i)
    text += fmt::format("sub NS ns{0}.sub\nns{0}.sub A 192.0.2.{0}\nfar NS ns{0}.else\nns{0}.else AAAA ::{0}\n", i);
  const auto zone = zoneWith(text);
  EXPECT_EQ(ask(*zone, "x.sub.example.", kA, false, 512).head, "NOERROR tc") << "RFC 9471";
  const Reply far = ask(*zone, "x.far.example.", kA, false, 512);
  EXPECT_EQ(far.head, "NOERROR");
  EXPECT_LT(far.additional.size(), 20u);
}

TEST(ZoneLookup, AReferralHasTheAddressesOfAllServersBelowIt) {
  constexpr size_t kServers = 50;
  const auto zone = zoneWith("$GENERATE 1-50 sub NS n$.sub\n$GENERATE 1-50 n$.sub A 192.0.2.$\n");
  const Reply all = ask(*zone, "x.sub.example.", kA);
  EXPECT_EQ(all.head, "NOERROR");
  EXPECT_EQ(all.authority.size(), kServers);
  EXPECT_EQ(all.additional.size(), kServers);
  EXPECT_EQ(ask(*zone, "x.sub.example.", kA, false, all.size - 1).head, "NOERROR tc");
}

TEST(ZoneLookup, ManyTargetsHaveTheirAddresses) {
  constexpr size_t kTargets = 60;
  const auto zone = zoneWith("$GENERATE 1-60 _s._tcp SRV 0 0 5 h$\n$GENERATE 1-60 h$ A 192.0.2.$\n");
  const Reply all = ask(*zone, "_s._tcp.example.", kSrv);
  EXPECT_EQ(all.head, "NOERROR aa");
  EXPECT_EQ(all.answer.size(), kTargets);
  EXPECT_EQ(all.additional.size(), kTargets);
  const Reply most = ask(*zone, "_s._tcp.example.", kSrv, false, all.size - 1);
  EXPECT_EQ(most.head, "NOERROR aa") << "addresses of targets are not needed";
  EXPECT_EQ(most.additional.size(), kTargets - 1);
}

TEST(ZoneLookup, AddressesOfTargets) {
  const auto zone = zoneWith(
      "m MX 1 h\nm MX 2 h\nm MX 3 elsewhere.\nh A 192.0.2.1\nh AAAA ::1\n_s._tcp SRV 0 0 5 H\n*.w A 192.0.2.7\nmw MX 1 "
      "a.w\n");
  const Texts addresses{"h.example. 300 A 192.0.2.1", "h.example. 300 AAAA 16"};
  EXPECT_EQ(ask(*zone, "m.example.", kMx).additional, addresses);
  EXPECT_EQ(ask(*zone, "_s._tcp.example.", kSrv).additional, addresses);
  EXPECT_EQ(ask(*zone, "example.", kNs).additional, Texts{"ns.example. 300 A 192.0.2.53"});
  EXPECT_EQ(ask(*zone, "mw.example.", kMx).additional, Texts{"a.w.example. 300 A 192.0.2.7"});
}

TEST(ZoneLookup, AnyIsAllThatTheNameHas) {
  const auto zone = zoneWith("a A 192.0.2.1\na TXT x\na MX 1 a\n");
  const Reply reply = ask(*zone, "a.example.", kAny);
  EXPECT_EQ(reply.answer.size(), 3u);
  EXPECT_TRUE(reply.additional.empty()) << "the addresses are there already";
}

TEST(ZoneLookup, WhatDoesNotFitIsTruncated) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += fmt::format("a A 192.0.2.{0}\nm MX {0} host{0}\n", i);
  const auto zone = zoneWith(text);
  for (const auto& [name, type] : {std::pair("a.example.", kA), std::pair("m.example.", kMx)}) {
    const Reply cut = ask(*zone, name, type, false, 512);
    EXPECT_EQ(cut.head, "NOERROR aa tc");
    EXPECT_TRUE(cut.answer.empty());
    EXPECT_EQ(ask(*zone, name, type).answer.size(), 100u);
  }
}

TEST(ZoneLookup, NamesAreCompressed) {
  const auto zone = zoneWith("m MX 1 mail.long-label-of-a-host\nm MX 2 mail2.long-label-of-a-host\n");
  const Reply reply = ask(*zone, "m.example.", kMx);
  ASSERT_EQ(reply.answer, (Texts{"m.example. 300 MX mail.long-label-of-a-host.example.",
                                 "m.example. 300 MX mail2.long-label-of-a-host.example."}));
  // Question 15, header 12, OPT 11; records: pointer, fixed part, preference; the first with two labels, the second with one.
  EXPECT_EQ(reply.size, 12u + 15 + 11 + 2 * (2 + 10 + 2) + (5 + 21 + 2) + (6 + 2));
}

TEST(ZoneLookup, ChainsOfPointersAreShort) {
  const auto zone = zoneWith("d DNAME a.d\n");
  Message message("x.d.example.", kA, 4096);
  dns::Query query;
  ASSERT_EQ(dns::parseQuery(message.data(), message.size(), Message::kSeed, query), dns::ParseOutcome::kQuery);
  const size_t size = lookUp(*zone, query, 4096, 0, false).size;
  size_t longest = 0;
  for (size_t pos = dns::kHeaderSize; pos < size; ++pos) {
    size_t jumps = 0;
    for (size_t at = pos; at < size && message.data()[at] == 0xc0; ++jumps) {
      at = message.data()[at + 1];
      while (message.data()[at] != 0 && message.data()[at] < 0xc0) at += message.data()[at] + 1u;
    }
    longest = std::max(longest, jumps);
  }
  EXPECT_GT(longest, 1u);
  EXPECT_LE(longest, 10u);
}

TEST(ZoneLookup, MissingNamesArePassedOnWhereThatIsWanted) {
  const auto zone = zoneWith("a CNAME nothing\n*.w TXT x\n");
  EXPECT_EQ(ask(*zone, "x.example.", kA, false, 4096, true).head, "no name");
  EXPECT_EQ(ask(*zone, "x.w.example.", kA, false, 4096, true).head, "NOERROR aa");
  EXPECT_EQ(ask(*zone, "a.example.", kA, false, 4096, true).head, "NXDOMAIN aa") << "part of the answer is there";
}

// --- signed zones: signatures are three bytes here, nothing checks them ---

std::string sign(std::string_view name, std::string_view type) {
  return fmt::format("{} RRSIG {} 8 1 300 20300101000000 20200101000000 1 example. AQID\n", name, type);
}

std::unique_ptr<const Zone> nsecZone() {
  return zoneWith("@ NSEC a NS SOA RRSIG NSEC\n" + sign("@", "SOA") + sign("@", "NS") + sign("@", "NSEC") +  //
                  "a A 192.0.2.1\na NSEC sub A\n" + sign("a", "A") + sign("a", "NSEC") +                     //
                  "sub NS ns.sub\nns.sub A 192.0.2.2\nsub NSEC t.w NS\n" + sign("sub", "NSEC") +             //
                  "t.w TXT x\nt.w NSEC *.z TXT\n" + sign("t.w", "TXT") + sign("t.w", "NSEC") +               //
                  "*.z A 192.0.2.3\n*.z NSEC @ A\n" + sign("*.z", "A") + sign("*.z", "NSEC"));
}

Texts ownersOf(const Texts& records, std::string_view type) {
  Texts owners;
  for (const std::string& record : records) {
    const size_t end = record.find(' ');
    const size_t at = record.find(' ', end + 1) + 1;
    if (record.substr(at, record.find(' ', at) - at) == type) owners.push_back(record.substr(0, end));
  }
  return owners;
}

TEST(ZoneLookup, SignaturesWithDo) {
  const auto zone = nsecZone();
  EXPECT_EQ(ask(*zone, "a.example.", kA, true).answer, (Texts{"a.example. 300 A 192.0.2.1", "a.example. 300 RRSIG A"}));
  EXPECT_EQ(ask(*zone, "a.example.", kA).answer.size(), 1u);
  EXPECT_EQ(ownersOf(ask(*zone, "x.example.", kA).authority, "NSEC"), Texts{});
}

TEST(ZoneLookup, NsecProofs) {
  const auto zone = nsecZone();
  const auto proofs = [&](std::string_view name, uint16_t type) {
    const Reply reply = ask(*zone, name, type, true);
    EXPECT_EQ(ownersOf(reply.authority, "RRSIG").size(),
              reply.authority.size() - ownersOf(reply.authority, "RRSIG").size() - (reply.head == "NOERROR" ? 1 : 0))
        << name;
    return ownersOf(reply.authority, "NSEC");
  };
  EXPECT_EQ(proofs("b.example.", kA), (Texts{"a.example.", "example."})) << "the name, and the wildcard";
  EXPECT_EQ(proofs("a.example.", kTxt), Texts{"a.example."});
  EXPECT_EQ(proofs("w.example.", kTxt), Texts{"sub.example."}) << "an empty non-terminal has none of its own";
  EXPECT_EQ(proofs("q.z.example.", kA), Texts{"*.z.example."});
  EXPECT_EQ(proofs("q.z.example.", kTxt), Texts{"*.z.example."});
  EXPECT_EQ(proofs("x.sub.example.", kA), Texts{"sub.example."}) << "no DS";
  EXPECT_EQ(proofs("sub.example.", kDs), Texts{"sub.example."});
}

// NSEC3 records of these names, with a salt of one byte or none, and opt-out.
class Nsec3Chain {
 public:
  explicit Nsec3Chain(std::initializer_list<std::string_view> names, std::optional<uint8_t> salt = std::nullopt)
      : salt_(salt) {
    for (const std::string_view name : names) labels_.push_back(hashed(name));
    std::ranges::sort(labels_);
  }
  std::string saltText() const { return salt_ ? fmt::format("{:02x}", *salt_) : "-"; }
  std::string text() const {
    std::string text;
    for (size_t i = 0; i < labels_.size(); ++i)
      text += fmt::format("{} NSEC3 1 1 0 {} {} A\n", labels_[i], saltText(), labels_[(i + 1) % labels_.size()]);
    return text;
  }
  // The owners of the records that match and cover a name.
  std::string match(std::string_view name) const { return hashed(name) + ".example."; }
  std::string cover(std::string_view name) const {
    const auto after = std::ranges::upper_bound(labels_, hashed(name));
    return (after == labels_.begin() ? labels_.back() : *std::prev(after)) + ".example.";
  }

 private:
  std::string hashed(std::string_view name) const {
    const std::vector<uint8_t> salt(salt_ ? 1 : 0, salt_.value_or(0));
    const auto hash = hashNsec3(dns::Name::parse(name).value().wire(), {.iterations = 0, .salt = salt});
    std::string label;
    for (size_t bit = 0; bit < 160; bit += 5) {
      const unsigned pair = hash.at(bit / 8) << 8 | (bit / 8 + 1 < hash.size() ? hash.at(bit / 8 + 1) : 0);
      label += "0123456789abcdefghijklmnopqrstuv"[pair >> (11 - bit % 8) & 31];
    }
    return label;
  }

  const std::optional<uint8_t> salt_;
  std::vector<std::string> labels_;
};

Texts nsec3Proofs(const Zone& zone, std::string_view name, uint16_t type) {
  auto owners = ownersOf(ask(zone, name, type, true).authority, "NSEC3");
  std::ranges::sort(owners);
  return owners;
}

Texts setOf(Texts texts) {
  std::ranges::sort(texts);
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return texts;
}

TEST(ZoneLookup, Nsec3Proofs) {
  const Nsec3Chain chain{"example.", "ns.example.", "a.example.", "*.w.example.", "w.example.", "sec.example."};
  const auto zone = zoneWith("@ NSEC3PARAM 1 0 0 -\na A 192.0.2.1\n*.w TXT x\nsec NS ns\nsec DS 1 8 2 00\nopt NS ns\n" +
                             chain.text());
  ASSERT_EQ(zone->denial().kind(), Denial::Kind::kNsec3);
  const auto proofs = [&](std::string_view name, uint16_t type) { return nsec3Proofs(*zone, name, type); };
  const auto match = [&](std::string_view name) { return chain.match(name); };
  const auto cover = [&](std::string_view name) { return chain.cover(name); };
  EXPECT_EQ(proofs("a.example.", kTxt), Texts{match("a.example.")});
  EXPECT_EQ(proofs("x.y.example.", kA), setOf({match("example."), cover("y.example."), cover("*.example.")}));
  EXPECT_EQ(proofs("q.w.example.", kTxt), setOf({cover("q.w.example.")}));
  EXPECT_EQ(proofs("q.w.example.", kA), setOf({match("w.example."), cover("q.w.example."), match("*.w.example.")}));
  EXPECT_EQ(proofs("x.sec.example.", kA), Texts{}) << "DS says enough";
  EXPECT_EQ(proofs("x.opt.example.", kA), setOf({match("example."), cover("opt.example.")})) << "opt-out";
  EXPECT_EQ(proofs("opt.example.", kDs), setOf({match("example."), cover("opt.example.")}));
  EXPECT_TRUE(ask(*zone, match("a.example."), 50).head.starts_with("NXDOMAIN"))
      << "the records' own names do not exist";
}

TEST(ZoneLookup, NamesAboveDelegationsThatOptOutLeavesOut) {
  const Nsec3Chain chain{"example.", "ns.example.", "a.example."};
  const auto zone = zoneWith("@ NSEC3PARAM 1 0 0 -\na A 192.0.2.1\ndeep.ent.a NS ns\nopt.ent NS ns\n" + chain.text());
  const auto match = [&](std::string_view name) { return chain.match(name); };
  const auto cover = [&](std::string_view name) { return chain.cover(name); };
  EXPECT_EQ(nsec3Proofs(*zone, "x.y.ent.example.", kA),
            setOf({match("example."), cover("ent.example."), cover("*.example.")}))
      << "ent.example. is the closest encloser, but has no record that could show it";
  EXPECT_EQ(nsec3Proofs(*zone, "x.ent.a.example.", kA),
            setOf({match("a.example."), cover("ent.a.example."), cover("*.a.example.")}));
  EXPECT_EQ(nsec3Proofs(*zone, "ent.example.", kA), setOf({match("example."), cover("ent.example.")}));
  EXPECT_EQ(nsec3Proofs(*zone, "x.deep.ent.a.example.", kA), setOf({match("a.example."), cover("ent.a.example.")}));
}

TEST(ZoneLookup, OneOfSeveralNsec3ChainsProves) {
  const Nsec3Chain chain({"example.", "ns.example.", "a.example."}, 7);
  const Nsec3Chain other{"example.", "ns.example.", "a.example."};
  const Nsec3Chain made({"example.", "a.example."}, 9);
  const auto zone = zoneWith(fmt::format("@ NSEC3PARAM 1 1 0 {}\n@ NSEC3PARAM 1 0 0 {}\n@ NSEC3PARAM 1 0 0 -\na A 192.0.2.1\n",
                                         made.saltText(), chain.saltText()) +
                             made.text() + other.text() + chain.text());
  for (const char* name : {"x.example.", "y.example.", "z.example.", "w.example.", "v.example."}) {
    EXPECT_EQ(nsec3Proofs(*zone, name, kA), setOf({chain.match("example."), chain.cover(name), chain.cover("*.example.")}))
        << "the first one that is complete";
  }
  EXPECT_EQ(nsec3Proofs(*zone, "a.example.", kTxt), Texts{chain.match("a.example.")});
}

}  // namespace
}  // namespace idetcd::zones
