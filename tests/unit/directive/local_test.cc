#include "directive/local/local.h"

#include <optional>
#include <string>
#include <sys/socket.h>

#include <gtest/gtest.h>

#include "dns/types.h"
#include "support/metric_values.h"
#include "support/query_fixture.h"

namespace idetcd::directive {
namespace {

class LocalTest : public testing::Test {
 protected:
  resolve::QueryOutcome ask(Message& message, bool prefix = true) {
    Local local(prefix, {}, registry_.scope());
    dns::Query query;
    EXPECT_EQ(dns::parseQuery(message.data(), message.size(), Message::kSeed, query), dns::ParseOutcome::kQuery);
    const resolve::QueryOutcome outcome = local.answer(query, {.response_limit = 512}, 0);
    message.setResponse(outcome.size);
    return outcome;
  }

  metrics::Registry registry_;
};

struct Case {
  const char* question;
  const char* type;
  int rcode;
  const char* answer;  // its type; null: there is none
  const char* soa;     // the owner of the one in the authority section; null: there is none
};

// CoreDNS's table, but for a.localhost.
TEST_F(LocalTest, AnswersAsCoreDns) {
  constexpr Case kCases[]{
      {"localhost.", "A", 0, "A", nullptr},
      {"localhost.", "AAAA", 0, "AAAA", nullptr},
      {"localhost.", "NS", 0, "NS", nullptr},
      {"localhost.", "SOA", 0, "SOA", nullptr},
      {"127.in-addr.arpa.", "A", 0, nullptr, "127.in-addr.arpa."},
      {"localhost.", "MX", 0, nullptr, "localhost."},
      {"a.localhost.", "A", 0, "A", nullptr},
      {"1.0.0.127.in-addr.arpa.", "PTR", 0, "PTR", nullptr},
      {"1.0.0.127.in-addr.arpa.", "MX", 0, nullptr, "127.in-addr.arpa."},
      {"2.0.0.127.in-addr.arpa.", "PTR", 3, nullptr, "127.in-addr.arpa."},
      {"localhost.example.net.", "A", 0, "A", nullptr},
      {"localhost.example.net.", "AAAA", 0, "AAAA", nullptr},
      {"localhost.example.net.", "SOA", 0, nullptr, "localhost.example.net."},
      {"255.in-addr.arpa.", "NS", 0, "NS", nullptr},
      {"0.in-addr.arpa.", "SOA", 0, "SOA", nullptr},
      {"9.0.in-addr.arpa.", "PTR", 3, nullptr, "0.in-addr.arpa."},
      {"0.0.127.in-addr.arpa.", "PTR", 0, nullptr, "127.in-addr.arpa."},
      {"x.1.0.0.127.in-addr.arpa.", "PTR", 3, nullptr, "127.in-addr.arpa."},
  };
  for (const Case& each : kCases) {
    SCOPED_TRACE(std::string(each.question) + ' ' + each.type);
    Message message(each.question, dns::kTypeNames.parse(each.type).value());
    ASSERT_FALSE(ask(message).isNext());
    EXPECT_EQ(message.rcode(), each.rcode);
    EXPECT_EQ(message.answers(), each.answer != nullptr ? 1 : 0);
    EXPECT_EQ(message.authorities(), each.soa != nullptr ? 1 : 0);
    const auto records = message.records();
    ASSERT_EQ(records.size(), 1u);
    EXPECT_EQ(records[0].ttl, 604800u);
    EXPECT_EQ(records[0].owner, each.soa != nullptr ? each.soa : each.question);
    EXPECT_EQ(dns::kTypeNames.toString(records[0].type), each.soa != nullptr ? "SOA" : each.answer);
  }
}

TEST_F(LocalTest, RecordsAreThoseOfCoreDns) {
  Message address("localhost.", 1);
  ask(address);
  EXPECT_EQ(address.rdata(address.records().at(0)), (std::vector<uint8_t>{127, 0, 0, 1}));
  Message soa("localhost.", 6);
  ask(soa);
  const auto record = soa.records().at(0);
  size_t pos = record.rdata;
  EXPECT_EQ(soa.nameAt(pos), "localhost.");
  EXPECT_EQ(soa.nameAt(pos), "root.localhost.");
  const auto rdata = soa.rdata(record);
  ASSERT_EQ(rdata.size(), pos - record.rdata + 20);
  EXPECT_EQ(dns::load32(&rdata[rdata.size() - 20]), 1u) << "the serial";
  EXPECT_EQ(dns::load32(&rdata[rdata.size() - 4]), 604800u) << "how long a denial holds";
}

TEST_F(LocalTest, LeavesOtherNamesAlone) {
  for (const char* name : {".", "example.", "xlocalhost.", "localhosts.example.", "www.localhost.example.", "arpa.",
                           "128.in-addr.arpa.", "1.0.0.10.in-addr.arpa."}) {
    Message message(name, 1);
    EXPECT_TRUE(ask(message).isNext()) << name;
  }
  Message prefixed("localhost.example.net.", 1);
  EXPECT_TRUE(ask(prefixed, false).isNext());
  Message below("a.localhost.", 1);
  EXPECT_FALSE(ask(below, false).isNext());
}

TEST_F(LocalTest, CountsWhatIsNotLocalhostItself) {
  for (const char* name : {"localhost.", "a.localhost.", "localhost.example.", "127.in-addr.arpa."}) {
    Message message(name, 1);
    ask(message);
  }
  EXPECT_EQ(test_support::sumOf(registry_, "coredns_local_localhost_requests_total"), 2);
}

}  // namespace
}  // namespace idetcd::directive
