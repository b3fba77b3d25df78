#include "directive/template/template_handler.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "config/regex.h"
#include "support/metric_values.h"
#include "support/query_fixture.h"

namespace idetcd::directive {
namespace {

class TemplateHandlerTest : public testing::Test {
 protected:
  TemplateRule rule(const std::string& zone, const std::string& match, const std::string& answer) {
    TemplateRule made{.type = 1, .zones = {dns::Name::parse(zone).value()}};
    made.match.push_back(config::compileRegex(match).value());
    made.answers.push_back(RecordTemplate::parse(answer).value());
    return made;
  }
  void use(std::vector<TemplateRule> rules) {
    handler_ = std::make_unique<TemplateHandler>(std::make_shared<const std::vector<TemplateRule>>(std::move(rules)),
                                                 chain_, nullptr, registry_.scope());
  }
  resolve::QueryOutcome ask(Message& message) {
    dns::Query query;
    EXPECT_EQ(dns::parseQuery(message.data(), message.size(), Message::kSeed, query), dns::ParseOutcome::kQuery);
    const resolve::QueryOutcome outcome = handler_->answer(query, {.response_limit = 512}, 0);
    message.setResponse(outcome.size);
    return outcome;
  }

  metrics::Registry registry_;
  resolve::Chain chain_;
  std::unique_ptr<TemplateHandler> handler_;
};

TEST_F(TemplateHandlerTest, TheFirstRuleForTheNameAnswers) {
  std::vector<TemplateRule> rules;
  rules.push_back(rule("example.org.", "^ip-([0-9]+)[.]", "{{ .Name }} 60 IN A 192.0.2.{{ index .Match 1 }}"));
  rules.back().fallthrough.push_back(dns::Name::parse("example.org.").value());
  rules.push_back(rule("b.example.org.", ".*", "{{ .Name }} 60 IN A 198.51.100.1"));
  use(std::move(rules));

  Message first("ip-7.b.example.org.", 1);
  ASSERT_FALSE(ask(first).isNext());
  EXPECT_EQ(first.rdata(first.records()[0]), (std::vector<uint8_t>{192, 0, 2, 7}));
  EXPECT_TRUE(first.flag(dns::kFlagAa));
  Message second("www.b.example.org.", 1);
  ASSERT_FALSE(ask(second).isNext());
  EXPECT_EQ(second.rdata(second.records()[0]), (std::vector<uint8_t>{198, 51, 100, 1}));
  for (Message other : {Message("www.example.org.", 1), Message("ip-7.example.net.", 1), Message("ip-7.example.org.", 28)})
    EXPECT_TRUE(ask(other).isNext()) << other.records().size();
  Message every("ip-7.example.org.", 255);
  EXPECT_FALSE(ask(every).isNext()) << "ANY is for every template";
  EXPECT_EQ(test_support::sumOf(registry_, "coredns_template_matches_total"), 3);
}

TEST_F(TemplateHandlerTest, WithoutFallthroughOrARecordItIsAFailure) {
  std::vector<TemplateRule> rules;
  rules.push_back(rule("example.org.", "^ip-([0-9]+)[.]", "{{ .Name }} 60 IN A 192.0.2.{{ index .Match 1 }}"));
  use(std::move(rules));
  Message other("www.example.org.", 1);
  ASSERT_FALSE(ask(other).isNext());
  EXPECT_EQ(other.rcode(), 2);
  EXPECT_EQ(test_support::sumOf(registry_, "idetcd_template_failures_total"), 0);
  Message wrong("ip-256.example.org.", 1);
  ASSERT_FALSE(ask(wrong).isNext());
  EXPECT_EQ(wrong.rcode(), 2);
  EXPECT_EQ(test_support::sumOf(registry_, "idetcd_template_failures_total"), 1);
}

}  // namespace
}  // namespace idetcd::directive
