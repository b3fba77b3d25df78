// The program beside the sockets' code: what it answers is the same, byte for byte, and what it does not answer it leaves
// as it was.
#include <functional>
#include <map>
#include <random>

#include "dns/name.h"
#include "kernel_support.h"
#include "directive/idetcd/cluster_reverse.h"
#include "resolve/router.h"

namespace idetcd::kernel {
namespace {

using namespace test;

constexpr uint16_t kA = 1;
constexpr uint16_t kSoa = 6;
constexpr uint16_t kPtr = 12;
constexpr uint16_t kMx = 15;
constexpr uint16_t kAaaa = 28;

class ReverseHandler final : public resolve::Handler {
 public:
  ReverseHandler(const records::RecordStore& store, const IpAddress& own)
      : reverse_(store, [&own](const IpAddress& address) {
          return directive::OwnAddress{.is_own = address == own, .name = {}, .ttl_seconds = 5};
        }) {}
  resolve::QueryOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) override {
    return reverse_.answer(query, request.response_limit, flags, request.now);
  }

 private:
  directive::ClusterReverse reverse_;
};

class AnswerTest : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    if (IsSkipped()) return;
    feed_ = std::make_shared<AnswerFeed>(program_.maps, 0, ZoneIdentity{}, store_);
    store_.addObserver(feed_);
    put("worker1.tf.local.", "192.0.2.1", "2001:db8::1");
    put("worker2.tf.local.", "192.0.2.2", "");
    put("worker3.tf.local.", "", "2001:db8::3");
    put("worker4.tf.local.", "", "");
    put("a.deep.tf.local.", "192.0.2.5", "");
    put(longName(), "192.0.2.6", "2001:db8::6");
    put("shared1.tf.local.", "192.0.2.7", "");
    put("shared2.tf.local.", "192.0.2.7", "");
    put("worker8.tf.local.", "192.0.2.250", "");
    put("outside.example.", "192.0.2.9", "");
    put(std::string(23, 'z') + ".tf.local.", "192.0.2.10", "");
    put(std::string(24, 'z') + ".tf.local.", "192.0.2.11", "");
    store_.setFreshness(records::Freshness::kFresh);
    for (const auto* address : {"127.0.0.0", "::1", "192.0.2.53"}) listen(address);
    const auto chain = std::make_shared<resolve::Chain>();
    chain->addCluster(std::make_shared<const resolve::ClusterZone>(store_, resolve::ClusterZone::Options{}));
    chain->add(std::make_unique<ReverseHandler>(store_, own_));
    chain_ = chain;
    router_.emplace(std::vector<resolve::Router::Zone>{{.name = name("."), .chain = chain}}, HashSeed{7});
  }

  static std::string longName() {
    std::string text;
    for (int i = 0; i < 3; ++i) text += std::string(63, 'x') + '.';
    return text + std::string(51, 'y') + ".tf.local.";
  }
  void put(std::string_view owner, std::string_view ipv4, std::string_view ipv6) {
    store_.put(name(owner), {.ipv4 = IpAddress::parse(ipv4), .ipv6 = IpAddress::parse(ipv6)}, ++revision_);
  }

  // The answer of a socket; empty: none.
  Bytes askSocket(const Bytes& message) {
    std::array<uint8_t, 4096 + dns::kReadSlack> buffer{};
    std::ranges::copy(message, buffer.begin());
    sockaddr_storage source;
    SocketAddress{.ip = ip("127.0.0.1"), .port = 40000}.toSockaddr(&source);
    resolve::Request request{.source = reinterpret_cast<const sockaddr*>(&source), .now = BootClock::now()};
    const records::ReadSection section(reader_);
    resolve::Job job;
    router_->begin(job, buffer.data(), message.size());
    request.response_limit = resolve::Router::udpResponseLimit(job);
    const resolve::QueryOutcome outcome = router_->answer(job, request);
    if (outcome.kind != resolve::QueryOutcome::Kind::kAnswer) return {};
    return {buffer.data(), buffer.data() + outcome.size};
  }

  void expectSame(const Bytes& message, const Endpoints& at = {}) {
    const Bytes response = ask(message, at);
    EXPECT_FALSE(response.empty()) << "it was passed";
    EXPECT_EQ(response, askSocket(message));
  }
  void expectPassed(const Bytes& message, const Endpoints& at = {}) { EXPECT_TRUE(ask(message, at).empty()); }

  IpAddress own_ = ip("192.0.2.250");
  records::EpochDomain epochs_;
  records::RecordStore store_{
      epochs_, {.zone = name("tf.local."), .ttl_seconds = 5, .addresses = {own_, ip("2001:db8::250")}, .hash_seed = 7}};
  records::EpochDomain::Reader reader_{epochs_};
  std::shared_ptr<AnswerFeed> feed_;
  std::shared_ptr<const resolve::Chain> chain_;
  std::optional<resolve::Router> router_;
  int64_t revision_ = 0;
};

TEST_F(AnswerTest, AddressesAndDenialsAreTheSameAsOfASocket) {
  const Endpoints v6{.client = ip("::1"), .server = ip("::1")};
  for (const bool edns : {false, true}) {
    for (const Endpoints& at : {Endpoints{}, v6}) {
      for (const char* owner :
           {"worker1.tf.local.", "worker2.tf.local.", "worker3.tf.local.", "worker4.tf.local.", "deep.tf.local.",
            "a.deep.tf.local.", "ns.dns.tf.local.", "dns.tf.local.", "worker9.tf.local.", "x.worker1.tf.local.", "."}) {
        if (std::string_view(owner) == ".") continue;
        for (const uint16_t type : {kA, kAaaa, kMx, kPtr, kSoa, uint16_t{65}, uint16_t{99}, uint16_t{300}}) {
          SCOPED_TRACE(testing::Message() << owner << " type " << type << (edns ? " EDNS" : ""));
          expectSame(queryFor(owner, type, edns), at);
        }
      }
      expectSame(queryFor(longName(), kAaaa, edns), at);
      expectSame(queryFor("x" + longName().substr(1), kA, edns), at);
    }
  }
}

TEST_F(AnswerTest, PointersAreTheSameAsOfASocket) {
  for (const char* address : {"192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::3", "192.0.2.10"}) {
    for (const bool edns : {false, true}) expectSame(queryFor(dns::reverseName(ip(address)), kPtr, edns));
  }
  // Of several names, of names that are too long, of one outside of the zone, of this node itself, and of nobody.
  for (const char* address :
       {"192.0.2.7", "192.0.2.6", "192.0.2.11", "2001:db8::6", "192.0.2.9", "192.0.2.250", "192.0.2.99"})
    expectPassed(queryFor(dns::reverseName(ip(address)), kPtr));
  put("shared2.tf.local.", "192.0.2.8", "");
  expectSame(queryFor(dns::reverseName(ip("192.0.2.7")), kPtr));
  expectSame(queryFor(dns::reverseName(ip("192.0.2.8")), kPtr));
  own_ = ip("192.0.2.1");
  store_.setAddresses({own_});
  expectPassed(queryFor(dns::reverseName(ip("192.0.2.1")), kPtr));
  expectSame(queryFor(dns::reverseName(ip("192.0.2.250")), kPtr));
}

TEST_F(AnswerTest, TheQuestionsCaseAndTheClientsFlagsAreEchoed) {
  Bytes message = queryFor("worker1.tf.local.", kA, true);
  for (size_t i = dns::kHeaderSize; i < dns::kHeaderSize + 18; i += 2) {
    if (message[i] >= 'a' && message[i] <= 'z') message[i] ^= 0x20;
  }
  for (const uint16_t flags : {0, 0x0100, 0x0110, 0x0010, 0x0020, 0x0040, 0x0400, 0x0080, 0x000f, 0x07ff}) {
    SCOPED_TRACE(flags);
    dns::store16(&message[2], flags);
    expectSame(message);
  }
  message[message.size() - 4] = 0x80;  // DO
  expectSame(message);
  message[message.size() - 4] = 0x7f;  // reserved flags
  expectSame(message);
  for (const uint16_t payload : {0, 511, 512, 1232, 65535}) {
    dns::store16(&message[message.size() - 8], payload);
    expectSame(message);
  }
}

TEST_F(AnswerTest, WhatASocketHasToSeeIsPassed) {
  const Bytes plain = queryFor("worker1.tf.local.", kA, true);
  const auto changed = [&plain](size_t offset, uint16_t value) {
    Bytes message = plain;
    dns::store16(&message[offset], value);
    return message;
  };
  const size_t type = dns::kHeaderSize + 18;
  const size_t opt = type + 4;
  for (const uint16_t flags : {0x8100, 0x2100, 0x0800}) expectPassed(changed(2, flags));
  for (const size_t count : {4, 6, 8, 10}) {
    for (const uint16_t number : {2, 256}) expectPassed(changed(count, number));
  }
  for (const uint16_t meta : {0, 41, 128, 249, 250, 251, 252, 253, 254, 255}) expectPassed(changed(type, meta));
  for (const uint16_t klass : {0, 3, 254, 255}) expectPassed(changed(type + 2, klass));
  expectPassed(changed(opt + 5, 0x0001));  // version 1
  expectPassed(changed(opt + 9, 4));       // the length of options
  expectPassed(changed(opt + 1, 1));       // no OPT
  Bytes named = plain;
  named[opt] = 1;
  expectPassed(named);
  Bytes longer = plain;
  longer.push_back(0);
  expectPassed(longer);
  for (size_t size = 0; size < plain.size(); ++size) {
    SCOPED_TRACE(size);
    expectPassed(Bytes(plain.begin(), plain.begin() + static_cast<ptrdiff_t>(size)));
  }
  for (const char* owner : {".", "local.", "tf.local.", "xtf.local.", "outside.example.", "worker1.tf.local.example."})
    expectPassed(queryFor(owner, kA));
}

TEST_F(AnswerTest, NamesWithAnyBytesAreReadAsASocketReadsThem) {
  expectSame(queryFor(R"(wor\000ker\255.tf.local.)", kA));
  expectSame(queryFor(R"(\002tf\005local.tf.local.)", kA));
  // Its last bytes look like the zone, but a label ends elsewhere.
  expectPassed(queryFor(R"(worker1\002tf\005local.)", kA));
  Bytes pointer = queryFor("worker1.tf.local.", kA);
  pointer[dns::kHeaderSize + 8] = 0xc0;
  expectPassed(pointer);
  Bytes too_long = queryFor(longName(), kA);
  too_long[dns::kHeaderSize] = 64;
  expectPassed(too_long);
}

TEST_F(AnswerTest, OnlyWhereTheServerListens) {
  const Bytes message = queryFor("worker1.tf.local.", kA);
  expectSame(message, {.client = ip("192.0.2.77"), .server = ip("192.0.2.53")});
  expectSame(message, {.server = ip("127.1.2.3")});
  expectPassed(message, {.server_port = 54});
  expectPassed(message, {.server = ip("192.0.2.54")});
  expectPassed(message, {.client = ip("::1"), .server = ip("2001:db8::53")});
  expectPassed(message, {.client_port = 0});
  for (const char* client : {"0.0.0.0", "224.0.0.1", "255.255.255.255"}) expectPassed(message, {.client = ip(client)});
  expectPassed(message, {.client = ip("ff02::1"), .server = ip("::1")});
}

TEST_F(AnswerTest, TheVerifierReadsLittleOfIt) {
  bpf_prog_info info;
  std::memset(&info, 0, sizeof(info));
  bpf_attr attributes;
  std::memset(&attributes, 0, sizeof(attributes));
  attributes.info.bpf_fd = static_cast<uint32_t>(program_.program.get());
  attributes.info.info_len = sizeof(info);
  attributes.info.info = reinterpret_cast<uint64_t>(&info);
  ASSERT_EQ(syscall(SYS_bpf, BPF_OBJ_GET_INFO_BY_FD, &attributes, sizeof(attributes)), 0) << std::strerror(errno);
  EXPECT_GT(info.verified_insns, 10'000u);
  EXPECT_LT(info.verified_insns, 100'000u);
}

TEST_F(AnswerTest, FramesForAnotherMachineArePassed) {
  const Bytes frame = frameOf(queryFor("worker1.tf.local.", kA));
  EXPECT_TRUE(isAnswered(frame));
  for (size_t i = 0; i < 6; ++i) {
    Bytes other = frame;
    other[i] ^= 0x80;
    const Ran ran = run(other);
    EXPECT_EQ(ran.verdict, XDP_PASS);
    EXPECT_EQ(ran.frame, other);
  }
}

TEST_F(AnswerTest, AddressesThatNoClientHasArePassed) {
  const auto from = [](std::string_view client, std::string_view server) {
    return Endpoints{.client = ip(client), .server = ip(server)};
  };
  const Bytes query = queryFor("worker1.tf.local.", kA);
  EXPECT_TRUE(isAnswered(frameOf(query, from("127.0.0.1", "127.1.2.3"))));
  for (const auto* broadcast : {"127.0.0.0", "127.255.255.255"})
    EXPECT_FALSE(isAnswered(frameOf(query, from("127.0.0.1", broadcast)))) << broadcast;
  EXPECT_TRUE(isAnswered(frameOf(query, from("::1", "::1"))));
  const auto mapped = [](std::string_view ipv4) {
    std::array<uint8_t, 16> bytes{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    std::copy_n(ip(ipv4).data(), 4, &bytes[12]);
    return IpAddress::v6(bytes);
  };
  EXPECT_FALSE(isAnswered(frameOf(query, {.client = ip("2001:db8::9"), .server = mapped("192.0.2.53")})));
  EXPECT_FALSE(isAnswered(frameOf(query, {.client = mapped("192.0.2.9"), .server = ip("::1")})));
}

TEST_F(AnswerTest, OtherFramesArePassed) {
  const Bytes message = queryFor("worker1.tf.local.", kA);
  const auto expectUntouched = [this](Bytes frame, const std::function<void(Bytes&)>& change, bool checked = true) {
    change(frame);
    if (checked && frame.size() > kEthernet + 20 && frame[12] == 8) {
      dns::store16(&frame[kEthernet + 10], 0);
      dns::store16(&frame[kEthernet + 10], static_cast<uint16_t>(~sumOf(std::span(frame).subspan(kEthernet, 20))));
    }
    const Ran ran = run(frame);
    EXPECT_EQ(ran.verdict, XDP_PASS);
    EXPECT_EQ(ran.frame, frame);
  };
  const Bytes v4 = frameOf(message);
  const Bytes v6 = frameOf(message, {.client = ip("::1"), .server = ip("::1")});
  for (const uint16_t ethertype : {0x0806, 0x8100, 0x88a8, 0x86dd, 0x0801})
    expectUntouched(
        v4, [&](Bytes& f) { dns::store16(&f[12], ethertype); }, false);
  expectUntouched(v4, [](Bytes& f) { f[0] |= 1; });                                // to a group
  expectUntouched(v4, [](Bytes& f) { f[kEthernet] = 0x46; });                      // options
  expectUntouched(v4, [](Bytes& f) { f[kEthernet] = 0x55; });                      // no IPv4
  expectUntouched(v4, [](Bytes& f) { dns::store16(&f[kEthernet + 6], 0x2000); });  // a first fragment
  expectUntouched(v4, [](Bytes& f) { dns::store16(&f[kEthernet + 6], 0x0001); });  // a later one
  expectUntouched(v4, [](Bytes& f) { f[kEthernet + 9] = IPPROTO_TCP; });
  expectUntouched(v4, [](Bytes& f) { f.push_back(0); });  // padding
  expectUntouched(
      v4, [](Bytes& f) { f[kEthernet + 11] ^= 1; }, false);  // checksum of IPv4
  expectUntouched(
      v4, [](Bytes& f) { f.back() ^= 1; }, false);                                 // and of UDP
  expectUntouched(v4, [](Bytes& f) { f[kEthernet + 20 + 5] ^= 1; });               // the length of UDP
  expectUntouched(v6, [](Bytes& f) { f[kEthernet + 6] = 0; });                     // an extension header
  expectUntouched(v6, [](Bytes& f) { dns::store16(&f[kEthernet + 40 + 6], 0); });  // no checksum
  expectUntouched(v6, [](Bytes& f) { f[kEthernet] = 0x40; });
  for (size_t size = kEthernet; size < v4.size(); ++size)
    expectUntouched(
        Bytes(v4.begin(), v4.begin() + static_cast<ptrdiff_t>(size)), [](Bytes&) {}, false);
}

TEST_F(AnswerTest, AChecksumMayBeMissingOrLeftToTheDevice) {
  const Endpoints at;
  Bytes frame = frameOf(queryFor("worker1.tf.local.", kA), at);
  const auto udp = &frame[kEthernet + 20];
  dns::store16(udp + 6, 0);
  EXPECT_TRUE(isAnswered(frame));
  uint32_t pseudo = pseudoSum(at, dns::load16(udp + 4));
  while (pseudo > 0xffff) pseudo = (pseudo & 0xffff) + (pseudo >> 16);
  dns::store16(udp + 6, static_cast<uint16_t>(pseudo));
  EXPECT_TRUE(isAnswered(frame));
  dns::store16(udp + 6, static_cast<uint16_t>(pseudo ^ 1));
  EXPECT_FALSE(isAnswered(frame));
}

TEST_F(AnswerTest, NothingIsSaidOnceTheZoneIsNotKnownToBeTrue) {
  const Bytes message = queryFor("worker1.tf.local.", kA);
  expectSame(message);
  store_.setFreshness(records::Freshness::kStale);
  expectPassed(message);
  expectPassed(queryFor("worker9.tf.local.", kA));
  expectPassed(queryFor(dns::reverseName(ip("192.0.2.1")), kPtr));
  store_.setFreshUntil(BootClock::now() + std::chrono::hours(1));
  expectSame(message);
  store_.setFreshUntil(BootClock::now());
  expectPassed(message);
}

TEST_F(AnswerTest, WhatOthersAnswerIsPassed) {
  listen("127.0.0.1", 0);  // `fallthrough`
  expectPassed(queryFor("worker9.tf.local.", kA));
  expectSame(queryFor("worker1.tf.local.", kA));
  listen("127.0.0.1", kHeldOnly);
  expectPassed(queryFor("ns.dns.tf.local.", kA));
  expectSame(queryFor("worker4.tf.local.", kA));
  listen("127.0.0.1", kWhole, 53, false);
  expectPassed(queryFor(dns::reverseName(ip("192.0.2.1")), kPtr));
}

TEST_F(AnswerTest, AnswersAreCounted) {
  const Meter before = maps().meter(0);
  ask(queryFor("worker1.tf.local.", kA));
  ask(queryFor("worker9.tf.local.", kMx, true));
  ask(queryFor("worker1.tf.local.", kAaaa), {.client = ip("::1"), .server = ip("::1")});
  Bytes with_do = queryFor("worker1.tf.local.", kA, true);
  with_do[with_do.size() - 4] = 0x80;
  ask(with_do);
  expectPassed(queryFor("tf.local.", kA));
  const Meter now = maps().meter(0);
  EXPECT_EQ(now.answered[0][kTypeA][0] - before.answered[0][kTypeA][0], 2u);
  EXPECT_EQ(now.answered[0][kTypeMx][1] - before.answered[0][kTypeMx][1], 1u);
  EXPECT_EQ(now.answered[1][kTypeAaaa][0] - before.answered[1][kTypeAaaa][0], 1u);
  EXPECT_EQ(now.with_do - before.with_do, 1u);
  EXPECT_EQ(now.request_sizes[0] - before.request_sizes[0], 4u);
  EXPECT_GT(maps().passed()[kPassZone], 0u);
}

// Changes of good queries, such as attackers and broken software make, and of what they make in turn.
Bytes mutated(const Bytes& from, std::mt19937& random) {
  Bytes message = from;
  const auto below = [&random](size_t bound) { return random() % std::max<size_t>(bound, 1); };
  for (size_t changes = 1 + below(2); changes > 0; --changes) {
    const size_t at = below(message.size());
    switch (below(8)) {
      case 0:
        message[at] ^= static_cast<uint8_t>(1u << below(8));
        break;
      case 1:
        message[at] = static_cast<uint8_t>(random());
        break;
      case 2:
        message.resize(dns::kHeaderSize + below(message.size()));
        break;
      case 3:
        message.insert(message.begin() + static_cast<ptrdiff_t>(at), static_cast<uint8_t>(random()));
        break;
      case 4:
        message.erase(message.begin() + static_cast<ptrdiff_t>(at));
        break;
      case 5:
        message[below(dns::kHeaderSize)] = static_cast<uint8_t>(below(3));
        break;
      case 6:
        message[at] ^= 0x20;
        break;
      default:
        dns::store16(&message[below(message.size() - 1)], static_cast<uint16_t>(below(300)));
        break;
    }
    message.resize(std::max<size_t>(message.size(), dns::kHeaderSize));
  }
  return message;
}

TEST_F(AnswerTest, MutatedQueriesGetTheSameAnswerOrAreLeftAlone) {
  constexpr int kQueries = 300'000;
  std::vector<Bytes> seeds;
  for (const std::string& owner : {std::string("worker1.tf.local."), std::string("worker4.tf.local."),
                                   std::string("worker9.tf.local."), std::string("a.deep.tf.local."),
                                   std::string("tf.local."), longName(), std::string("1.2.0.192.in-addr.arpa.")}) {
    for (const uint16_t type : {kA, kAaaa, kMx, kPtr}) {
      for (const bool edns : {false, true}) seeds.push_back(queryFor(owner, type, edns));
    }
  }
  std::mt19937 random(20261124);
  const Endpoints v6{.client = ip("::1"), .server = ip("::1")};
  std::map<std::string, int> outcomes;
  for (int i = 0; i < kQueries && !HasFailure(); ++i) {
    const Bytes message = mutated(seeds[random() % seeds.size()], random);
    const Bytes response = ask(message, i % 2 == 0 ? Endpoints{} : v6);
    if (response.empty()) {
      ++outcomes["passed"];
      continue;
    }
    ++outcomes[response[7] != 0 ? "answer" : (response[3] & 0xf) != 0 ? "NXDOMAIN" : "NODATA"];
    EXPECT_EQ(response, askSocket(message)) << testing::PrintToString(message);
  }
  for (const char* kind : {"answer", "NXDOMAIN", "NODATA", "passed"}) {
    RecordProperty(kind, outcomes[kind]);
    EXPECT_GT(outcomes[kind], kQueries / 100) << kind;
  }
}

}  // namespace
}  // namespace idetcd::kernel
