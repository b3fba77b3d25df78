#include "resolver/dns64.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/metric_values.h"
#include "support/query_fixture.h"
#include "support/upstream_message.h"

namespace idetcd::resolver {
namespace {

using Kind = resolve::QueryOutcome::Kind;

constexpr uint16_t kA = 1;
constexpr uint16_t kSoa = 6;
constexpr uint16_t kPtr = 12;
constexpr uint16_t kAaaa = 28;
constexpr uint16_t kServFail = 0x8182;
constexpr uint16_t kNxDomain = 0x8183;
const std::string kName = "www.example.org.";

// A handler that gives what the test has said, at once or when the test wants.
class Script final : public resolve::Handler {
 public:
  bool late = false;
  std::map<std::pair<std::string, uint16_t>, std::vector<uint8_t>> responses;
  std::vector<std::pair<std::string, uint16_t>> asked;

  resolve::QueryOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t) override {
    const std::pair question{dns::nameToString(query.qname), query.qtype};
    asked.push_back(question);
    EXPECT_TRUE(request.is_inner || !expects_inner) << "limits and logs are the handler's in front";
    const auto found = responses.find(question);
    if (found == responses.end()) return resolve::QueryOutcome::drop(resolve::DropReason::kAcl);
    std::vector<uint8_t> response = found->second;
    dns::store16(response.data(), dns::load16(query.message));
    if (late) {
      waiting.emplace_back(request.deferrer->keepClient(), response);
      return resolve::QueryOutcome::pending();
    }
    std::ranges::copy(response, query.message);
    return resolve::QueryOutcome::answer(response.size());
  }
  void release() {
    while (!waiting.empty()) {
      auto [sink, response] = std::move(waiting.front());
      waiting.erase(waiting.begin());
      sink->send(response);
    }
  }

  bool expects_inner = true;
  std::vector<std::pair<std::unique_ptr<resolve::ReplySink>, std::vector<uint8_t>>> waiting;
};

struct Client : resolve::ReplyDeferrer {
  struct Sink : resolve::ReplySink {
    explicit Sink(Client& to) : client(to) {}
    void send(std::span<const uint8_t> message) override { client.received.emplace(message.begin(), message.end()); }
    Client& client;
  };
  std::unique_ptr<resolve::ReplySink> keepClient() override { return std::make_unique<Sink>(*this); }
  std::optional<std::vector<uint8_t>> received;
};

struct Query {
  uint16_t qtype = kAaaa;
  bool dnssec_ok = false;
  bool checking_disabled = false;
  const char* client = "2001:db8::c";
  std::chrono::milliseconds waited{0};
};

// With answers at once and with late ones: nothing else may differ.
class Dns64Test : public testing::TestWithParam<bool> {
 protected:
  void use(Dns64::Options options) {
    options.hash_seed = Message::kSeed;
    chain_ = std::make_unique<resolve::Chain>();
    chain_->add(std::make_unique<Dns64>(*chain_, 1, std::move(options), epochs_, registry_.scope()));
    auto script = std::make_unique<Script>();
    script_ = script.get();
    script_->late = GetParam();
    chain_->add(std::move(script));
  }
  void SetUp() override { use({}); }

  void say(const std::string& qname, uint16_t qtype, const UpstreamMessage& response) {
    script_->responses[{qname, qtype}] = response.bytes;
  }
  void sayNoAaaa(uint32_t negative_ttl = 300) {
    say(kName, kAaaa, UpstreamMessage(kName, kAaaa).soa("example.org.", 3600, negative_ttl));
  }

  // The response; nothing: there is none.
  std::optional<Message> ask(const std::string& qname = kName, const Query& what = {}) {
    Message message(qname, what.qtype, 1232);
    dns::Query query;
    EXPECT_EQ(dns::parseQuery(message.data(), message.size(), Message::kSeed, query), dns::ParseOutcome::kQuery);
    query.dnssec_ok = what.dnssec_ok;
    if (what.checking_disabled) query.flags |= dns::kFlagCd;
    sockaddr_storage source;
    const SocketAddress address{IpAddress::parse(what.client).value(), 4711};
    address.toSockaddr(&source);
    Client client;
    const resolve::Request request{.source = reinterpret_cast<const sockaddr*>(&source),
                                   .local = &address,
                                   .response_limit = 1232,
                                   .now = BootClock::now() - what.waited,
                                   .deferrer = &client};
    const resolve::QueryOutcome outcome = chain_->answer(query, request);
    if (outcome.kind == Kind::kAnswer) {
      message.setResponse(outcome.size);
      return message;
    }
    script_->release();
    if (!client.received) return std::nullopt;
    std::ranges::copy(*client.received, message.data());
    message.setResponse(client.received->size());
    return message;
  }
  // Of the records of one type.
  static std::vector<std::string> addresses(Message message) {
    std::vector<std::string> found;
    for (const auto& record : message.records()) {
      if (record.type != kAaaa) continue;
      found.push_back(IpAddress::fromBytes({message.data() + record.rdata, record.rdata_size}).toString());
    }
    return found;
  }

  records::EpochDomain epochs_;
  metrics::Registry registry_;
  std::unique_ptr<resolve::Chain> chain_;
  Script* script_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Answers, Dns64Test, testing::Bool(),
                         [](const auto& of) { return of.param ? "Late" : "AtOnce"; });

using Strings = std::vector<std::string>;

TEST_P(Dns64Test, AnAddressForEachOfTheOtherKind) {
  sayNoAaaa();
  say(kName, kA, UpstreamMessage(kName, kA).a(kName, 100, {192, 0, 2, 33}).a(kName, 100, {192, 0, 2, 34}));
  auto response = ask();
  ASSERT_TRUE(response);
  EXPECT_EQ(addresses(*response), (Strings{"64:ff9b::c000:221", "64:ff9b::c000:222"}));
  EXPECT_EQ(response->answers(), 2);
  EXPECT_EQ(response->authorities(), 0);
  EXPECT_EQ(response->records()[0].ttl, 100u);
  EXPECT_EQ(response->records()[0].owner, kName);
  EXPECT_EQ(test_support::sumOf(registry_, "coredns_dns64_requests_translated_total"), 1);
}

TEST_P(Dns64Test, NoLongerThanThereIsNoAaaa) {
  sayNoAaaa(60);
  say(kName, kA, UpstreamMessage(kName, kA).a(kName, 3600, {192, 0, 2, 33}));
  EXPECT_EQ(ask()->records()[0].ttl, 60u);
  say(kName, kAaaa, UpstreamMessage(kName, kAaaa));
  EXPECT_EQ(ask()->records()[0].ttl, 600u) << "RFC 6147 §5.1.7: without a SOA";
}

TEST_P(Dns64Test, AChainOfCnamesStays) {
  say(kName, kAaaa, UpstreamMessage(kName, kAaaa).cname(kName, "host.example.org.").soa("example.org.", 3600, 300));
  say(kName, kA,
      UpstreamMessage(kName, kA).cname(kName, "host.example.org.", 50).a("host.example.org.", 100, {192, 0, 2, 33}));
  auto response = ask();
  EXPECT_EQ(response->answers(), 2);
  EXPECT_EQ(response->records()[0].type, 5);
  EXPECT_EQ(response->records()[1].owner, "host.example.org.");
  EXPECT_EQ(addresses(*response), Strings{"64:ff9b::c000:221"});
}

TEST_P(Dns64Test, WhatHasAaaaRecordsKeepsThem) {
  const std::vector<uint8_t> v6{0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  say(kName, kAaaa, UpstreamMessage(kName, kAaaa).record(UpstreamMessage::kAnswer, kName, kAaaa, 300, v6));
  say(kName, kA, UpstreamMessage(kName, kA).a(kName, 100, {192, 0, 2, 33}));
  EXPECT_EQ(addresses(*ask()), Strings{"2001:db8::1"});
  EXPECT_EQ(script_->asked.size(), 1u);
  use({.translate_all = true});
  say(kName, kAaaa, UpstreamMessage(kName, kAaaa).record(UpstreamMessage::kAnswer, kName, kAaaa, 300, v6));
  EXPECT_FALSE(ask()) << "no answer for A";
  say(kName, kA, UpstreamMessage(kName, kA).soa("example.org.", 300, 300));
  EXPECT_EQ(addresses(*ask()), Strings{"2001:db8::1"}) << "there is no other";
  say(kName, kA, UpstreamMessage(kName, kA).a(kName, 100, {192, 0, 2, 33}));
  EXPECT_EQ(addresses(*ask()), Strings{"64:ff9b::c000:221"});
}

TEST_P(Dns64Test, MappedAddressesCountAsNone) {
  std::vector<uint8_t> mapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 9};
  std::vector<uint8_t> v6{0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  UpstreamMessage response(kName, kAaaa);
  response.record(UpstreamMessage::kAnswer, kName, kAaaa, 300, mapped);
  say(kName, kAaaa, response);
  say(kName, kA, UpstreamMessage(kName, kA).a(kName, 100, {192, 0, 2, 33}));
  EXPECT_EQ(addresses(*ask()), Strings{"64:ff9b::c000:221"});
  say(kName, kAaaa, response.record(UpstreamMessage::kAnswer, kName, kAaaa, 300, v6));
  EXPECT_EQ(addresses(*ask()), Strings{"2001:db8::1"});
}

TEST_P(Dns64Test, ANameThatDoesNotExistIsAskedForOnce) {
  say(kName, kAaaa, UpstreamMessage(kName, kAaaa, kNxDomain).soa("example.org.", 300, 300));
  EXPECT_EQ(ask()->rcode(), 3);
  EXPECT_EQ(script_->asked.size(), 1u);
}

// RFC 6147 §5.1.2: there are servers that fail for AAAA only.
TEST_P(Dns64Test, AFailureForAaaaIsNoAnswerAndAFailureForAIs) {
  say(kName, kAaaa, UpstreamMessage(kName, kAaaa, kServFail));
  say(kName, kA, UpstreamMessage(kName, kA).a(kName, 100, {192, 0, 2, 33}));
  EXPECT_EQ(addresses(*ask()), Strings{"64:ff9b::c000:221"});
  say(kName, kA, UpstreamMessage(kName, kA, kServFail));
  EXPECT_EQ(ask()->rcode(), 2);
  sayNoAaaa();
  EXPECT_EQ(ask()->rcode(), 2);
  say(kName, kA, UpstreamMessage(kName, kA).soa("example.org.", 300, 300));
  const auto response = ask();
  EXPECT_EQ(response->rcode(), 0);
  EXPECT_EQ(response->answers(), 0);
  EXPECT_EQ(response->records()[0].type, kSoa);
}

TEST_P(Dns64Test, AClientDoesNotWaitTwice) {
  say(kName, kAaaa, UpstreamMessage(kName, kAaaa, kServFail));
  say(kName, kA, UpstreamMessage(kName, kA).a(kName, 100, {192, 0, 2, 33}));
  const auto response = ask(kName, {.waited = Dns64::kSecondQuestionTime});
  EXPECT_EQ(response->rcode(), GetParam() ? 2 : 0) << "what is at hand is not waited for";
}

// RFC 6052 §3.1.
TEST_P(Dns64Test, PrivateAddressesNeedAPrefixOfTheNetworks) {
  sayNoAaaa();
  const auto response = UpstreamMessage(kName, kA).a(kName, 100, {10, 0, 0, 7});
  say(kName, kA, response);
  auto denied = ask();
  EXPECT_EQ(denied->answers(), 0);
  EXPECT_EQ(denied->records()[0].type, kSoa) << "as there is no AAAA";
  use({.prefix = Nat64Prefix::parse("2001:db8:64::/96").value()});
  sayNoAaaa();
  say(kName, kA, response);
  EXPECT_EQ(addresses(*ask()), Strings{"2001:db8:64::a00:7"});
}

TEST_P(Dns64Test, ClientsThatDoItThemselvesAndThoseOverIpv4AreNotHelped) {
  script_->expects_inner = false;
  sayNoAaaa();
  say(kName, kA, UpstreamMessage(kName, kA).a(kName, 100, {192, 0, 2, 33}));
  const auto is_translated = [this](const Query& what) { return ask(kName, what)->answers() > 0; };
  EXPECT_FALSE(is_translated({.dnssec_ok = true, .checking_disabled = true})) << "RFC 6147 §5.5";
  EXPECT_TRUE(is_translated({.dnssec_ok = true}));
  EXPECT_TRUE(is_translated({.checking_disabled = true}));
  EXPECT_FALSE(is_translated({.client = "192.0.2.7"}));
  EXPECT_FALSE(is_translated({.client = "::ffff:192.0.2.7"}));
  EXPECT_EQ(ask(kName, {.qtype = kA})->records()[0].type, kA);
  use({.allow_ipv4 = true});
  sayNoAaaa();
  say(kName, kA, UpstreamMessage(kName, kA).a(kName, 100, {192, 0, 2, 33}));
  EXPECT_TRUE(is_translated({.client = "192.0.2.7"}));
}

TEST_P(Dns64Test, OnlyWhatIsProvenInBothAnswersIsAuthentic) {
  constexpr uint16_t kAuthentic = 0x81a0;
  for (const auto& [first, second] : {std::pair{true, true}, {true, false}, {false, true}}) {
    say(kName, kAaaa, UpstreamMessage(kName, kAaaa, first ? kAuthentic : 0x8180).soa("example.org.", 300, 300));
    say(kName, kA, UpstreamMessage(kName, kA, second ? kAuthentic : 0x8180).a(kName, 100, {192, 0, 2, 33}));
    EXPECT_EQ(ask(kName, {.dnssec_ok = true})->flag(dns::kFlagAd), first && second);
  }
}

TEST_P(Dns64Test, SignaturesOfARecordsAreLeftOut) {
  sayNoAaaa();
  const std::vector<uint8_t> of_a{0, 1, 13, 2, 0, 0, 0, 100, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1, 2, 0, 9, 9};
  say(kName, kA,
      UpstreamMessage(kName, kA).a(kName, 100, {192, 0, 2, 33}).record(UpstreamMessage::kAnswer, kName, 46, 100, of_a));
  auto response = ask(kName, {.dnssec_ok = true});
  EXPECT_EQ(response->answers(), 1);
  EXPECT_EQ(addresses(*response), Strings{"64:ff9b::c000:221"});
}

TEST_P(Dns64Test, TheNameOfASynthesizedAddress) {
  const std::string reverse = "1.2.2.0.0.0.0.c.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.b.9.f.f.4.6.0.0.ip6.arpa.";
  const std::string v4 = "33.2.0.192.in-addr.arpa.";
  const UpstreamMessage pointer =
      UpstreamMessage(v4, kPtr).record(UpstreamMessage::kAnswer, v4, kPtr, 90, UpstreamMessage::name(kName));
  say(v4, kPtr, pointer);
  const auto response = ask(reverse, {.qtype = kPtr});
  ASSERT_EQ(response->answers(), 2);
  EXPECT_EQ(response->records()[0].type, 5);
  EXPECT_EQ(response->records()[0].owner, reverse);
  EXPECT_EQ(response->records()[0].ttl, 90u);
  EXPECT_EQ(response->records()[1].type, kPtr);
  EXPECT_EQ(response->records()[1].owner, v4);
  EXPECT_EQ(test_support::sumOf(registry_, "idetcd_dns64_reverse_total"), 1);

  // Where nothing is known of it, the question is asked as it came.
  script_->expects_inner = false;
  say(v4, kPtr, UpstreamMessage(v4, kPtr, kNxDomain).soa("2.0.192.in-addr.arpa.", 300, 300));
  say(reverse, kPtr, UpstreamMessage(reverse, kPtr, kNxDomain).soa("ip6.arpa.", 300, 300));
  const auto unknown = ask(reverse, {.qtype = kPtr});
  EXPECT_EQ(unknown->rcode(), 3);
  EXPECT_EQ(unknown->records()[0].owner, "ip6.arpa.");
  EXPECT_EQ(script_->asked.back(), (std::pair{reverse, kPtr}));
}

}  // namespace
}  // namespace idetcd::resolver
