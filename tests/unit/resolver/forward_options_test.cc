// Options of `forward` that say how servers are turned to.
#include <gtest/gtest.h>

#include "support/forward_fixture.h"

namespace idetcd::resolver {
namespace {

using dns::Rcode;

class ForwardOptionsTest : public ForwardFixture {
 protected:
  static void refuseAll(const Asked& asked, const Reply& reply) { reply.send(asked.response(0x8182).bytes); }
  static std::vector<UpstreamTarget> targetsOf(const std::vector<FakeUpstream*>& servers) {
    std::vector<UpstreamTarget> targets;
    for (const FakeUpstream* server : servers) targets.push_back(server->target());
    return targets;
  }
};

TEST_F(ForwardOptionsTest, TheSourceAddressIsThatOfDatagramsAndConnections) {
  auto& server = upstream(answerAll);
  Forwarder::Options options = optionsFor({server.target()});
  options.source_address = IpAddress::v4({127, 0, 0, 2});
  make(options);
  // The second one from a socket that the first has used.
  for (const char* name : {"a.example.org.", "b.example.org."}) EXPECT_EQ(resolve(name).rcode, Rcode::kNoError);
  resolve(Question{.name = "c.example.org.", .transport = resolve::Transport::kTcp});
  ASSERT_EQ(server.asked().size(), 3u);
  EXPECT_TRUE(server.asked().back().over_tcp);
  for (const Asked& asked : server.asked()) EXPECT_EQ(asked.from.ip.toString(), "127.0.0.2");
  EXPECT_NE(server.asked()[0].from.port, server.asked()[1].from.port);
}

TEST_F(ForwardOptionsTest, AnAddressOfAnotherFamilyIsNoSource) {
  auto& server = upstream(answerAll);
  Forwarder::Options options = optionsFor({server.target()});
  options.source_address = IpAddress::parse("::1").value();
  make(options);
  EXPECT_EQ(resolve().rcode, Rcode::kNoError);
  EXPECT_EQ(server.asked().front().from.ip.toString(), "127.0.0.1");
}

TEST_F(ForwardOptionsTest, ASourceThatIsNotHereIsTheServersFailure) {
  auto& server = upstream(answerAll);
  Forwarder::Options options = hastyOptionsFor({server.target()});
  options.source_address = IpAddress::parse("192.0.2.77").value();
  make(options);
  const ForwardResult result = resolve();
  EXPECT_EQ(result.rcode, Rcode::kServFail);
  EXPECT_NE(result.reason.find("Cannot assign requested address"), std::string::npos) << result.reason;
}

TEST_F(ForwardOptionsTest, MaxConnectAttemptsEndsTheSearch) {
  auto& first = upstream(refuseAll);
  auto& second = upstream(refuseAll);
  auto& third = upstream(answerAll);
  Forwarder::Options options = optionsFor(targetsOf({&first, &second, &third}));
  make(options);
  EXPECT_EQ(resolve().rcode, Rcode::kNoError);
  EXPECT_EQ(third.asked().size(), 1u);
  options.max_connect_attempts = 2;
  make(options);
  EXPECT_EQ(resolve("b.example.org.").rcode, Rcode::kServFail);
  EXPECT_EQ(second.asked().size(), 2u);
  EXPECT_EQ(third.asked().size(), 1u) << "not asked";
}

TEST_F(ForwardOptionsTest, MaxConnectAttemptsCountsTheSameServerOverTcp) {
  auto& server = upstream([](const Asked& asked, const Reply& reply) {
    if (asked.over_tcp) reply.send(asked.answer());
  });
  Forwarder::Options options = hastyOptionsFor({server.target()});
  options.max_fails = 0;  // no probes
  make(options);
  EXPECT_EQ(resolve().rcode, Rcode::kNoError);
  EXPECT_EQ(server.tcpCount(), 1u);
  options.max_connect_attempts = 1;
  make(options);
  EXPECT_EQ(resolve("b.example.org.").rcode, Rcode::kServFail);
  EXPECT_EQ(server.tcpCount(), 1u);
}

TEST_F(ForwardOptionsTest, ATruncatedAnswerIsFetchedWhateverTheAttempts) {
  auto& server = upstream([](const Asked& asked, const Reply& reply) {
    reply.send(asked.over_tcp ? asked.answer() : asked.response(0x8380).bytes);
  });
  Forwarder::Options options = optionsFor({server.target()});
  options.max_connect_attempts = 1;
  make(options);
  EXPECT_EQ(resolve().rcode, Rcode::kNoError);
  EXPECT_EQ(server.tcpCount(), 1u);
}

TEST_F(ForwardOptionsTest, NextOnNodataPassesOnWhatHasNoAnswer) {
  auto& server = upstream([](const Asked& asked, const Reply& reply) {
    auto response = asked.response(asked.name() == "none.example.org." ? 0x8183 : 0x8180);
    if (asked.name() == "some.example.org.") return reply.send(asked.answer());
    reply.send(response.soa("example.org.", 60, 60).bytes);
  });
  Forwarder::Options options = optionsFor({server.target()});
  make(options);
  EXPECT_FALSE(resolve("empty.example.org.").next);
  options.next_on_nodata = true;
  make(options);
  EXPECT_TRUE(resolve("empty.example.org.").next);
  EXPECT_FALSE(resolve("some.example.org.").next);
  EXPECT_FALSE(resolve("none.example.org.").next) << "that is NXDOMAIN";
}

TEST_F(ForwardOptionsTest, TheOfferedPayloadIsTheOption) {
  auto& server = upstream(answerAll);
  Forwarder::Options options = optionsFor({server.target()});
  make(options);
  resolve("a.example.org.");
  EXPECT_EQ(server.asked().back().query.udp_payload, 1232);
  options.udp_payload = 700;
  make(options);
  resolve(Question{.name = "b.example.org.", .edns = 4096});
  EXPECT_EQ(server.asked().back().query.udp_payload, 700) << "whatever the client offers";
}

}  // namespace
}  // namespace idetcd::resolver
