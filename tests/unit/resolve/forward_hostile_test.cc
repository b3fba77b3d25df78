// Upstreams that lie, stammer, fall silent and come back.
#include <chrono>

#include <gtest/gtest.h>

#include "forward_fixture.h"

namespace idetcd::resolve {
namespace {

using dns::EdeCode;
using dns::Rcode;

class ForwardHostileTest : public ForwardFixture {
 protected:
  // Asks one server that first says `lies`, then the truth.
  void expectTruthAfter(const std::function<std::vector<Octets>(const Asked&)>& lies) {
    auto& server = upstream([lies](const Asked& asked, const Reply& reply) {
      for (const Octets& lie : lies(asked)) reply.send(lie);
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
    EXPECT_LT(BootClock::now() - start, milliseconds(150)) << "without waiting for the end of the attempt";
  }
  static Octets withId(Octets message, uint16_t id) {
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
    return std::vector<Octets>{withId(asked.answer(1), static_cast<uint16_t>(asked.id() + 1)),
                               withId(asked.answer(1), static_cast<uint16_t>(~asked.id()))};
  });
}

TEST_F(ForwardHostileTest, WrongQuestion) {
  expectTruthAfter([](const Asked& asked) {
    return std::vector<Octets>{
        UpstreamMessage("www.example.com.", 1, 0x8180, asked.id()).a("www.example.com.", 60, {192, 0, 2, 1}).octets,
        UpstreamMessage(asked.name(), 28, 0x8180, asked.id()).octets,
        UpstreamMessage("example.org.", 1, 0x8183, asked.id()).octets};
  });
}

TEST_F(ForwardHostileTest, TheQueryItselfComesBack) {
  expectTruthAfter([](const Asked& asked) { return std::vector<Octets>{asked.octets, asked.response(0x0100).octets}; });
}

TEST_F(ForwardHostileTest, Garbage) {
  expectTruthAfter([](const Asked& asked) {
    return std::vector<Octets>{{},
                               {0},
                               Octets(11, 0xff),
                               Octets(512, 0xff),
                               withId(Octets(512, 0xff), asked.id()),
                               withId(Octets(12, 0), asked.id())};
  });
}

TEST_F(ForwardHostileTest, OtherOpcodes) {
  expectTruthAfter([](const Asked& asked) {
    return std::vector<Octets>{asked.response(0xa180).octets, asked.response(0xf980).octets};
  });
}

TEST_F(ForwardHostileTest, AThousandSpoofs) {
  static constexpr int kAtOnce = 250;  // what every socket holds
  std::function<void(int, Asked, Reply)> spoof = [&](int done, const Asked& asked, const Reply& reply) {
    if (done == 1000) return reply.send(asked.answer(7));
    for (int i = 1; i <= kAtOnce; ++i)
      reply.send(withId(asked.answer(1), static_cast<uint16_t>(asked.id() + done + i)));
    loop_.post([&spoof, done, asked, reply] { spoof(done + kAtOnce, asked, reply); });
  };
  auto& server = upstream([&spoof](const Asked& asked, const Reply& reply) { spoof(0, asked, reply); });
  make(optionsFor({server.target()}));
  EXPECT_EQ(lastOctet(resolve()), 7);
  EXPECT_EQ(server.udpCount(), 1u);
  EXPECT_EQ(forwarder_->counters().discarded, 1000u);
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
    other_port.sendTo(peer, asked.answer(1));
    other_address.sendTo(peer, asked.answer(1));
    reply.send(asked.answer(7));
  });
  make(optionsFor({server.target()}));
  EXPECT_EQ(lastOctet(resolve()), 7);
}

TEST_F(ForwardHostileTest, ALateAnswerIsNobodys) {
  std::vector<std::pair<Asked, Reply>> first;
  auto& slow = upstream([&first](const Asked& asked, const Reply& reply) { first.emplace_back(asked, reply); });
  auto& good = upstream([](const Asked& asked, const Reply& reply) { reply.send(asked.answer(2)); });
  make(optionsFor({slow.target(), good.target()}));
  EXPECT_EQ(lastOctet(resolve()), 2);
  ASSERT_FALSE(first.empty());
  first.front().second.send(first.front().first.answer(1));
  runFor(milliseconds(20));
  EXPECT_EQ(lastOctet(resolve("other.example.org.")), 2);
}

// --- answers that are of no use: the next server ---

TEST_F(ForwardHostileTest, TruncatedRdata) {
  expectNextServerAfter([](const Asked& asked, const Reply& reply) {
    Octets message = asked.answer(1);
    message.pop_back();
    reply.send(message);
  });
}

TEST_F(ForwardHostileTest, CountsThatLie) {
  expectNextServerAfter([](const Asked& asked, const Reply& reply) {
    reply.send(asked.response().count(UpstreamMessage::kAnswer, 500).octets);
  });
}

TEST_F(ForwardHostileTest, CompressionLoops) {
  expectNextServerAfter([](const Asked& asked, const Reply& reply) {
    UpstreamMessage message = asked.response().count(UpstreamMessage::kAnswer);
    const auto here = static_cast<uint8_t>(message.octets.size());
    reply.send(message.raw({0xc0, here, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1}).octets);
  });
}

TEST_F(ForwardHostileTest, CnameLoops) {
  expectNextServerAfter([](const Asked& asked, const Reply& reply) {
    reply.send(asked.response().cname(asked.name(), "a.example.").cname("a.example.", asked.name()).octets);
  });
}

TEST_F(ForwardHostileTest, RefusedPort) {
  uint16_t port = 0;
  {
    const FakeUpstream closed(loop_, {});
    port = closed.port();
  }
  auto& good = upstream(answerAll);
  const UpstreamTarget nobody{.server = UpstreamAddress{.address = {.ip = IpAddress::v4({127, 0, 0, 1}), .port = port}},
                              .file = {}};
  make(optionsFor({nobody, good.target()}));
  const auto start = BootClock::now();
  EXPECT_EQ(lastOctet(resolve()), 1);
  EXPECT_LT(BootClock::now() - start, milliseconds(150));
  make(optionsFor({nobody}));
  const ForwardResult result = resolve();
  expectFailure(result, EdeCode::kNetworkError);
  EXPECT_NE(result.reason.find("Connection refused"), std::string::npos) << result.reason;
}

TEST_F(ForwardHostileTest, ServfailIsAnAnswerWhereFailoverDoesNotNameIt) {
  auto& server = upstream([](const Asked& asked, const Reply& reply) { reply.send(asked.response(0x8182).octets); });
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
  make(optionsFor({black_hole.target(), good.target()}));
  const auto start = BootClock::now();
  EXPECT_EQ(lastOctet(resolve()), 1);
  const auto time = BootClock::now() - start;
  EXPECT_GE(time, milliseconds(199));
  EXPECT_LT(time, milliseconds(550));
}

TEST_F(ForwardHostileTest, SilenceOfAllEndsInTime) {
  auto& black_hole = upstream(sayNothing);
  make(optionsFor({black_hole.target()}));
  const auto start = BootClock::now();
  const ForwardResult result = resolve();
  const auto time = BootClock::now() - start;
  expectFailure(result, EdeCode::kNoReachableAuthority);
  EXPECT_NE(result.reason.find("timed out"), std::string::npos) << result.reason;
  EXPECT_GE(time, milliseconds(595));
  EXPECT_LT(time, milliseconds(1500));
  const auto questions = std::count_if(black_hole.asked().begin(), black_hole.asked().end(),
                                       [](const Asked& asked) { return !asked.over_tcp && asked.query.qtype == 1; });
  EXPECT_EQ(questions, 2) << "a datagram may have been lost: it is repeated, once";
}

TEST_F(ForwardHostileTest, ThousandsInABlackHole) {
  auto& black_hole = upstream(sayNothing);
  make(optionsFor({black_hole.target()}));
  constexpr size_t kQueries = 3000;
  std::vector<Answer> answers;
  for (size_t i = 0; i < kQueries; ++i) answers.push_back(ask(std::to_string(i) + ".example.org."));
  const auto start = BootClock::now();
  for (const Answer& answer : answers) expectFailure(wait(answer), EdeCode::kNoReachableAuthority);
  EXPECT_LT(BootClock::now() - start, milliseconds(3000));
  EXPECT_EQ(forwarder_->counters().failed, kQueries);
  black_hole.handle(answerAll);
  EXPECT_EQ(lastOctet(resolve()), 1);
}

// --- EDNS ---

class ForwardEdnsTest : public ForwardHostileTest {
 protected:
  void expectWithoutEdns(const std::function<Octets(const Asked&)>& refusal) {
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
  expectWithoutEdns([](const Asked& asked) { return asked.response(0x8181).octets; });
}
TEST_F(ForwardEdnsTest, FormerrWithHeaderOnly) {
  expectWithoutEdns([](const Asked& asked) {
    Octets header = asked.response(0x8181).octets;
    header.resize(dns::kHeaderSize);
    dns::store16(&header[4], 0);
    return header;
  });
}
TEST_F(ForwardEdnsTest, Notimp) {
  expectWithoutEdns([](const Asked& asked) { return asked.response(0x8184).octets; });
}
TEST_F(ForwardEdnsTest, Badvers) {
  expectWithoutEdns([](const Asked& asked) {
    return asked.response().count(UpstreamMessage::kAdditional).raw({0, 0, 41, 4, 0xd0, 1, 0, 0, 0, 0, 0}).octets;
  });
}

TEST_F(ForwardEdnsTest, FormerrOfAServerThatKnowsEdnsIsTheAnswer) {
  auto& server = upstream([](const Asked& asked, const Reply& reply) {
    reply.send(
        asked.response(0x8181).count(UpstreamMessage::kAdditional).raw({0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0}).octets);
  });
  make(optionsFor({server.target()}));
  EXPECT_EQ(resolve().rcode, Rcode::kFormErr);
  EXPECT_EQ(server.udpCount(), 1u);
}

TEST_F(ForwardEdnsTest, FormerrEitherWayIsTheAnswerAndNotRemembered) {
  auto& server = upstream([](const Asked& asked, const Reply& reply) { reply.send(asked.response(0x8181).octets); });
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
  Forwarder::Options options = optionsFor({first.target(), second.target()});
  options.max_fails = 1;
  make(options);
  EXPECT_EQ(lastOctet(resolve("a.example.org.")), 1);
  first.handle(sayNothing);
  EXPECT_EQ(lastOctet(resolve("b.example.org.")), 2);
  const auto start = BootClock::now();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(lastOctet(resolve(std::to_string(i) + ".example.org.")), 2);
  EXPECT_LT(BootClock::now() - start, milliseconds(150)) << "nobody waited for the dead one";
  EXPECT_TRUE(std::any_of(first.asked().begin(), first.asked().end(), [](const Asked& asked) {
    return asked.query.qtype == 2 && asked.query.qname_size == 1 && (asked.query.flags & dns::kFlagRd) != 0;
  })) << "it is probed";
  // Any answer is a sign of life.
  first.handle([](const Asked& asked, const Reply& reply) {
    reply.send(asked.query.qtype == 2 ? asked.response(0x8185).octets : asked.answer(1));
  });
  int name = 100;
  runUntil([&] { return lastOctet(resolve(std::to_string(++name) + ".example.org.")) == 1; });
  const size_t asked = first.udpCount();
  runFor(milliseconds(100));
  EXPECT_EQ(first.udpCount(), asked) << "who is well is not probed";
}

TEST_F(ForwardHostileTest, ProbesAreAsConfigured) {
  auto& server = upstream(sayNothing);
  Forwarder::Options options = optionsFor({server.target()});
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
  Forwarder::Options options = optionsFor({server.target()});
  options.max_fails = 0;
  make(options);
  resolve();
  resolve("other.example.org.");
  for (const Asked& asked : server.asked()) EXPECT_EQ(asked.query.qtype, 1);
}

TEST_F(ForwardHostileTest, WhenAllAreDownOneIsAskedAnyway) {
  auto& server = upstream(sayNothing);
  Forwarder::Options options = optionsFor({server.target()});
  options.max_fails = 1;
  make(options);
  expectFailure(resolve(), EdeCode::kNoReachableAuthority);
  // It answers all but the probes.
  server.handle([](const Asked& asked, const Reply& reply) {
    if (asked.query.qtype != 2) reply.send(asked.answer(7));
  });
  EXPECT_EQ(lastOctet(resolve()), 7);
  EXPECT_GT(forwarder_->counters().healthcheck_broken, 0u);
}

TEST_F(ForwardHostileTest, FailfastDoesNotAsk) {
  auto& server = upstream(sayNothing);
  Forwarder::Options options = optionsFor({server.target()});
  options.max_fails = 1;
  options.failfast_all_unhealthy_upstreams = true;
  make(options);
  resolve();
  const auto start = BootClock::now();
  const ForwardResult result = resolve();
  expectFailure(result, EdeCode::kNoReachableAuthority);
  EXPECT_EQ(result.reason, "no healthy upstream");
  EXPECT_LT(BootClock::now() - start, milliseconds(150));
}

// --- TCP ---

class ForwardTcpTest : public ForwardHostileTest {
 protected:
  // Over UDP everything is truncated; over TCP `over_tcp` answers.
  FakeUpstream& truncating(const FakeUpstream::Handler& over_tcp) {
    return upstream([over_tcp](const Asked& asked, const Reply& reply) {
      asked.over_tcp ? over_tcp(asked, reply) : reply.send(asked.response(0x8380).octets);
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
  auto& server = truncating([](const Asked& asked, const Reply& reply) { reply.send(asked.response(0x8380).octets); });
  make(optionsFor({server.target()}));
  const ForwardResult result = resolve();
  expectFailure(result, EdeCode::kNetworkError);
  EXPECT_EQ(server.udpCount() + server.tcpCount(), 2u) << "no loop";
}

TEST_F(ForwardTcpTest, ConnectionsAreUsedAgainAndShared) {
  auto& server = upstream(answerAll);
  Forwarder::Options options = optionsFor({server.target()});
  options.force_tcp = true;
  options.expire = milliseconds(100);
  make(options);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(lastOctet(resolve(std::to_string(i) + ".example.org.")), 1);
  EXPECT_EQ(server.connectionCount(), 1u);
  std::vector<Answer> answers;
  for (int i = 0; i < 8; ++i) answers.push_back(ask(std::to_string(i) + ".example.org."));
  for (const Answer& answer : answers) EXPECT_EQ(lastOctet(wait(answer)), 1);
  EXPECT_EQ(server.connectionCount(), 1u);
  runFor(milliseconds(200));
  resolve();
  EXPECT_EQ(server.connectionCount(), 2u) << "idle for longer than `expire`";
  EXPECT_EQ(server.udpCount(), 0u);
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
  options.attempt_time = options.total_time = milliseconds(5000);
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
  EXPECT_EQ(forwarder_->counters().failed, 0u);
}

TEST_F(ForwardTcpTest, SlowOctetsAreReassembled) {
  std::unique_ptr<net::Timer> timer;
  Octets left;
  auto& server = upstream([&](const Asked& asked, const Reply& reply) {
    const Octets message = asked.answer(7);
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
  options.attempt_time = options.total_time = milliseconds(5000);
  make(options);
  EXPECT_EQ(lastOctet(resolve()), 7);
}

TEST_F(ForwardTcpTest, OctetsThatNeverEndAreGivenUp) {
  auto& server = upstream([](const Asked& asked, const Reply& reply) {
    if (asked.over_tcp) return reply.raw({0xff, 0xff, 1, 2, 3});
    reply.send(asked.response(0x8380).octets);
  });
  auto& good = upstream([](const Asked& asked, const Reply& reply) { reply.send(asked.answer(2)); });
  make(optionsFor({server.target(), good.target()}));
  EXPECT_EQ(lastOctet(resolve()), 2);
  EXPECT_EQ(lastOctet(resolve("b.example.org.")), 2);
  EXPECT_EQ(server.connectionCount(), 2u) << "the stuck connection is not used again";
}

TEST_F(ForwardTcpTest, ResetsAndNonsenseOverTcp) {
  expectNextServerAfter([](const Asked& asked, const Reply& reply) {
    asked.over_tcp ? reply.close() : reply.send(asked.response(0x8380).octets);
  });
}
TEST_F(ForwardTcpTest, LengthsThatAreTooShort) {
  expectNextServerAfter([](const Asked& asked, const Reply& reply) {
    asked.over_tcp ? reply.raw({0, 5, 1, 2, 3, 4, 5}) : reply.send(asked.response(0x8380).octets);
  });
}

TEST_F(ForwardTcpTest, WrongIdsAndQuestionsAreDiscarded) {
  auto& server = truncating([](const Asked& asked, const Reply& reply) {
    reply.send(withId(asked.answer(1), static_cast<uint16_t>(asked.id() + 1)));
    reply.send(UpstreamMessage("www.example.com.", 1, 0x8180, asked.id()).octets);
    reply.send(asked.answer(7));
  });
  make(optionsFor({server.target()}));
  EXPECT_EQ(lastOctet(resolve()), 7);
  EXPECT_EQ(server.tcpCount(), 1u);
}

TEST_F(ForwardTcpTest, NobodyListensForTcp) {
  auto& server = upstream([](const Asked& asked, const Reply& reply) { reply.send(asked.response(0x8380).octets); }, 0,
                          /*with_tcp=*/false);
  make(optionsFor({server.target()}));
  expectFailure(resolve(), EdeCode::kNetworkError);
}

TEST_F(ForwardTcpTest, ClientsOverTcpAreAskedForOverTcp) {
  auto& server = upstream(answerAll);
  Forwarder::Options options = optionsFor({server.target()});
  make(options);
  EXPECT_EQ(lastOctet(resolve(Question{.transport = Transport::kTcp})), 1);
  EXPECT_EQ(server.udpCount(), 0u);
  EXPECT_EQ(server.tcpCount(), 1u);
  options.prefer_udp = true;
  make(options);
  EXPECT_EQ(lastOctet(resolve(Question{.transport = Transport::kTcp})), 1);
  EXPECT_EQ(server.udpCount(), 1u);
}

TEST_F(ForwardTcpTest, ClientsOverTcpAreAskedForOverUdpWhereThereIsNoTcp) {
  auto& server = upstream(answerAll, 0, /*with_tcp=*/false);
  make(optionsFor({server.target()}));
  EXPECT_EQ(lastOctet(resolve(Question{.transport = Transport::kTcp})), 1);
}

TEST_F(ForwardTcpTest, LargeAnswersComeOverTcp) {
  auto& server = truncating([](const Asked& asked, const Reply& reply) {
    UpstreamMessage message = asked.response();
    for (int i = 0; i < 1000; ++i) {
      message.a(asked.name(), 60, {10, 0, static_cast<uint8_t>(i >> 8), static_cast<uint8_t>(i)});
    }
    reply.send(message.octets);
  });
  make(optionsFor({server.target()}));
  const ForwardResult result = resolve();
  ASSERT_TRUE(result.response);
  EXPECT_EQ(result.response->sections.answers, 1000u);
}

}  // namespace
}  // namespace idetcd::resolve
