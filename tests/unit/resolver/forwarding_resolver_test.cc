#include "resolver/forwarding_resolver.h"

#include <gtest/gtest.h>

#include "directive/acl/acl.h"
#include "directive/nsid/identity.h"
#include "support/forward_fixture.h"
#include "support/metric_values.h"

namespace idetcd::resolver {
namespace {

constexpr size_t kLimit = 512;

uint16_t answersOf(const std::string& message) {
  return dns::load16(reinterpret_cast<const uint8_t*>(message.data()) + 6);
}

// A client that keeps what it is sent.
class Client : public resolve::ReplyDeferrer {
 public:
  std::unique_ptr<resolve::ReplySink> keepClient() override { return std::make_unique<Sink>(*this); }
  const std::optional<std::string>& received() const { return received_; }

 private:
  struct Sink : resolve::ReplySink {
    explicit Sink(Client& to) : client(to) {}
    void send(std::span<const uint8_t> message) override { client.received_.emplace(message.begin(), message.end()); }
    Client& client;
  };
  std::optional<std::string> received_;
};

class ForwardingResolverTest : public ForwardFixture {
 protected:
  // An upstream that answers when the test wants.
  void SetUp() override {
    auto& server = upstream(
        [this](const Asked& asked, const Reply& reply) { release_ = [asked, reply] { reply.send(asked.answer()); }; });
    target_ = server.target();
    use({.nsid = identity_});
  }
  void use(ForwardingResolver::Options options, std::unique_ptr<Cache> cache = nullptr) {
    make(optionsFor({target_}));
    std::vector<std::unique_ptr<Forwarder>> forwarders;
    forwarders.push_back(std::move(forwarder_));
    resolver_ =
        std::make_unique<ForwardingResolver>(loop_, std::move(options), std::move(cache), std::move(forwarders));
  }

  void ask(std::string_view name) {
    ASSERT_EQ(begin(name), resolve::QueryOutcome::Kind::kPending);
    runUntil([this] { return release_ != nullptr; });
  }
  resolve::QueryOutcome::Kind begin(std::string_view name, bool wants_recursion = true, bool name_exists = false) {
    Message message(name, 1, 512);
    if (!wants_recursion) message.data()[2] = 0;
    dns::Query query;
    EXPECT_EQ(dns::parseQuery(message.data(), message.size(), Message::kSeed, query), dns::ParseOutcome::kQuery);
    query.asked_options = dns::kAsksNsid;
    query.nsid = identity_->text();
    sockaddr_storage source;
    const SocketAddress address{IpAddress::v4({127, 0, 0, 1}), 4711};
    address.toSockaddr(&source);
    const resolve::Request request{.source = reinterpret_cast<const sockaddr*>(&source),
                                   .local = &address,
                                   .transport = resolve::Transport::kUdp,
                                   .response_limit = kLimit,
                                   .now = BootClock::now(),
                                   .deferrer = &client_,
                                   .name_exists = name_exists};
    return resolver_->answer(query, request, 0).kind;
  }
  const std::string& answer() {
    release_();
    runUntil([this] { return client_.received().has_value(); });
    return *client_.received();
  }

  std::optional<std::string> name_ = "worker7.tf.local.";
  std::shared_ptr<const directive::Identity> identity_ =
      std::make_shared<const directive::Identity>(directive::Identity::Options{.own_name = [this] { return name_; }});
  UpstreamTarget target_;
  std::unique_ptr<ForwardingResolver> resolver_;
  Client client_;
  std::function<void()> release_;
};

TEST_F(ForwardingResolverTest, ALateAnswerSaysTheNameOfTheMomentAtWhichItLeaves) {
  ask("www.example.org.");
  name_ = "worker8.tf.local.";
  EXPECT_TRUE(answer().ends_with("worker8.tf.local"));
}

// As DS of the cluster's zone.
TEST_F(ForwardingResolverTest, WithoutRecursionANameThatExistsIsForWhoKnowsIt) {
  EXPECT_EQ(begin("tf.local.", false, true), resolve::QueryOutcome::Kind::kNext);
  EXPECT_EQ(begin("www.example.org.", false), resolve::QueryOutcome::Kind::kAnswer) << "REFUSED";
}

TEST_F(ForwardingResolverTest, ALateAnswerDoesNotSayANameThatWasLost) {
  ask("www.example.org.");
  name_.reset();
  EXPECT_EQ(answer().find("worker"), std::string::npos);
}

TEST_F(ForwardingResolverTest, ALateAnswerDoesNotAskWhoIsGone) {
  ask("www.example.org.");
  identity_->disown();
  EXPECT_EQ(answer().find("worker"), std::string::npos);
}

TEST_F(ForwardingResolverTest, ALateAnswerToTheLongestNameFits) {
  name_ = std::string(240, 'n');
  const std::string longest =
      std::string(63, 'a') + '.' + std::string(63, 'b') + '.' + std::string(63, 'c') + '.' + std::string(61, 'd') + '.';
  ask(longest);
  const std::string& received = answer();
  EXPECT_LE(received.size(), kLimit);
  EXPECT_EQ(answersOf(received), 1) << "the answer is there";
}

// With `private`, of the network in which every answer is.
TEST_F(ForwardingResolverTest, TheHostsOfTheOwnEtcdMayHavePrivateAddresses) {
  const std::vector<directive::Acl::RuleSet> rules{
      {.zones = {dns::Name{}},
       .rules = {{.action = directive::Acl::Action::kBlock,
                  .types = {},
                  .networks = {IpNetwork::parse("192.0.2.0/24").value()}}}}};
  const auto filter =
      std::make_shared<RebindingFilter>(std::make_shared<const directive::Acl>(rules), nullptr, registry_.scope());
  use({.own_names = {dns::Name::parse("etcd.example.org.").value()}, .rebinding = filter, .nsid = identity_});
  ask("www.example.org.");
  EXPECT_EQ(answersOf(answer()), 0);
  client_ = {};
  release_ = nullptr;
  ask("etcd.example.org.");
  EXPECT_EQ(answersOf(answer()), 1);
}

TEST_F(ForwardingResolverTest, AnswersFromACutAreCounted) {
  auto& denier = upstream([](const Asked& asked, const Reply& reply) {
    reply.send(asked.response(0x8183).soa("example.org.", 300, 300).bytes);
  });
  target_ = denier.target();
  use({.nsid = identity_},
      std::make_unique<Cache>(Cache::Options{.nxdomain_cut = true}, registry_.scope().with("block", ".:53")));
  ASSERT_EQ(begin("no.example.org."), resolve::QueryOutcome::Kind::kPending);
  runUntil([this] { return client_.received().has_value(); });
  EXPECT_EQ(begin("a.no.example.org."), resolve::QueryOutcome::Kind::kAnswer);
  EXPECT_EQ(denier.asked().size(), 1u);
  EXPECT_EQ(test_support::sumOf(registry_, "idetcd_cache_cut_hits_total"), 1);
}

}  // namespace
}  // namespace idetcd::resolver
