#include "directive/chaos/chaos.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/query_fixture.h"

namespace idetcd::directive {
namespace {

constexpr uint16_t kTxt = 16;
constexpr uint16_t kSrv = 33;
constexpr uint16_t kChaos = 3;

resolve::QueryOutcome ask(Message& message) {
  const ChaosTexts texts{.version = "CoreDNS-001", .authors = {"Ann", "Bob"}};
  dns::Query query;
  dns::parseQuery(message.data(), message.size(), Message::kSeed, query);
  const resolve::QueryOutcome outcome = answerChaos(texts, query, {.response_limit = 512}, 0);
  message.setResponse(outcome.size);
  return outcome;
}

std::vector<std::string> textsOf(const Message& message) {
  std::vector<std::string> texts;
  for (const auto& record : message.records()) {
    EXPECT_EQ(record.type, kTxt);
    EXPECT_EQ(record.ttl, 0u);
    const auto rdata = message.rdata(record);
    EXPECT_EQ(rdata.at(0), rdata.size() - 1);
    texts.emplace_back(rdata.begin() + 1, rdata.end());
  }
  return texts;
}

TEST(Chaos, SaysVersionAndAuthors) {
  for (const char* name : {"version.bind.", "VERSION.server."}) {
    Message message(name, kTxt, std::nullopt, kChaos);
    ask(message);
    EXPECT_EQ(message.rcode(), 0);
    EXPECT_EQ(textsOf(message), std::vector<std::string>{"CoreDNS-001"});
  }
  Message authors("authors.bind.", kTxt, std::nullopt, kChaos);
  ask(authors);
  EXPECT_EQ(textsOf(authors), (std::vector<std::string>{"Ann", "Bob"}));
}

TEST(Chaos, OtherTypesHaveNoAnswer) {
  Message message("authors.bind.", kSrv, std::nullopt, kChaos);
  EXPECT_FALSE(ask(message).isNext());
  EXPECT_EQ(message.rcode(), 0);
  EXPECT_EQ(message.answers(), 0);
}

TEST(Chaos, LeavesOtherNamesAndClassesAlone) {
  for (const char* name : {"id.server.", "hostname.bind.", "x.version.bind.", "bind."}) {
    Message message(name, kTxt, std::nullopt, kChaos);
    EXPECT_TRUE(ask(message).isNext()) << name;
  }
  Message internet("version.bind.", kTxt);
  EXPECT_TRUE(ask(internet).isNext());
}

}  // namespace
}  // namespace idetcd::directive
