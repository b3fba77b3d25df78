#include "directive/log/query_log.h"

#include <gtest/gtest.h>

#include "dns/response.h"
#include "support/query_fixture.h"

namespace idetcd::directive {
namespace {

class QueryLogTest : public testing::Test {
 protected:
  std::string render(std::string_view format_text, Message message, dns::Rcode rcode, const char* source = "192.0.2.1",
                     resolve::Transport transport = resolve::Transport::kUdp) {
    const auto format = LogFormat::parse(format_text);
    dns::Query query;
    dns::parseQuery(message.data(), message.size(), Message::kSeed, query);
    const size_t size = dns::ResponseBuilder(query, 512).finish(rcode, dns::kFlagRa);
    sockaddr_storage storage;
    SocketAddress{.ip = *IpAddress::parse(source), .port = 50759}.toSockaddr(&storage);
    const SocketAddress local{.ip = *IpAddress::parse("127.0.0.1"), .port = 53};
    const resolve::Request request{.source = reinterpret_cast<const sockaddr*>(&storage),
                                   .local = &local,
                                   .transport = transport,
                                   .response_limit = 512};
    return format.render(query, request, {message.data(), size}, std::chrono::nanoseconds(37'990'251));
  }
};

TEST_F(QueryLogTest, CommonFormatIsCoreDnss) {
  EXPECT_EQ(render("{common}", Message("Example.org.", 1, 4096), dns::Rcode::kNoError, "::1"),
            "[::1]:50759 - 48879 \"A IN example.org. udp 40 false 4096\" NOERROR qr,rd,ra 40 0.037990251s");
}

TEST_F(QueryLogTest, CombinedAddsTheOpcode) {
  EXPECT_EQ(
      render("{combined}", Message("example.org.", 28), dns::Rcode::kNxDomain),
      "192.0.2.1:50759 - 48879 \"AAAA IN example.org. udp 29 false 512\" NXDOMAIN qr,rd,ra 29 0.037990251s \"0\"");
}

TEST_F(QueryLogTest, OwnFormat) {
  EXPECT_EQ(render("{proto} {local} {type}/{class} {rcode}", Message("a.", 65280, std::nullopt, 3),
                   dns::Rcode::kServFail, "192.0.2.1", resolve::Transport::kTcp),
            "tcp 127.0.0.1 TYPE65280/CH SERVFAIL");
}

TEST_F(QueryLogTest, JsonIsText) {
  EXPECT_EQ(render(R"({"name": "{name}", "rcode": {"text": "{rcode}"}})", Message("a.", 1), dns::Rcode::kNoError),
            R"({"name": "a.", "rcode": {"text": "NOERROR"}})");
}

TEST_F(QueryLogTest, WhatIsNoPlaceholderIsText) {
  const std::pair<const char*, const char*> cases[] = {
      {"{colour} {type}", "{colour} A"}, {"{type", "{type"},       {"} {type}", "} A"},
      {"{} {{type}}", "{} {A}"},         {"{/}", "{/}"},           {"", ""},
      {"{/geo/city}{name}", "-a."},      {"{{common", "{{common"},
  };
  for (const auto& [format, line] : cases) {
    EXPECT_EQ(render(format, Message("a.", 1), dns::Rcode::kNoError), line) << format;
  }
}

TEST(ClassifyResponse, ByRcodeAndSections) {
  const auto classify = [](uint16_t flags, uint16_t answers, uint16_t authorities) {
    std::array<uint8_t, 12> header{};
    dns::store16(&header[2], flags);
    dns::store16(&header[6], answers);
    dns::store16(&header[8], authorities);
    return classifyResponse(header);
  };
  EXPECT_EQ(classify(0, 1, 0), ResponseClass::kSuccess);
  EXPECT_EQ(classify(0, 0, 0), ResponseClass::kSuccess) << "whoami answers in the additional section";
  EXPECT_EQ(classify(0, 0, 1), ResponseClass::kDenial);
  EXPECT_EQ(classify(3, 0, 1), ResponseClass::kDenial);
  EXPECT_EQ(classify(2, 0, 0), ResponseClass::kError);
  EXPECT_EQ(classify(5, 0, 0), ResponseClass::kError);
}

}  // namespace
}  // namespace idetcd::directive
