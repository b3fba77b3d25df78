#include "directive/autopath/autopath.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/metric_values.h"
#include "support/query_fixture.h"
#include "support/upstream_message.h"

namespace idetcd::directive {
namespace {

// Answers with the address that a name has, else NXDOMAIN, at once or when the test wants.
class AutopathHosts final : public resolve::Handler {
 public:
  std::map<std::string, uint8_t> hosts;
  std::vector<std::string> asked;
  bool late = false;

  resolve::QueryOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t) override {
    const std::string name = dns::nameToString(query.qname);
    asked.push_back(name);
    const auto found = hosts.find(name);
    UpstreamMessage response(name, query.qtype, found != hosts.end() ? 0x8180 : 0x8183, dns::load16(query.message));
    if (found != hosts.end()) response.a(name, 60, {192, 0, 2, found->second});
    if (late) {
      waiting.emplace_back(request.deferrer->keepClient(), response.bytes);
      return resolve::QueryOutcome::pending();
    }
    std::ranges::copy(response.bytes, query.message);
    return resolve::QueryOutcome::answer(response.bytes.size());
  }
  void release() {
    while (!waiting.empty()) {
      auto [sink, response] = std::move(waiting.front());
      waiting.erase(waiting.begin());
      sink->send(response);
    }
  }
  std::vector<std::pair<std::unique_ptr<resolve::ReplySink>, std::vector<uint8_t>>> waiting;
};

struct AutopathClient : resolve::ReplyDeferrer {
  struct Sink : resolve::ReplySink {
    explicit Sink(AutopathClient& to) : client(to) {}
    void send(std::span<const uint8_t> message) override { client.received.assign(message.begin(), message.end()); }
    AutopathClient& client;
  };
  std::unique_ptr<resolve::ReplySink> keepClient() override { return std::make_unique<Sink>(*this); }
  std::vector<uint8_t> received;
};

// With answers at once and with late ones: nothing else may differ.
class AutopathTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    Autopath::Options options{.zones = {dns::Name()}, .hash_seed = Message::kSeed};
    for (const char* domain : {"one.test.", "two.test.", "rather-long.test."}) options.search.push_back(dns::Name::parse(domain).value());
    chain_.add(std::make_unique<Autopath>(chain_, 1, std::move(options), epochs_, registry_.scope()));
    auto hosts = std::make_unique<AutopathHosts>();
    hosts_ = hosts.get();
    hosts_->late = GetParam();
    chain_.add(std::move(hosts));
  }
  // The owners of the answer's records, behind the rcode.
  std::vector<std::string> ask(const std::string& name, std::chrono::milliseconds waited = {}) {
    hosts_->asked.clear();
    Message message(name, 1, 1232);
    dns::Query query;
    EXPECT_EQ(dns::parseQuery(message.data(), message.size(), Message::kSeed, query), dns::ParseOutcome::kQuery);
    AutopathClient client;
    const resolve::Request request{.response_limit = 1232, .now = BootClock::now() - waited, .deferrer = &client};
    const resolve::QueryOutcome outcome = chain_.answer(query, request);
    message.setResponse(outcome.size);
    if (outcome.kind == resolve::QueryOutcome::Kind::kPending) {
      hosts_->release();
      std::ranges::copy(client.received, message.data());
      message.setResponse(client.received.size());
    }
    std::vector<std::string> said{std::to_string(message.rcode())};
    for (const auto& record : message.records()) {
      if (record.type != 41) said.push_back(record.owner);
    }
    return said;
  }

  using Strings = std::vector<std::string>;
  records::EpochDomain epochs_;
  metrics::Registry registry_;
  resolve::Chain chain_;
  AutopathHosts* hosts_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Answers, AutopathTest, testing::Bool(),
                         [](const auto& of) { return of.param ? "Late" : "AtOnce"; });

TEST_P(AutopathTest, TheFirstNameThatIsThereAnswers) {
  hosts_->hosts = {{"www.two.test.", 1}, {"www.", 2}, {"alone.", 3}, {"here.one.test.", 4}};
  EXPECT_EQ(ask("www.one.test."), (Strings{"0", "www.one.test.", "www.two.test."}));
  EXPECT_EQ(hosts_->asked, (Strings{"www.one.test.", "www.two.test."}));
  EXPECT_EQ(ask("alone.one.test."), (Strings{"0", "alone.one.test.", "alone."}));
  EXPECT_EQ(test_support::sumOf(registry_, "coredns_autopath_success_total"), 2);
  EXPECT_EQ(ask("here.one.test."), (Strings{"0", "here.one.test."})) << "no CNAME";
  EXPECT_EQ(ask("none.one.test."), (Strings{"3"}));
  EXPECT_EQ(hosts_->asked, (Strings{"none.one.test.", "none.two.test.", "none.rather-long.test.", "none."}));
  EXPECT_EQ(test_support::sumOf(registry_, "coredns_autopath_success_total"), 2);
}

TEST_P(AutopathTest, OnlyTheFirstDomainBeginsAWalk) {
  for (const char* name : {"www.two.test.", "one.test.", "www.xone.test.", "www."}) {
    EXPECT_EQ(ask(name), (Strings{"3"}));
    EXPECT_EQ(hosts_->asked, (Strings{name}));
  }
}

TEST_P(AutopathTest, AClientThatHasWaitedLongGetsTheFirstAnswer) {
  hosts_->hosts = {{"www.two.test.", 1}};
  const bool late = GetParam();
  EXPECT_EQ(ask("www.one.test.", Autopath::kMaxTime * 2).front(), late ? "3" : "0");
  EXPECT_EQ(hosts_->asked.size(), late ? 1u : 2u);
}

TEST_P(AutopathTest, ANameThatGetsTooLongIsLeftOut) {
  std::string labels;
  for (int i = 0; i < 3; ++i) labels += std::string(62, 'x') + ".";
  const std::string name = labels + std::string(50, 'y') + ".one.test.";  // 250 bytes
  EXPECT_EQ(ask(name), (Strings{"3"}));
  EXPECT_EQ(hosts_->asked.size(), 3u) << "of four";
}

TEST(SearchList, IsThatOfTheLastLine) {
  const auto search = parseSearchList("# search x\nnameserver 192.0.2.1\ndomain a.test\nsearch  B.test\tc.test. \r\noptions ndots:5");
  ASSERT_TRUE(search);
  ASSERT_EQ(search->size(), 2u);
  EXPECT_EQ((*search)[0].toString(), "b.test.");
  EXPECT_EQ((*search)[1].toString(), "c.test.");
  EXPECT_EQ(parseSearchList("domain a.test")->size(), 1u);
  for (const char* text : {"", "search", "nameserver 192.0.2.1\n", "search a..b"}) EXPECT_FALSE(parseSearchList(text));
}

}  // namespace
}  // namespace idetcd::directive
