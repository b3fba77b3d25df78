// Upstreams that lie, stammer, fall silent and come back.
#include <algorithm>
#include <chrono>
#include <list>
#include <set>

#include <gtest/gtest.h>

#include "../net/sockets.h"
#include "support/forward_fixture.h"
#include "support/free_port.h"
#include "support/metric_values.h"

namespace idetcd::resolver {
namespace {

using dns::EdeCode;
using dns::Rcode;

class ForwardHostileTest : public ForwardFixture {
 protected:
  // Asks one server that first says `lies`, then the truth.
  void expectTruthAfter(const std::function<std::vector<Bytes>(const Asked&)>& lies) {
    auto& server = upstream([lies](const Asked& asked, const Reply& reply) {
      for (const Bytes& lie : lies(asked)) reply.send(lie);
      reply.send(asked.answer(7));
    });
    make(optionsFor({server.target()}));
    EXPECT_EQ(lastOctet(resolve()), 7);
    EXPECT_EQ(server.udpCount(), 1u) << "it was still the first attempt";
    EXPECT_EQ(server.tcpCount(), 0u);
  }
  // Asks a server that behaves like this, and then a good one.
  void expectNextServerAfter(const FakeUpstream::Handler& bad) {
    auto& first = upstream(bad);
    auto& second = upstream([](const Asked& asked, const Reply& reply) { reply.send(asked.answer(2)); });
    make(optionsFor({first.target(), second.target()}));
    const auto start = BootClock::now();
    EXPECT_EQ(lastOctet(resolve()), 2);
    EXPECT_LT(BootClock::now() - start, kTimeout / 2) << "without waiting for the end of the attempt";
  }
  static Bytes withId(Bytes message, uint16_t id) {
    dns::store16(message.data(), id);
    return message;
  }
  static void expectFailure(const ForwardResult& result, EdeCode ede) {
    EXPECT_FALSE(result.response);
    EXPECT_EQ(result.rcode, Rcode::kServFail);
    EXPECT_EQ(result.ede, ede);
    EXPECT_FALSE(result.reason.empty());
  }
};

// --- what is no answer is discarded, and the answer still waited for ---

TEST_F(ForwardHostileTest, WrongId) {
  expectTruthAfter([](const Asked& asked) {
    return std::vector<Bytes>{withId(asked.answer(1), static_cast<uint16_t>(asked.id() + 1)),
                              withId(asked.answer(1), static_cast<uint16_t>(~asked.id()))};
  });
}

TEST_F(ForwardHostileTest, WrongQuestion) {
  expectTruthAfter([](const Asked& asked) {
    return std::vector<Bytes>{
        UpstreamMessage("www.example.com.", 1, 0x8180, asked.id()).a("www.example.com.", 60, {192, 0, 2, 1}).bytes,
        UpstreamMessage(asked.name(), 28, 0x8180, asked.id()).bytes,
        UpstreamMessage("example.org.", 1, 0x8183, asked.id()).bytes};
  });
}

TEST_F(ForwardHostileTest, TheQueryItselfComesBack) {
  expectTruthAfter([](const Asked& asked) { return std::vector<Bytes>{asked.bytes, asked.response(0x0100).bytes}; });
}

TEST_F(ForwardHostileTest, Garbage) {
  expectTruthAfter([](const Asked& asked) {
    return std::vector<Bytes>{{},
                              {0},
                              Bytes(11, 0xff),
                              Bytes(512, 0xff),
                              withId(Bytes(512, 0xff), asked.id()),
                              withId(Bytes(12, 0), asked.id())};
  });
}

TEST_F(ForwardHostileTest, OtherOpcodes) {
  expectTruthAfter([](const Asked& asked) {
    return std::vector<Bytes>{asked.response(0xa180).bytes, asked.response(0xf980).bytes};
  });
}

// Of a thousand guesses one is right; of what comes over UDP after the fourth, nothing counts.
TEST_F(ForwardHostileTest, AThousandGuesses) {
  auto& server = upstream([](const Asked& asked, const Reply& reply) {
    if (asked.over_tcp) return reply.send(asked.answer(7));
    for (int i = 1; i <= 1000; ++i) reply.send(withId(asked.answer(1), static_cast<uint16_t>(asked.id() + i - 5)));
  });
  make(optionsFor({server.target()}));
  EXPECT_EQ(lastOctet(resolve()), 7);
  EXPECT_EQ(server.udpCount(), 1u);
  EXPECT_EQ(server.tcpCount(), 1u);
  EXPECT_EQ(counted("idetcd_forward_discarded_total"), 4u);
  EXPECT_EQ(counted("idetcd_forward_suspected_spoofing_total"), 1u);
}

TEST_F(ForwardHostileTest, ThreeGuessesAreStrays) {
  expectTruthAfter([](const Asked& asked) {
    return std::vector<Bytes>{withId(asked.answer(1), static_cast<uint16_t>(asked.id() + 1)), Bytes(512, 0xff),
                              asked.response(0xa180).bytes};
  });
  EXPECT_EQ(counted("idetcd_forward_suspected_spoofing_total"), 0u);
}

TEST_F(ForwardHostileTest, GuessesOfAllKindsCount) {
  auto& server = upstream([](const Asked& asked, const Reply& reply) {
    if (asked.over_tcp) return reply.send(asked.answer(7));
    for (int i = 1; i <= 2; ++i) {
      reply.send(withId(asked.answer(1), static_cast<uint16_t>(asked.id() + i)));
      reply.send(UpstreamMessage("www.example.com.", 1, 0x8180, asked.id()).bytes);
    }
    reply.send(asked.answer(1));
  });
  make(optionsFor({server.target()}));
  EXPECT_EQ(lastOctet(resolve()), 7);
  EXPECT_EQ(counted("idetcd_forward_suspected_spoofing_total"), 1u);
}

// Where nobody can be asked over TCP the question fails: over UDP the next guess may be right.
TEST_F(ForwardHostileTest, GuessesAtAServerWithoutTcp) {
  FakeUpstream server(
      loop_,
      [](const Asked& asked, const Reply& reply) {
        for (int i = 1; i <= 4; ++i) reply.send(withId(asked.answer(1), static_cast<uint16_t>(asked.id() + i)));
        reply.send(asked.answer(7));
      },
      0, false);
  make(optionsFor({server.target()}));
  expectFailure(resolve(), EdeCode::kNetworkError);
  const auto questions =
      std::ranges::count_if(server.asked(), [](const Asked& asked) { return asked.query.qtype == 1; });
  EXPECT_EQ(questions, 1) << "the rest are probes";
}

// --- 0x20 ---

class ForwardCaseTest : public ForwardHostileTest {
 protected:
  static constexpr const char* kName = "www.abcdefghijklmnopqrstuvwxyz.example.org.";
  void make(FakeUpstream& server) {
    Forwarder::Options options = optionsFor({server.target()});
    options.use_caps_for_id = true;
    ForwardHostileTest::make(options);
  }
  static std::string nameAsAsked(const Asked& asked) {
    return dns::nameToString(asked.bytes.data() + dns::kHeaderSize);
  }
};

TEST_F(ForwardCaseTest, EachQuestionHasACaseOfItsOwn) {
  auto& server = upstream([](const Asked& asked, const Reply& reply) {
    Bytes message = asked.answer(7);
    std::copy_n(asked.bytes.begin() + dns::kHeaderSize, asked.query.qname_size, message.begin() + dns::kHeaderSize);
    reply.send(message);
  });
  make(server);
  std::set<std::string> cases;
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(lastOctet(resolve(kName)), 7);
    cases.insert(nameAsAsked(server.asked().back()));
    EXPECT_EQ(server.asked().back().name(), kName);
  }
  EXPECT_EQ(cases.size(), 8u) << "35 letters each";
  EXPECT_EQ(server.tcpCount(), 0u);
  EXPECT_EQ(counted("idetcd_forward_suspected_spoofing_total"), 0u);
}

TEST_F(ForwardCaseTest, AnotherCaseIsNotBelieved) {
  auto& server =
      upstream([](const Asked& asked, const Reply& reply) { reply.send(asked.answer(asked.over_tcp ? 7 : 1)); });
  make(server);
  EXPECT_EQ(lastOctet(resolve(kName)), 7);
  EXPECT_EQ(server.udpCount(), 1u);
  EXPECT_EQ(server.tcpCount(), 1u);
  EXPECT_EQ(counted("idetcd_forward_suspected_spoofing_total"), 1u);
}

TEST_F(ForwardCaseTest, OffUnlessAskedFor) {
  auto& server = upstream([](const Asked& asked, const Reply& reply) { reply.send(asked.answer(7)); });
  ForwardHostileTest::make(optionsFor({server.target()}));
  EXPECT_EQ(lastOctet(resolve(kName)), 7);
  EXPECT_EQ(nameAsAsked(server.asked().back()), kName);
}

TEST_F(ForwardHostileTest, OtherPortsAndAddressesAreNotHeard) {
  const auto other_port = net::UdpSocket::bind({.ip = IpAddress::v4({127, 0, 0, 1})}, false).value();
  auto& server = upstream({});
  // The same port, but of another address.
  const auto other_address =
      net::UdpSocket::bind({.ip = IpAddress::v4({127, 0, 0, 2}), .port = server.port()}, false).value();
  server.handle([&](const Asked& asked, const Reply& reply) {
    net::UdpPeer peer;
    sockaddr_storage storage;
    peer.source_size = asked.from.toSockaddr(&storage);
    std::memcpy(&peer.source, &storage, peer.source_size);
    test_support::sendReply(other_port, peer, asked.answer(1));
    test_support::sendReply(other_address, peer, asked.answer(1));
    reply.send(asked.answer(7));
  });
  make(optionsFor({server.target()}));
  EXPECT_EQ(lastOctet(resolve()), 7);
}

TEST_F(ForwardHostileTest, ALateAnswerIsNobodys) {
  std::vector<std::pair<Asked, Reply>> first;
  auto& slow = upstream([&first](const Asked& asked, const Reply& reply) { first.emplace_back(asked, reply); });
  auto& good = upstream([](const Asked& asked, const Reply& reply) { reply.send(asked.answer(2)); });
  make(failoverOptionsFor({slow.target(), good.target()}));
  EXPECT_EQ(lastOctet(resolve()), 2);
  ASSERT_FALSE(first.empty());
  first.front().second.send(first.front().first.answer(1));
  runFor(milliseconds(20));
  EXPECT_EQ(lastOctet(resolve("other.example.org.")), 2);
}

// --- answers that are of no use: the next server ---

TEST_F(ForwardHostileTest, TruncatedRdata) {
  expectNextServerAfter([](const Asked& asked, const Reply& reply) {
    Bytes message = asked.answer(1);
    message.pop_back();
    reply.send(message);
  });
}

TEST_F(ForwardHostileTest, CountsThatLie) {
  expectNextServerAfter([](const Asked& asked, const Reply& reply) {
    reply.send(asked.response().count(UpstreamMessage::kAnswer, 500).bytes);
  });
}

TEST_F(ForwardHostileTest, CompressionLoops) {
  expectNextServerAfter([](const Asked& asked, const Reply& reply) {
    UpstreamMessage message = asked.response().count(UpstreamMessage::kAnswer);
    const auto here = static_cast<uint8_t>(message.bytes.size());
    reply.send(message.raw({0xc0, here, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1}).bytes);
  });
}

TEST_F(ForwardHostileTest, CnameLoops) {
  expectNextServerAfter([](const Asked& asked, const Reply& reply) {
    reply.send(asked.response().cname(asked.name(), "a.example.").cname("a.example.", asked.name()).bytes);
  });
}

TEST_F(ForwardHostileTest, RefusedPort) {
  // Its sockets take nothing from us, and as long as they have the port no other test does: the one hears only its peer, and
  // the other does not listen.
  const uint16_t port = test_support::freePort();
  net::test::Socket closed(SOCK_DGRAM, net::test::address("127.0.0.1", port));
  ASSERT_TRUE(closed.ok() && closed.connect(net::test::address("127.0.0.1", 9)));
  const net::test::Socket closed_to_streams(SOCK_STREAM, net::test::address("127.0.0.1", port));
  auto& good = upstream(answerAll);
  const UpstreamTarget nobody{.server = UpstreamAddress{.address = {.ip = IpAddress::v4({127, 0, 0, 1}), .port = port}},
                              .file = {}};
  make(optionsFor({nobody, good.target()}));
  const auto start = BootClock::now();
  EXPECT_EQ(lastOctet(resolve()), 1);
  EXPECT_LT(BootClock::now() - start, kTimeout / 2) << "without waiting for the end of the attempt";
  make(optionsFor({nobody}));
  const ForwardResult result = resolve();
  expectFailure(result, EdeCode::kNetworkError);
  EXPECT_NE(result.reason.find("Connection refused"), std::string::npos) << result.reason;
}

TEST_F(ForwardHostileTest, ServfailIsAnAnswerWhereFailoverDoesNotNameIt) {
  auto& server = upstream([](const Asked& asked, const Reply& reply) { reply.send(asked.response(0x8182).bytes); });
  auto& unasked = upstream(answerAll);
  Forwarder::Options options = optionsFor({server.target(), unasked.target()});
  options.failover = {Rcode::kRefused};
  make(options);
  const ForwardResult result = resolve();
  ASSERT_TRUE(result.response);
  EXPECT_EQ(result.rcode, Rcode::kServFail);
  EXPECT_EQ(unasked.udpCount(), 0u);
}

// --- silence ---

TEST_F(ForwardHostileTest, SilenceIsFollowedByTheNextServer) {
  auto& black_hole = upstream(sayNothing);
  auto& good = upstream(answerAll);
  make(failoverOptionsFor({black_hole.target(), good.target()}));
  const auto start = BootClock::now();
  EXPECT_EQ(lastOctet(resolve()), 1);
  const auto time = BootClock::now() - start;
  EXPECT_GE(time, milliseconds(199)) << "the first one's attempt";
  EXPECT_LT(time, kTimeout / 2) << "and no more";
}

TEST_F(ForwardHostileTest, SilenceOfAllEndsInTime) {
  auto& black_hole = upstream(sayNothing);
  make(hastyOptionsFor({black_hole.target()}));
  // How often it was asked.
  const auto resolve_in_vain = [&] {
    const auto questions = [&] {
      return std::count_if(black_hole.asked().begin(), black_hole.asked().end(),
                           [](const Asked& asked) { return !asked.over_tcp && asked.query.qtype == 1; });
    };
    const auto before = questions();
    const auto start = BootClock::now();
    const ForwardResult result = resolve();
    const auto time = BootClock::now() - start;
    expectFailure(result, EdeCode::kNoReachableAuthority);
    EXPECT_NE(result.reason.find("i/o timeout"), std::string::npos) << result.reason;
    EXPECT_GE(time, milliseconds(595));
    EXPECT_LT(time, kTimeout / 2);
    return questions() - before;
  };
  auto most = resolve_in_vain();
  // This thread stands still at times, and then there is no time left for the second one.
  for (int i = 0; i < 10 && most < 2; ++i) {
    make(hastyOptionsFor({black_hole.target()}));
    most = std::max(most, resolve_in_vain());
  }
  EXPECT_EQ(most, 2) << "a datagram may have been lost: it is repeated, once";
}

TEST_F(ForwardHostileTest, ThousandsInABlackHole) {
  auto& black_hole = upstream(sayNothing);
  make(hastyOptionsFor({black_hole.target()}));
  constexpr size_t kQueries = 3000;
  std::vector<Answer> answers;
  for (size_t i = 0; i < kQueries; ++i) answers.push_back(ask(std::to_string(i) + ".example.org."));
  const auto start = BootClock::now();
  for (const Answer& answer : answers) expectFailure(wait(answer), EdeCode::kNoReachableAuthority);
  EXPECT_LT(BootClock::now() - start, kTimeout / 2) << "not one after the other";
  EXPECT_EQ(counted("idetcd_forward_failures_total"), kQueries);
  black_hole.handle(answerAll);
  EXPECT_EQ(lastOctet(resolve()), 1);
}

// --- EDNS ---

class ForwardEdnsTest : public ForwardHostileTest {
 protected:
  void expectWithoutEdns(const std::function<Bytes(const Asked&)>& refusal) {
    auto& server = upstream([refusal](const Asked& asked, const Reply& reply) {
      reply.send(asked.query.has_edns ? refusal(asked) : asked.answer(7));
    });
    make(optionsFor({server.target()}));
    EXPECT_EQ(lastOctet(resolve()), 7);
    EXPECT_EQ(server.udpCount(), 2u);
    EXPECT_EQ(lastOctet(resolve("other.example.org.")), 7);
    EXPECT_EQ(server.udpCount(), 3u) << "it is remembered";
  }
};

TEST_F(ForwardEdnsTest, FormerrWithQuestion) {
  expectWithoutEdns([](const Asked& asked) { return asked.response(0x8181).bytes; });
}
TEST_F(ForwardEdnsTest, FormerrWithHeaderOnly) {
  expectWithoutEdns([](const Asked& asked) {
    Bytes header = asked.response(0x8181).bytes;
    header.resize(dns::kHeaderSize);
    dns::store16(&header[4], 0);
    return header;
  });
}
TEST_F(ForwardEdnsTest, Notimp) {
  expectWithoutEdns([](const Asked& asked) { return asked.response(0x8184).bytes; });
}
// It comes in an OPT record, so the server knows EDNS: of one name it says nothing about the others.
TEST_F(ForwardEdnsTest, BadversOfOneNameLeavesEdnsToTheOthers) {
  auto& server = upstream([](const Asked& asked, const Reply& reply) {
    const bool refuses = asked.query.has_edns && asked.name() == "bad.example.org.";
    reply.send(
        refuses ? asked.response().count(UpstreamMessage::kAdditional).raw({0, 0, 41, 4, 0xd0, 1, 0, 0, 0, 0, 0}).bytes
                : asked.answer(7));
  });
  make(optionsFor({server.target()}));
  EXPECT_EQ(lastOctet(resolve("bad.example.org.")), 7);
  EXPECT_FALSE(server.asked().back().query.has_edns);
  EXPECT_EQ(lastOctet(resolve("other.example.org.")), 7);
  EXPECT_TRUE(server.asked().back().query.has_edns);
}

// An rcode above 15 is about the message. A client would have read NOERROR in it, or a complaint about its own.
class ForwardHopFailureTest : public ForwardHostileTest, public testing::WithParamInterface<uint16_t> {};

TEST_P(ForwardHopFailureTest, IsNoAnswer) {
  const auto low_bits = static_cast<uint16_t>(0x8180 | (GetParam() & 15));
  auto& server = upstream([low_bits](const Asked& asked, const Reply& reply) {
    reply.send(
        asked.response(low_bits).count(UpstreamMessage::kAdditional).raw({0, 0, 41, 4, 0xd0, 1, 0, 0, 0, 0, 0}).bytes);
  });
  auto& other = upstream([](const Asked& asked, const Reply& reply) { reply.send(asked.answer(7)); });
  auto options = optionsFor({server.target(), other.target()});
  options.policy = Forwarder::Policy::kSequential;
  make(std::move(options));
  EXPECT_EQ(lastOctet(resolve()), 7) << "of the next server";
  EXPECT_FALSE(server.asked().back().query.has_edns) << "it was asked without EDNS, too";
  make(optionsFor({server.target()}));
  const auto failed = resolve();
  EXPECT_EQ(failed.rcode, Rcode::kServFail);
  EXPECT_EQ(failed.response, nullptr);
}

INSTANTIATE_TEST_SUITE_P(Rcodes, ForwardHopFailureTest, testing::Values(16, 17, 23),
                         [](const auto& rcode) { return dns::kRcodeNames.toString(rcode.param); });

TEST_F(ForwardEdnsTest, BadcookieOfAServerThatTakesNone) {
  auto& server = upstream([](const Asked& asked, const Reply& reply) {
    reply.send(asked.query.has_edns ? asked.response(0x8187)
                                          .count(UpstreamMessage::kAdditional)
                                          .raw({0, 0, 41, 4, 0xd0, 1, 0, 0, 0, 0, 0})
                                          .bytes
                                    : asked.answer(7));
  });
  make(optionsFor({server.target()}));
  EXPECT_EQ(lastOctet(resolve()), 7);
  const size_t count = server.udpCount();
  EXPECT_EQ(lastOctet(resolve("other.example.org.")), 7);
  EXPECT_TRUE(server.asked()[count].query.has_edns) << "that says nothing of EDNS";
}

TEST_F(ForwardEdnsTest, FormerrOfAServerThatKnowsEdnsIsTheAnswer) {
  auto& server = upstream([](const Asked& asked, const Reply& reply) {
    reply.send(
        asked.response(0x8181).count(UpstreamMessage::kAdditional).raw({0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0}).bytes);
  });
  make(optionsFor({server.target()}));
  EXPECT_EQ(resolve().rcode, Rcode::kFormErr);
  EXPECT_EQ(server.udpCount(), 1u);
}

TEST_F(ForwardEdnsTest, FormerrEitherWayIsTheAnswerAndNotRemembered) {
  auto& server = upstream([](const Asked& asked, const Reply& reply) { reply.send(asked.response(0x8181).bytes); });
  make(optionsFor({server.target()}));
  EXPECT_EQ(resolve().rcode, Rcode::kFormErr);
  EXPECT_EQ(server.udpCount(), 2u);
  resolve("other.example.org.");
  EXPECT_TRUE(server.asked()[2].query.has_edns);
}

// --- health ---

TEST_F(ForwardHostileTest, AServerThatDiesIsNotAskedUntilItIsBack) {
  auto& first = upstream([](const Asked& asked, const Reply& reply) { reply.send(asked.answer(1)); });
  auto& second = upstream([](const Asked& asked, const Reply& reply) { reply.send(asked.answer(2)); });
  Forwarder::Options options = failoverOptionsFor({first.target(), second.target()});
  options.max_fails = 1;
  options.attempt_time = milliseconds(3000);
  options.metrics = registry_.scope();
  make(options);
  const auto up = [this] { return test_support::sumOf(registry_, "idetcd_forward_server_up"); };
  const auto questions = [&first] {
    return std::count_if(first.asked().begin(), first.asked().end(),
                         [](const Asked& asked) { return asked.query.qtype == 1; });
  };
  EXPECT_EQ(lastOctet(resolve("a.example.org.")), 1);
  first.handle(sayNothing);
  EXPECT_EQ(lastOctet(resolve("b.example.org.")), 2);
  const auto before = questions();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(lastOctet(resolve(std::to_string(i) + ".example.org.")), 2);
  EXPECT_EQ(questions(), before) << "the dead one is not asked";
  EXPECT_EQ(up(), 1);
  EXPECT_TRUE(std::any_of(first.asked().begin(), first.asked().end(), [](const Asked& asked) {
    return asked.query.qtype == 2 && asked.query.qname_size == 1 && (asked.query.flags & dns::kFlagRd) != 0;
  })) << "it is probed";
  // Any answer is a sign of life.
  first.handle([](const Asked& asked, const Reply& reply) {
    reply.send(asked.query.qtype == 2 ? asked.response(0x8185).bytes : asked.answer(1));
  });
  int name = 100;
  runUntil([&] { return lastOctet(resolve(std::to_string(++name) + ".example.org.")) == 1; });
  EXPECT_EQ(up(), 2);
  const size_t asked = first.udpCount();
  runFor(milliseconds(100));
  EXPECT_EQ(first.udpCount(), asked) << "who is well is not probed";
}

TEST_F(ForwardHostileTest, ProbesAreAsConfigured) {
  auto& server = upstream(sayNothing);
  Forwarder::Options options = hastyOptionsFor({server.target()});
  options.health_check.recursion_desired = false;
  options.health_check.domain = dns::Name::parse("health.example.").value();
  make(options);
  resolve();
  runUntil([&server] { return server.asked().back().query.qtype == 2; });
  EXPECT_EQ(server.asked().back().name(), "health.example.");
  EXPECT_EQ(server.asked().back().query.flags & dns::kFlagRd, 0);
}

TEST_F(ForwardHostileTest, MaxFailsZeroNeverProbes) {
  auto& server = upstream(sayNothing);
  Forwarder::Options options = hastyOptionsFor({server.target()});
  options.max_fails = 0;
  make(options);
  resolve();
  resolve("other.example.org.");
  for (const Asked& asked : server.asked()) EXPECT_EQ(asked.query.qtype, 1);
}

TEST_F(ForwardHostileTest, WhenAllAreDownOneIsAskedAnyway) {
  auto& server = upstream(sayNothing);
  Forwarder::Options options = hastyOptionsFor({server.target()});
  options.max_fails = 1;
  make(options);
  expectFailure(resolve(), EdeCode::kNoReachableAuthority);
  // It answers all but the probes.
  server.handle([](const Asked& asked, const Reply& reply) {
    if (asked.query.qtype != 2) reply.send(asked.answer(7));
  });
  EXPECT_EQ(lastOctet(resolve()), 7);
  EXPECT_GT(counted("coredns_forward_healthcheck_broken_total"), 0u);
}

TEST_F(ForwardHostileTest, FailedHealthChecksAreCountedForEachServer) {
  auto& server = upstream(sayNothing);
  make(hastyOptionsFor({server.target()}));
  expectFailure(resolve(), EdeCode::kNoReachableAuthority);
  const std::string series = "{proxy_name=\"forward\",to=\"" + server.address().toString() + "\"}";
  runUntil(
      [&] { return test_support::valuesOf(registry_).at("coredns_proxy_healthcheck_failures_total" + series) > 0; });
}

TEST_F(ForwardHostileTest, AnswersAreTimedForEachServerAndRcode) {
  auto& server = upstream([](const Asked& asked, const Reply& reply) {
    reply.send(asked.name() == "bad." ? asked.response(0x8182).bytes : asked.answer());
  });
  make(optionsFor({server.target()}));
  for (const char* name : {"a.", "b.", "bad."}) resolve(name);
  const std::string to = "{proxy_name=\"forward\",to=\"" + server.address().toString() + "\",";
  const auto values = test_support::valuesOf(registry_);
  EXPECT_EQ(values.at("coredns_proxy_request_duration_seconds" + to + "rcode=\"NOERROR\"}"), 2);
  EXPECT_EQ(values.at("coredns_proxy_request_duration_seconds" + to + "rcode=\"SERVFAIL\"}"), 1);
  EXPECT_EQ(values.at("coredns_proxy_conn_cache_misses_total" + to + "proto=\"tcp\"}"), 0);
}

TEST_F(ForwardHostileTest, QuestionsOverAnOpenConnectionAreCounted) {
  auto& server = upstream(answerAll);
  Forwarder::Options options = optionsFor({server.target()});
  options.force_tcp = true;
  make(std::move(options));
  for (const char* name : {"a.", "b.", "c."}) resolve(name);
  EXPECT_EQ(counted("coredns_proxy_conn_cache_misses_total"), 1u);
  EXPECT_EQ(counted("coredns_proxy_conn_cache_hits_total"), 2u);
}

TEST_F(ForwardHostileTest, FailfastDoesNotAsk) {
  auto& server = upstream(sayNothing);
  Forwarder::Options options = hastyOptionsFor({server.target()});
  options.max_fails = 1;
  options.failfast_all_unhealthy_upstreams = true;
  make(options);
  resolve();
  const uint64_t attempts = counted("idetcd_forward_attempts_total");
  const ForwardResult result = resolve();
  expectFailure(result, EdeCode::kNoReachableAuthority);
  EXPECT_EQ(result.reason, "no healthy upstream");
  EXPECT_EQ(counted("idetcd_forward_attempts_total"), attempts);
}

// --- TCP ---

class ForwardTcpTest : public ForwardHostileTest {
 protected:
  // Over UDP everything is truncated; over TCP `over_tcp` answers.
  FakeUpstream& truncating(const FakeUpstream::Handler& over_tcp) {
    return upstream([over_tcp](const Asked& asked, const Reply& reply) {
      asked.over_tcp ? over_tcp(asked, reply) : reply.send(asked.response(0x8380).bytes);
    });
  }
};

TEST_F(ForwardTcpTest, TruncationIsFollowedByTcpToTheSameServer) {
  auto& server = truncating([](const Asked& asked, const Reply& reply) { reply.send(asked.answer(7)); });
  auto& unasked = upstream(answerAll);
  make(optionsFor({server.target(), unasked.target()}));
  EXPECT_EQ(lastOctet(resolve()), 7);
  EXPECT_EQ(server.udpCount(), 1u);
  EXPECT_EQ(server.tcpCount(), 1u);
  EXPECT_EQ(unasked.udpCount(), 0u);
}

TEST_F(ForwardTcpTest, TruncationOverTcpTooIsAFailure) {
  auto& server = truncating([](const Asked& asked, const Reply& reply) { reply.send(asked.response(0x8380).bytes); });
  make(optionsFor({server.target()}));
  const ForwardResult result = resolve();
  expectFailure(result, EdeCode::kNetworkError);
  EXPECT_EQ(server.udpCount() + server.tcpCount(), 2u) << "no loop";
}

TEST_F(ForwardTcpTest, ConnectionsAreUsedAgainAndShared) {
  auto& server = upstream(answerAll);
  Forwarder::Options options = optionsFor({server.target()});
  options.force_tcp = true;
  options.expire = kTimeout;
  make(options);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(lastOctet(resolve(std::to_string(i) + ".example.org.")), 1);
  EXPECT_EQ(server.connectionCount(), 1u);
  std::vector<Answer> answers;
  for (int i = 0; i < 8; ++i) answers.push_back(ask(std::to_string(i) + ".example.org."));
  for (const Answer& answer : answers) EXPECT_EQ(lastOctet(wait(answer)), 1);
  EXPECT_EQ(server.connectionCount(), 1u);
  runFor(milliseconds(200));
  resolve();
  EXPECT_EQ(server.connectionCount(), 1u) << "idle for less than `expire`";
  EXPECT_EQ(server.udpCount(), 0u);
}

TEST_F(ForwardTcpTest, AnIdleConnectionExpires) {
  auto& server = upstream(answerAll);
  Forwarder::Options options = optionsFor({server.target()});
  options.force_tcp = true;
  options.expire = milliseconds(100);
  make(options);
  EXPECT_EQ(lastOctet(resolve()), 1);
  runFor(milliseconds(200));
  EXPECT_EQ(lastOctet(resolve()), 1);
  EXPECT_EQ(server.connectionCount(), 2u);
}

TEST_F(ForwardTcpTest, HundredsAtATimeShareSomeConnections) {
  std::vector<std::pair<Asked, Reply>> waiting;
  auto& server = upstream([&](const Asked& asked, const Reply& reply) {
    waiting.emplace_back(asked, reply);
    if (waiting.size() < 500) return;
    // In any order (RFC 7766 §6.2.1.1).
    for (size_t i = waiting.size(); i-- > 0;) waiting[i].second.send(waiting[i].first.answer(7));
    waiting.clear();
  });
  Forwarder::Options options = optionsFor({server.target()});
  options.force_tcp = true;
  make(options);
  std::vector<Answer> answers;
  for (int i = 0; i < 500; ++i) answers.push_back(ask(std::to_string(i) + ".example.org."));
  for (const Answer& answer : answers) EXPECT_EQ(lastOctet(wait(answer)), 7);
  EXPECT_GT(server.connectionCount(), 1u);
  EXPECT_LE(server.connectionCount(), 64u);
}

TEST_F(ForwardTcpTest, AServerMayCloseAfterEachAnswer) {
  auto& server = upstream([](const Asked& asked, const Reply& reply) {
    reply.send(asked.answer(7));
    reply.close();
  });
  Forwarder::Options options = optionsFor({server.target()});
  options.force_tcp = true;
  make(options);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(lastOctet(resolve(std::to_string(i) + ".example.org.")), 7);
  std::vector<Answer> answers;
  for (int i = 0; i < 6; ++i) answers.push_back(ask(std::to_string(i) + ".example.org."));
  for (const Answer& answer : answers) EXPECT_EQ(lastOctet(wait(answer)), 7);
  EXPECT_EQ(counted("idetcd_forward_failures_total"), 0u);
}

TEST_F(ForwardTcpTest, SlowBytesAreReassembled) {
  std::unique_ptr<net::Timer> timer;
  Bytes left;
  auto& server = upstream([&](const Asked& asked, const Reply& reply) {
    const Bytes message = asked.answer(7);
    left = {0, static_cast<uint8_t>(message.size())};
    left.insert(left.end(), message.begin(), message.end());
    timer = std::make_unique<net::Timer>(loop_, [&left, reply] {
      if (left.empty()) return;
      reply.raw({left.front()});
      left.erase(left.begin());
    });
    timer->start(milliseconds(1), milliseconds(1));
  });
  Forwarder::Options options = optionsFor({server.target()});
  options.force_tcp = true;
  make(options);
  EXPECT_EQ(lastOctet(resolve()), 7);
}

TEST_F(ForwardTcpTest, BytesThatNeverEndAreGivenUp) {
  auto& server = upstream([](const Asked& asked, const Reply& reply) {
    if (asked.over_tcp) return reply.raw({0xff, 0xff, 1, 2, 3});
    reply.send(asked.response(0x8380).bytes);
  });
  auto& good = upstream([](const Asked& asked, const Reply& reply) { reply.send(asked.answer(2)); });
  make(failoverOptionsFor({server.target(), good.target()}));
  EXPECT_EQ(lastOctet(resolve()), 2);
  EXPECT_EQ(lastOctet(resolve("b.example.org.")), 2);
  EXPECT_EQ(server.connectionCount(), 2u) << "the stuck connection is not used again";
}

TEST_F(ForwardTcpTest, ResetsAndNonsenseOverTcp) {
  expectNextServerAfter([](const Asked& asked, const Reply& reply) {
    asked.over_tcp ? reply.close() : reply.send(asked.response(0x8380).bytes);
  });
}
TEST_F(ForwardTcpTest, LengthsThatAreTooShort) {
  expectNextServerAfter([](const Asked& asked, const Reply& reply) {
    asked.over_tcp ? reply.raw({0, 5, 1, 2, 3, 4, 5}) : reply.send(asked.response(0x8380).bytes);
  });
}

TEST_F(ForwardTcpTest, WrongIdsAndQuestionsAreDiscarded) {
  auto& server = truncating([](const Asked& asked, const Reply& reply) {
    reply.send(withId(asked.answer(1), static_cast<uint16_t>(asked.id() + 1)));
    reply.send(UpstreamMessage("www.example.com.", 1, 0x8180, asked.id()).bytes);
    reply.send(asked.answer(7));
  });
  make(optionsFor({server.target()}));
  EXPECT_EQ(lastOctet(resolve()), 7);
  EXPECT_EQ(server.tcpCount(), 1u);
}

TEST_F(ForwardTcpTest, NobodyListensForTcp) {
  auto& server = upstream([](const Asked& asked, const Reply& reply) { reply.send(asked.response(0x8380).bytes); }, 0,
                          /*with_tcp=*/false);
  make(optionsFor({server.target()}));
  expectFailure(resolve(), EdeCode::kNetworkError);
}

TEST_F(ForwardTcpTest, ClientsOverTcpAreAskedForOverTcp) {
  auto& server = upstream(answerAll);
  Forwarder::Options options = optionsFor({server.target()});
  make(options);
  EXPECT_EQ(lastOctet(resolve(Question{.transport = resolve::Transport::kTcp})), 1);
  EXPECT_EQ(server.udpCount(), 0u);
  EXPECT_EQ(server.tcpCount(), 1u);
  options.prefer_udp = true;
  make(options);
  EXPECT_EQ(lastOctet(resolve(Question{.transport = resolve::Transport::kTcp})), 1);
  EXPECT_EQ(server.udpCount(), 1u);
}

TEST_F(ForwardTcpTest, ClientsOverTcpAreAskedForOverUdpWhereThereIsNoTcp) {
  auto& server = upstream(answerAll, 0, /*with_tcp=*/false);
  make(optionsFor({server.target()}));
  EXPECT_EQ(lastOctet(resolve(Question{.transport = resolve::Transport::kTcp})), 1);
}

// A firewall forgets a connection, and drops what is sent over it. The next one is let through.
TEST_F(ForwardTcpTest, AConnectionThatHasDiedIsReplaced) {
  std::set<uint16_t> forgotten;
  auto& server = upstream([&forgotten](const Asked& asked, const Reply& reply) {
    if (asked.over_tcp && !forgotten.contains(asked.from.port)) reply.send(asked.answer(7));
  });
  Forwarder::Options options = failoverOptionsFor({server.target()});
  options.force_tcp = true;
  make(options);
  std::vector<Answer> answers;
  for (int i = 0; i < 20; ++i) answers.push_back(ask(std::to_string(i) + ".example.org."));
  for (const Answer& answer : answers) EXPECT_EQ(lastOctet(wait(answer)), 7);
  ASSERT_GT(server.connectionCount(), 1u);
  for (const Asked& asked : server.asked()) forgotten.insert(asked.from.port);

  answers.clear();
  for (int i = 0; i < 8; ++i) answers.push_back(ask(std::to_string(i) + ".example.com."));
  for (const Answer& answer : answers) EXPECT_EQ(lastOctet(wait(answer)), 7);
  EXPECT_LE(server.connectionCount(), forgotten.size() + 2)
      << "they share a new one; the health check may have another";
}

TEST_F(ForwardTcpTest, WhereADatagramIsTruncatedTheConnectionMayHaveDiedToo) {
  std::set<uint16_t> forgotten;
  auto& server = truncating([&forgotten](const Asked& asked, const Reply& reply) {
    if (!forgotten.contains(asked.from.port)) reply.send(asked.answer(7));
  });
  make(failoverOptionsFor({server.target()}));
  EXPECT_EQ(lastOctet(resolve()), 7);
  for (const Asked& asked : server.asked()) forgotten.insert(asked.from.port);
  EXPECT_EQ(lastOctet(resolve("other.example.org.")), 7);
}

// What is lost TCP sends again, but not soon enough for one attempt.
TEST_F(ForwardTcpTest, TheOnlyServerIsWaitedForAsLongAsTheClientWaits) {
  std::list<net::Timer> timers;
  auto& server = upstream([&](const Asked& asked, const Reply& reply) {
    timers.emplace_back(loop_, [asked, reply] { reply.send(asked.answer(7)); });
    timers.back().start(milliseconds(350));
  });
  Forwarder::Options options = failoverOptionsFor({server.target()});
  options.force_tcp = true;
  make(options);
  EXPECT_EQ(lastOctet(resolve()), 7) << "an attempt is 200 ms, and the client waits for longer";
  EXPECT_EQ(server.connectionCount(), 1u);
}

TEST_F(ForwardTcpTest, SilenceOverTcpEndsInTime) {
  auto& server = upstream(sayNothing);
  Forwarder::Options options = hastyOptionsFor({server.target()});
  options.force_tcp = true;
  make(options);
  const auto start = BootClock::now();
  expectFailure(resolve(), EdeCode::kNoReachableAuthority);
  EXPECT_GE(BootClock::now() - start, milliseconds(595));
  EXPECT_LT(BootClock::now() - start, kTimeout / 2);
}

TEST_F(ForwardTcpTest, LargeAnswersComeOverTcp) {
  auto& server = truncating([](const Asked& asked, const Reply& reply) {
    UpstreamMessage message = asked.response();
    for (int i = 0; i < 1000; ++i) {
      message.a(asked.name(), 60, {10, 0, static_cast<uint8_t>(i >> 8), static_cast<uint8_t>(i)});
    }
    reply.send(message.bytes);
  });
  make(optionsFor({server.target()}));
  const ForwardResult result = resolve();
  ASSERT_TRUE(result.response);
  EXPECT_EQ(result.response->packed->answers, 1000u);
}

}  // namespace
}  // namespace idetcd::resolver
