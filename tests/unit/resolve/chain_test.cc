// The handler of a chain, and the block of a listener, that answer for a zone's apex, for transfers, and for several
// zones.
#include "resolve/chain.h"

#include <netinet/in.h>

#include <gtest/gtest.h>

#include "dns/response.h"
#include "resolve/deferred_reply.h"
#include "resolve/router.h"
#include "support/query_fixture.h"

namespace idetcd::resolve {
namespace {

constexpr uint16_t kA = code(dns::RrType::kA);
constexpr uint16_t kDs = code(dns::RrType::kDs);
constexpr uint16_t kAxfr = code(dns::RrType::kAxfr);

dns::Name name(std::string_view text) { return dns::Name::parse(text).value(); }

// Answers everything with `rcode`, later if there is a place for replies.
struct Answers final : Handler {
  explicit Answers(dns::Rcode all, std::unique_ptr<DeferredReply>* later_to = nullptr) : rcode(all), later(later_to) {}
  QueryOutcome answer(const dns::Query& query, const Request& request, uint16_t flags) override {
    if (later != nullptr) {
      *later = std::make_unique<DeferredReply>(query, request);
      return QueryOutcome::pending();
    }
    return QueryOutcome::answer(dns::ResponseBuilder(query, request.response_limit).finish(rcode, flags));
  }
  const dns::Rcode rcode;
  std::unique_ptr<DeferredReply>* const later;
};

// The same, of a zone.
struct AnswersOfZone final : Handler {
  AnswersOfZone(std::string_view zone, dns::Rcode all) : origin(dns::Name::parse(zone).value()), answers(all) {}
  QueryOutcome answer(const dns::Query& query, const Request& request, uint16_t flags) override {
    return dns::isNameWithin(query.name(), origin) ? answers.answer(query, request, flags) : QueryOutcome::next();
  }
  bool hasZoneAbove(std::span<const uint8_t> name) const override {
    return dns::isNameWithin(dns::parentOf(name), origin);
  }
  const dns::Name origin;
  Answers answers;
};

struct Client final : ReplyDeferrer {
  struct Sink final : ReplySink {
    explicit Sink(std::string& to) : text(to) {}
    void send(std::span<const uint8_t> message) override { text.assign(message.begin(), message.end()); }
    std::string& text;
  };
  std::unique_ptr<ReplySink> keepClient() override { return std::make_unique<Sink>(said); }
  std::string said;
};

class ChainTest : public testing::Test {
 protected:
  ChainTest() {
    for (records::RecordStore* store : {&outer_, &inner_}) store->setFreshness(records::Freshness::kFresh);
    outer_.put(name("a.tf.local."), {.ipv4 = IpAddress::v4({192, 0, 2, 1}), .ipv6 = {}}, 1);
    inner_.put(name("b.sub.tf.local."), {.ipv4 = IpAddress::v4({192, 0, 2, 2}), .ipv6 = {}}, 1);
  }

  static std::shared_ptr<const ClusterZone> zone(const records::RecordStore& store) {
    return std::make_shared<const ClusterZone>(store, ClusterZone::Options{});
  }
  static std::shared_ptr<Chain> chainOf(std::initializer_list<const records::RecordStore*> stores,
                                        std::unique_ptr<Handler> last = nullptr) {
    auto chain = std::make_shared<Chain>();
    for (const records::RecordStore* store : stores) chain->addCluster(zone(*store));
    chain->parts.recursion_available = last != nullptr;
    if (last) chain->add(std::move(last));
    return chain;
  }

  struct Said {
    uint16_t rcode = 0;
    uint16_t answers = 0;
    std::string soa{};  // the owner
    bool operator==(const Said&) const = default;
  };
  Said ask(const std::vector<Router::Zone>& zones, std::string_view qname, uint16_t qtype, bool wants_recursion = true) {
    const Router router(zones, HashSeed(Message::kSeed));
    Message message(qname, qtype, 1232);
    if (!wants_recursion) message.data()[2] = 0;
    Job job;
    const records::ReadSection section(reader_);
    router.begin(job, message.data(), message.size());
    Request request{.source = reinterpret_cast<const sockaddr*>(&source_),
                    .local = &local_,
                    .response_limit = 1232,
                    .now = BootClock::now(),
                    .deferrer = &client_};
    const QueryOutcome outcome = router.answer(job, request);
    if (outcome.kind != QueryOutcome::Kind::kAnswer) return {.rcode = 99};
    message.setResponse(outcome.size);
    Said said{.rcode = message.rcode(), .answers = message.answers()};
    for (const auto& record : message.records()) {
      if (record.type == code(dns::RrType::kSoa)) said.soa = record.owner;
    }
    return said;
  }
  Said ask(const std::shared_ptr<Chain>& chain, std::string_view qname, uint16_t qtype) {
    return ask({{.name = dns::Name(), .chain = chain}}, qname, qtype);
  }

  records::EpochDomain epochs_;
  records::RecordStore outer_{epochs_, {.zone = name("tf.local."), .addresses = {}, .hash_seed = Message::kSeed}};
  records::RecordStore inner_{epochs_, {.zone = name("sub.tf.local."), .addresses = {}, .hash_seed = Message::kSeed}};
  records::EpochDomain::Reader reader_{epochs_};
  sockaddr_in source_{.sin_family = AF_INET, .sin_port = 1, .sin_addr = {}, .sin_zero = {}};
  SocketAddress local_;
  Client client_;
};

TEST_F(ChainTest, DsOfAnApexIsForTheParentsSide) {
  const auto upstream = [](dns::Rcode rcode) { return std::make_unique<Answers>(rcode); };
  EXPECT_EQ(ask(chainOf({&outer_}, upstream(dns::Rcode::kServFail)), "tf.local.", kDs), (Said{.rcode = 2}));
  EXPECT_EQ(ask(chainOf({&outer_}, upstream(dns::Rcode::kNxDomain)), "tf.local.", kDs), Said{}) << "the zone exists";
  EXPECT_EQ(ask(chainOf({&outer_}), "tf.local.", kDs), (Said{.soa = "tf.local."})) << "there is no way to the parent";
  EXPECT_EQ(ask(chainOf({&outer_}, upstream(dns::Rcode::kServFail)), "a.tf.local.", kDs), (Said{.soa = "tf.local."}));
  EXPECT_EQ(ask(chainOf({&outer_}, upstream(dns::Rcode::kServFail)), "no.tf.local.", kDs),
            (Said{.rcode = 3, .soa = "tf.local."}));
}

TEST_F(ChainTest, ALaterAnswerDoesNotDenyTheZoneEither) {
  std::unique_ptr<DeferredReply> reply;
  ask(chainOf({&outer_}, std::make_unique<Answers>(dns::Rcode::kNoError, &reply)), "tf.local.", kDs);
  ASSERT_TRUE(reply);
  std::vector<uint8_t> room;
  reply->makeRoom(room, nullptr);
  const size_t size = dns::ResponseBuilder(reply->query(), 1232).finish(dns::Rcode::kNxDomain, 0);
  reply->finish(size, nullptr, nullptr);
  ASSERT_GE(client_.said.size(), dns::kHeaderSize);
  EXPECT_EQ(client_.said[3] & dns::kRcodeMask, 0);
}

TEST_F(ChainTest, DsOfABlocksZoneGoesToTheBlockThatKnowsTheParent) {
  const auto inner = chainOf({&inner_});
  const std::vector<Router::Zone> nested{{.name = name("sub.tf.local."), .chain = inner},
                                         {.name = name("tf.local."), .chain = chainOf({&outer_})}};
  EXPECT_EQ(ask(nested, "sub.tf.local.", kDs), (Said{.soa = "tf.local."}));
  EXPECT_EQ(ask(nested, "b.sub.tf.local.", kDs), (Said{.soa = "sub.tf.local."}));
  EXPECT_EQ(ask(nested, "tf.local.", kDs), (Said{.soa = "tf.local."}));
  const std::vector<Router::Zone> forwarding{
      {.name = name("sub.tf.local."), .chain = inner},
      {.name = dns::Name(), .chain = chainOf({}, std::make_unique<Answers>(dns::Rcode::kServFail))}};
  EXPECT_EQ(ask(forwarding, "sub.tf.local.", kDs), (Said{.rcode = 2}));
  EXPECT_EQ(ask(forwarding, "sub.tf.local.", kA), (Said{.soa = "sub.tf.local."}));
  const std::vector<Router::Zone> silent{{.name = name("sub.tf.local."), .chain = inner},
                                         {.name = dns::Name(), .chain = chainOf({})}};
  EXPECT_EQ(ask(silent, "sub.tf.local.", kDs), (Said{.soa = "sub.tf.local."}));
  EXPECT_EQ(ask(forwarding, "sub.tf.local.", kDs, false), (Said{.soa = "sub.tf.local."})) << "nobody is to be asked";
  EXPECT_EQ(ask(nested, "sub.tf.local.", kDs, false), (Said{.soa = "tf.local."})) << "the parent is here";
}

TEST_F(ChainTest, TheBlockThatKnowsTheParentMayHaveOtherZones) {
  const auto of = [](std::string_view zone, dns::Rcode rcode) {
    return chainOf({}, std::make_unique<AnswersOfZone>(zone, rcode));
  };
  const auto child = of("sub.example.org.", dns::Rcode::kNotImp);
  const auto parent = of("example.org.", dns::Rcode::kServFail);
  const std::vector<Router::Zone> zones{{.name = name("sub.example.org."), .chain = child},
                                        {.name = name("other.example.org."), .chain = of("other.", dns::Rcode::kNotImp)},
                                        {.name = name("example.org."), .chain = of("x.example.org.", dns::Rcode::kNotImp)},
                                        {.name = name("org."), .chain = parent},
                                        {.name = dns::Name(), .chain = of(".", dns::Rcode::kNotImp)}};
  const Said child_says{.rcode = 4};
  const Said parent_says{.rcode = 2};
  for (const bool wants_recursion : {true, false}) {
    EXPECT_EQ(ask(zones, "sub.example.org.", kDs, wants_recursion), parent_says);
    EXPECT_EQ(ask(zones, "other.example.org.", kDs, wants_recursion), parent_says);
    EXPECT_EQ(ask(zones, "sub.example.org.", kA, wants_recursion), child_says);
    EXPECT_EQ(ask(zones, "a.sub.example.org.", kDs, wants_recursion), child_says);
  }
  const auto both = of("sub.example.org.", dns::Rcode::kNotImp);
  both->add(std::make_unique<AnswersOfZone>("example.org.", dns::Rcode::kServFail));
  EXPECT_EQ(ask({{.name = name("sub.example.org."), .chain = both}, {.name = name("org."), .chain = parent}},
                "sub.example.org.", kDs),
            child_says)
      << "the block itself knows it";
}

TEST_F(ChainTest, TheTreesOfReverseNamesExist) {
  const auto denies = [] { return chainOf({}, std::make_unique<Answers>(dns::Rcode::kNxDomain)); };
  for (const char* tree : {"in-addr.arpa.", "IP6.ARPA.", "arpa."}) EXPECT_EQ(ask(denies(), tree, kA), Said{}) << tree;
  for (const char* other : {"10.in-addr.arpa.", "in-addr.example.", "xarpa.", "e164.arpa."})
    EXPECT_EQ(ask(denies(), other, kA), (Said{.rcode = 3})) << other;
}

TEST_F(ChainTest, SeveralZonesInOneChainTheLongerOneFirst) {
  for (const auto& chain : {chainOf({&outer_, &inner_}), chainOf({&inner_, &outer_})}) {
    EXPECT_EQ(ask(chain, "a.tf.local.", kA), (Said{.answers = 1}));
    EXPECT_EQ(ask(chain, "b.sub.tf.local.", kA), (Said{.answers = 1}));
    EXPECT_EQ(ask(chain, "no.sub.tf.local.", kA), (Said{.rcode = 3, .soa = "sub.tf.local."}));
    EXPECT_EQ(ask(chain, "sub.tf.local.", kDs), (Said{.soa = "tf.local."})) << "the other one is the parent";
    EXPECT_EQ(ask(chain, "example.org.", kA), (Said{.rcode = 5}));
  }
}

TEST_F(ChainTest, TransfersAreForTheirHandlerAlone) {
  const auto chain = chainOf({&outer_}, std::make_unique<Answers>(dns::Rcode::kNoError));
  EXPECT_EQ(ask(chain, "tf.local.", kAxfr), (Said{.rcode = 5})) << "nobody transfers it";
  chain->addForTransfers(std::make_unique<Answers>(dns::Rcode::kNotAuth));
  EXPECT_EQ(ask(chain, "tf.local.", kAxfr), (Said{.rcode = 9}));
  EXPECT_EQ(ask(chain, "a.tf.local.", kA), (Said{.answers = 1}));
  EXPECT_EQ(ask({{.name = name("example.org."), .chain = chain}}, "tf.local.", kAxfr), (Said{.rcode = 5}));
}

}  // namespace
}  // namespace idetcd::resolve
