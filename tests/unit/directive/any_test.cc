#include "directive/values/values.h"

#include <gtest/gtest.h>

#include "support/query_fixture.h"

namespace idetcd::directive {
namespace {

TEST(Any, IsAnsweredWithOneShortRecord) {
  Message message("big.example.", 255, 1232);
  dns::Query query;
  ASSERT_EQ(dns::parseQuery(message.data(), message.size(), Message::kSeed, query), dns::ParseOutcome::kQuery);
  message.setResponse(answerAny(query, 1232, dns::kFlagRa).size);
  EXPECT_EQ(message.rcode(), 0);
  EXPECT_TRUE(message.flag(dns::kFlagRa));
  EXPECT_FALSE(message.flag(dns::kFlagAa)) << "it is unknown whether the name exists";
  ASSERT_EQ(message.answers(), 1);
  const auto record = message.records()[0];
  EXPECT_EQ(record.owner, "big.example.");
  EXPECT_EQ(record.type, dns::code(dns::RrType::kHinfo));
  EXPECT_EQ(record.ttl, 8482u);
  EXPECT_EQ(message.rdata(record), (std::vector<uint8_t>{7, 'R', 'F', 'C', '8', '4', '8', '2', 0}));
  EXPECT_EQ(message.additionals(), 1) << "OPT";
}

TEST(Any, LeavesOtherTypesAlone) {
  for (const uint16_t type : {1, 13, 46, 252, 254, 256}) {
    Message message("big.example.", type);
    dns::Query query;
    if (dns::parseQuery(message.data(), message.size(), Message::kSeed, query) != dns::ParseOutcome::kQuery) continue;
    EXPECT_TRUE(answerAny(query, 512, 0).isNext()) << type;
  }
}

}  // namespace
}  // namespace idetcd::directive
