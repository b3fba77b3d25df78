// DNS cookies towards upstreams (RFC 7873 §5.3), with servers that give them, stop giving them, or are played by others.
#include <gtest/gtest.h>

#include "resolver/upstream_cookie.h"
#include "support/forward_fixture.h"

namespace idetcd::resolver {
namespace {

using Flags = uint16_t;
constexpr Flags kAnswerFlags = 0x8180;
const Bytes kServerCookie = {9, 8, 7, 6, 5, 4, 3, 2};

// The data of the COOKIE option that a query came with.
Bytes cookieOf(const Asked& asked) {
  const auto cookie = optionsOf(asked.bytes).cookie;
  return cookie ? Bytes(cookie->begin(), cookie->end()) : Bytes();
}

// `message` with an OPT that holds this option; `high_rcode`: the upper bits of the rcode.
Bytes withCookie(UpstreamMessage message, Bytes data, uint8_t high_rcode = 0) {
  const auto size = static_cast<uint8_t>(data.size());
  message.count(UpstreamMessage::kAdditional);
  const auto options = static_cast<uint8_t>(size + 4);
  message.raw({0, 0, 41, 4, 0xd0, high_rcode, 0, 0, 0, 0, options, 0, 10, 0, size});
  message.bytes.insert(message.bytes.end(), data.begin(), data.end());
  return message.bytes;
}
Bytes joined(Bytes client, const Bytes& server) {
  client.resize(8);
  client.insert(client.end(), server.begin(), server.end());
  return client;
}

UpstreamMessage answerOf(const Asked& asked, uint8_t last) {
  return asked.response().a(asked.name(), 60, {192, 0, 2, last});
}
void answerWithCookie(const Asked& asked, const Reply& reply) {
  const Bytes sent = cookieOf(asked);
  if (sent.empty()) return reply.send(asked.answer());
  reply.send(withCookie(answerOf(asked, 1), joined(sent, kServerCookie)));
}
void refuseCookies(const Asked& asked, const Reply& reply, bool with_opt) {
  if (cookieOf(asked).empty()) return reply.send(asked.answer());
  UpstreamMessage refusal = asked.response(0x8181);
  if (with_opt) refusal.count(UpstreamMessage::kAdditional).raw({0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0});
  reply.send(refusal.bytes);
}

class ForwardCookieTest : public ForwardFixture {
 protected:
  // A server that gives cookies, which is known after two questions: of the first one it is learnt from where it left.
  FakeUpstream& giver() {
    auto& server = upstream(answerWithCookie);
    make(optionsFor({server.target()}));
    EXPECT_EQ(lastOctet(resolve("first.example.org.")), 1);
    EXPECT_EQ(lastOctet(resolve("second.example.org.")), 1);
    return server;
  }
};

TEST_F(ForwardCookieTest, IsLearntAndSentBack) {
  auto& server = giver();
  resolve("third.example.org.");
  ASSERT_EQ(server.asked().size(), 3u);
  EXPECT_EQ(cookieOf(server.asked()[0]), Bytes()) << "nobody knows which address it leaves from";
  const Bytes client = cookieOf(server.asked()[1]);
  EXPECT_EQ(client.size(), 8u);
  EXPECT_EQ(cookieOf(server.asked()[2]), joined(client, kServerCookie));
  auto& other = upstream(answerWithCookie);
  make(optionsFor({other.target()}));
  resolve();
  resolve("www.example.net.");
  EXPECT_NE(cookieOf(other.asked()[1]), client) << "of each server its own";
}

TEST_F(ForwardCookieTest, MaySendNone) {
  auto& server = upstream(answerWithCookie);
  Forwarder::Options options = optionsFor({server.target()});
  options.cookies = false;
  make(std::move(options));
  for (const char* name : {"a.example.org.", "b.example.org."}) resolve(name);
  for (const Asked& asked : server.asked()) EXPECT_EQ(cookieOf(asked), Bytes());
}

TEST_F(ForwardCookieTest, AnAnswerWithAWrongCookieIsDropped) {
  auto& server = giver();
  server.handle([](const Asked& asked, const Reply& reply) {
    const Bytes sent = cookieOf(asked);
    Bytes wrong = sent;
    wrong[3] ^= 1;
    const UpstreamMessage lie = answerOf(asked, 66);
    if (asked.name() == "a.example.org.") {
      reply.send(withCookie(lie, wrong));
      reply.send(withCookie(lie, Bytes(sent.begin(), sent.begin() + 8)));  // only what was sent: no cookie of a server
    } else {
      reply.send(withCookie(lie, {}));
      reply.send(withCookie(lie, joined(sent, Bytes(33, 1))));
    }
    answerWithCookie(asked, reply);
  });
  for (const char* name : {"a.example.org.", "b.example.org."}) EXPECT_EQ(lastOctet(resolve(name)), 1);
  EXPECT_EQ(counted("idetcd_forward_bad_cookies_total"), 4u);
  EXPECT_EQ(server.tcpCount(), 0u);
}

TEST_F(ForwardCookieTest, WrongCookiesAreGuesses) {
  auto& server = giver();
  server.handle([](const Asked& asked, const Reply& reply) {
    if (asked.over_tcp) return answerWithCookie(asked, reply);
    Bytes wrong = cookieOf(asked);
    for (int i = 0; i < 4; ++i) {
      ++wrong[3];
      reply.send(withCookie(answerOf(asked, 66), wrong));
    }
  });
  EXPECT_EQ(lastOctet(resolve()), 1);
  EXPECT_EQ(server.tcpCount(), 1u);
  EXPECT_EQ(counted("idetcd_forward_suspected_spoofing_total"), 1u);
}

TEST_F(ForwardCookieTest, AnAnswerWithoutTheCookieIsAskedForOverTcp) {
  auto& server = giver();
  server.handle([](const Asked& asked, const Reply& reply) {
    if (!asked.over_tcp) return reply.send(answerOf(asked, 66).bytes);
    answerWithCookie(asked, reply);
  });
  for (const char* name : {"a.example.org.", "b.example.org."}) EXPECT_EQ(lastOctet(resolve(name)), 1);
  EXPECT_EQ(counted("idetcd_forward_bad_cookies_total"), 2u);
  EXPECT_EQ(server.tcpCount(), 2u) << "the server still gives them, as TCP has shown";
}

TEST_F(ForwardCookieTest, AServerThatHasStoppedIsBelievedOverTcp) {
  auto& server = giver();
  server.handle(answerAll);
  for (const char* name : {"a.example.org.", "b.example.org.", "c.example.org."})
    EXPECT_EQ(lastOctet(resolve(name)), 1);
  EXPECT_EQ(server.tcpCount(), 1u) << "then nothing is expected any more";
}

TEST_F(ForwardCookieTest, AServerThatHasStoppedAndHasNoTcpIsBelievedSoon) {
  auto& server = upstream(answerWithCookie, 0, false);
  Forwarder::Options options = optionsFor({server.target()});
  options.max_fails = 0;
  make(std::move(options));
  for (const char* name : {"a.example.org.", "b.example.org."}) resolve(name);
  server.handle(answerAll);
  resolve("c.example.org.");
  EXPECT_EQ(lastOctet(resolve("d.example.org.")), 1);
}

TEST_F(ForwardCookieTest, BadcookieIsRepeatedWithTheNewOne) {
  auto& server = giver();
  const Bytes renewed(16, 0x55);
  server.handle([&renewed](const Asked& asked, const Reply& reply) {
    const Bytes wanted = joined(cookieOf(asked), renewed);
    if (cookieOf(asked) == wanted) return reply.send(withCookie(answerOf(asked, 2), wanted));
    reply.send(withCookie(asked.response(kAnswerFlags | 7), wanted, 1));
  });
  EXPECT_EQ(lastOctet(resolve()), 2);
  EXPECT_EQ(server.udpCount(), 4u);
  EXPECT_EQ(server.tcpCount(), 0u);
}

TEST_F(ForwardCookieTest, BadcookieAgainAndAgainGoesOverTcp) {
  auto& server = giver();
  server.handle([](const Asked& asked, const Reply& reply) {
    if (asked.over_tcp) return answerWithCookie(asked, reply);
    reply.send(withCookie(asked.response(kAnswerFlags | 7), joined(cookieOf(asked), Bytes(16, 0x55)), 1));
  });
  EXPECT_EQ(lastOctet(resolve()), 1);
  EXPECT_EQ(server.udpCount(), 4u);
  EXPECT_EQ(server.tcpCount(), 1u);
}

TEST_F(ForwardCookieTest, BadcookieOverTcpIsNoAnswer) {
  auto& server = giver();
  server.handle([](const Asked& asked, const Reply& reply) {
    reply.send(withCookie(asked.response(kAnswerFlags | 7), joined(cookieOf(asked), Bytes(16, 0x55)), 1));
  });
  EXPECT_EQ(resolve().rcode, dns::Rcode::kServFail);
}

// Old servers answer an option that they do not know with FORMERR, with or without an OPT of their own.
TEST_F(ForwardCookieTest, AServerThatRefusesCookiesGetsNone) {
  for (const bool with_opt : {false, true}) {
    auto& server =
        upstream([with_opt](const Asked& asked, const Reply& reply) { refuseCookies(asked, reply, with_opt); });
    make(optionsFor({server.target()}));
    resolve("a.example.org.");
    EXPECT_EQ(lastOctet(resolve("b.example.org.")), 1);
    EXPECT_EQ(server.udpCount(), 3u);
    EXPECT_TRUE(server.asked()[2].query.has_edns) << "it is the cookie, not EDNS";
    EXPECT_EQ(lastOctet(resolve("c.example.org.")), 1);
    EXPECT_EQ(server.udpCount(), 4u) << "it is remembered";
  }
}

TEST_F(ForwardCookieTest, FormerrOfAServerThatTakesCookiesIsTheAnswer) {
  auto& server = giver();
  server.handle([](const Asked& asked, const Reply& reply) {
    reply.send(withCookie(asked.response(0x8181), joined(cookieOf(asked), kServerCookie)));
  });
  EXPECT_EQ(resolve().rcode, dns::Rcode::kFormErr);
  EXPECT_EQ(server.udpCount(), 3u);
}

// --- without a network ---

class UpstreamCookieTest : public testing::Test {
 protected:
  using CookieVerdict = UpstreamCookie::CookieVerdict;
  CookieVerdict judge(const Bytes& cookie) {
    return cookie_.judge({.rcode = dns::Rcode::kNoError, .cookie = cookie}, cookie_.client(), now_);
  }
  Bytes option() const {
    const auto option = cookie_.option(now_);
    return {option.begin(), option.end()};
  }

  SecureRandom random_;
  BootClock::time_point now_ = BootClock::now();
  UpstreamCookie cookie_{true};
};

TEST_F(UpstreamCookieTest, BelongsToOneAddressOfOurs) {
  EXPECT_TRUE(option().empty());
  cookie_.noteOwnAddress(*IpAddress::parse("192.0.2.1"), random_, now_);
  EXPECT_FALSE(cookie_.wantsOwnAddress(now_));
  const Bytes first = option();
  EXPECT_EQ(judge(joined(first, kServerCookie)), CookieVerdict::kGood);
  cookie_.noteOwnAddress(*IpAddress::parse("192.0.2.1"), random_, now_ + std::chrono::hours(23));
  EXPECT_EQ(option(), joined(first, kServerCookie));
  cookie_.noteOwnAddress(*IpAddress::parse("192.0.2.2"), random_, now_);
  EXPECT_EQ(option().size(), 8u);
  EXPECT_NE(option(), first);
  const Bytes second = option();
  cookie_.noteOwnAddress(*IpAddress::parse("192.0.2.2"), random_, now_ + std::chrono::hours(24));
  EXPECT_NE(option(), second) << "a new one each day";
}

TEST_F(UpstreamCookieTest, WhatHasStoppedMayBeginAgain) {
  cookie_.noteOwnAddress(*IpAddress::parse("192.0.2.1"), random_, now_);
  const UpstreamCookie::Client client = cookie_.client();
  const auto without = [&] { return cookie_.judge({}, client, now_); };
  EXPECT_EQ(without(), CookieVerdict::kNone);
  judge(joined(option(), kServerCookie));
  EXPECT_EQ(without(), CookieVerdict::kMissing);
  cookie_.noteStopped(now_);
  judge(joined(option(), kServerCookie));
  EXPECT_EQ(without(), CookieVerdict::kNone) << "one of several machines behind one address";
  now_ += std::chrono::minutes(16);
  EXPECT_EQ(without(), CookieVerdict::kMissing);
}

TEST_F(UpstreamCookieTest, WhatCannotBeReadHasNoCookie) {
  const Bytes whole = withCookie(UpstreamMessage("www.example.org.", 1), Bytes(16, 1));
  EXPECT_TRUE(optionsOf(whole).cookie);
  for (size_t size = 0; size < whole.size(); ++size) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_FALSE(optionsOf(cut).cookie) << size;
  }
}

}  // namespace
}  // namespace idetcd::resolver
