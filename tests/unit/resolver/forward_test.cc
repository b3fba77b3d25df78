#include <fstream>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "resolver/forwarder.h"
#include "support/forward_fixture.h"

namespace idetcd::resolver {
namespace {

using Policy = Forwarder::Policy;

class ForwardTest : public ForwardFixture {};

TEST_F(ForwardTest, AsksWhatTheClientAsked) {
  auto& server = upstream(answerAll);
  make(optionsFor({server.target()}));
  const auto result =
      resolve(Question{.name = "WwW.Example.org.", .flags = dns::kFlagRd | dns::kFlagCd, .dnssec_ok = true});
  ASSERT_TRUE(result.response);
  EXPECT_EQ(lastOctet(result), 1);
  EXPECT_EQ(result.rcode, dns::Rcode::kNoError);
  EXPECT_FALSE(result.next);
  ASSERT_EQ(server.asked().size(), 1u);
  const Asked& asked = server.asked().front();
  EXPECT_EQ(asked.query.flags, dns::kFlagRd | dns::kFlagCd | dns::kFlagAd) << "AD is for the cache";
  EXPECT_TRUE(asked.query.has_edns);
  EXPECT_TRUE(asked.query.dnssec_ok);
  EXPECT_EQ(asked.query.udp_payload, dns::kDefaultUdpPayload);
  EXPECT_EQ(asked.bytes.size(), asked.query.question_end + dns::kOptSize) << "no option passed on";
}

TEST_F(ForwardTest, RecursionIsAskedForAsTheClientDid) {
  auto& server = upstream(answerAll);
  make(optionsFor({server.target()}));
  resolve(Question{.edns = std::nullopt, .flags = 0});
  const Asked& asked = server.asked().front();
  EXPECT_EQ(asked.query.flags & dns::kFlagRd, 0);
  EXPECT_TRUE(asked.query.has_edns) << "EDNS is between us and the upstream";
  EXPECT_FALSE(asked.query.dnssec_ok);
}

TEST_F(ForwardTest, EveryQueryHasAPortAndAnIdOfItsOwn) {
  auto& server = upstream(answerAll);
  make(optionsFor({server.target()}));
  std::set<uint16_t> ports;
  std::set<uint16_t> ids;
  constexpr size_t kQueries = 200;
  for (size_t i = 0; i < kQueries; ++i) ASSERT_TRUE(resolve(std::to_string(i) + ".example.org.").response);
  for (const Asked& asked : server.asked()) {
    ports.insert(asked.from.port);
    ids.insert(asked.id());
  }
  // Of 200 out of 28,000 ports some may coincide; more than a few would be no chance.
  EXPECT_GT(ports.size(), kQueries - 10);
  EXPECT_GT(ids.size(), kQueries - 5);
  EXPECT_EQ(counted("idetcd_forward_attempts_total"), kQueries);
}

TEST_F(ForwardTest, IdenticalQuestionsShareOneQuery) {
  std::vector<Reply> replies;
  auto& server = upstream([&replies](const Asked&, const Reply& reply) { replies.push_back(reply); });
  make(optionsFor({server.target()}));
  std::vector<Answer> answers;
  for (int i = 0; i < 1000; ++i) answers.push_back(ask(i % 2 == 0 ? "www.example.org." : "WWW.EXAMPLE.ORG."));
  runUntil([&replies] { return !replies.empty(); });
  replies.front().send(server.asked().front().answer());
  for (const Answer& answer : answers) EXPECT_EQ(lastOctet(wait(answer)), 1);
  EXPECT_EQ(server.udpCount(), 1u);
  EXPECT_EQ(counted("idetcd_forward_queries_total"), 1000u);
  EXPECT_EQ(counted("idetcd_forward_merged_total"), 999u);
  server.handle(answerAll);
  resolve();
  EXPECT_EQ(server.udpCount(), 2u) << "an answered question is over";
}

TEST_F(ForwardTest, DifferentQuestionsDoNotShare) {
  auto& server = upstream(sayNothing);
  make(optionsFor({server.target()}));
  const Question question;
  std::vector<Answer> answers{ask(question)};
  auto other = question;
  other.name = "www.example.net.";
  answers.push_back(ask(other));
  other = question;
  other.qtype = 28;
  answers.push_back(ask(other));
  other = question;
  other.dnssec_ok = true;
  answers.push_back(ask(other));
  other = question;
  other.flags |= dns::kFlagCd;
  answers.push_back(ask(other));
  other = question;
  other.flags = 0;  // RD
  answers.push_back(ask(other));
  runUntil([&server] { return server.udpCount() == 6; });
  EXPECT_EQ(counted("idetcd_forward_merged_total"), 0u);
}

TEST_F(ForwardTest, FromAndExceptDecideWhoIsServed) {
  Forwarder::Options options = optionsFor({upstream(answerAll).target()});
  options.from = {dns::Name::parse("example.org.").value(), dns::Name::parse("10.in-addr.arpa.").value()};
  options.except = {dns::Name::parse("internal.example.org.").value(), dns::Name::parse("example.org.").value()};
  make(options);
  const auto serves = [this](std::string_view name) {
    Message message(name, 1);
    dns::Query query;
    dns::parseQuery(message.data(), message.size(), Message::kSeed, query);
    return forwarder_->serves(query);
  };
  EXPECT_TRUE(serves("EXAMPLE.org.")) << "what is named in FROM is never excepted";
  EXPECT_TRUE(serves("1.10.in-addr.arpa."));
  EXPECT_FALSE(serves("www.example.org."));
  EXPECT_FALSE(serves("internal.example.org."));
  EXPECT_FALSE(serves("example.net."));
  EXPECT_FALSE(serves("badexample.org."));
}

// --- options ---

TEST_F(ForwardTest, BadOptionsAreRefused) {
  const auto error = [this](const Forwarder::Options& options) {
    const auto made = tryToMake(options);
    return made ? "" : made.error().message;
  };
  EXPECT_EQ(error({}), "no server to forward to");
  Forwarder::Options options;
  for (int i = 1; i <= 16; ++i) options.to.push_back(parseUpstreamTarget("192.0.2." + std::to_string(i)).value());
  EXPECT_EQ(error(options), "more than 15 TOs configured: 16");
  options.to = {{.server = std::nullopt, .file = "/nonexistent"}};
  EXPECT_EQ(error(options), "cannot read /nonexistent: No such file or directory");
  options.to = {parseUpstreamTarget("tls://192.0.2.1").value()};
  options.tls.ca_file = "/nonexistent";
  EXPECT_NE(error(options).find("CA certificates of /nonexistent: No such file or directory"), std::string::npos);
  options.tls = {.certificate_file = "/etc/passwd", .key_file = "/etc/passwd", .ca_file = {}, .server_name = {}};
  EXPECT_NE(error(options).find("cannot read the certificate"), std::string::npos);
}

TEST_F(ForwardTest, NoMoreThanMaxConcurrentClientsWait) {
  auto& server = upstream(sayNothing);
  Forwarder::Options options = optionsFor({server.target()});
  options.max_concurrent = 2;
  make(options);
  ask("a.example.org.");
  ask("a.example.org.");
  const ForwardResult third = resolve("b.example.org.");
  EXPECT_EQ(third.rcode, dns::Rcode::kRefused);
  EXPECT_EQ(third.reason, "concurrent queries exceeded maximum 2");
  EXPECT_EQ(counted("coredns_forward_max_concurrent_rejects_total"), 1u);
}

TEST_F(ForwardTest, WhatIsInFlightIsBounded) {
  auto& server = upstream(sayNothing);
  Forwarder::Options options = hastyOptionsFor({server.target()});
  options.max_in_flight = 2;
  options.max_waiting = 4;
  make(options);
  ask("a.example.org.");
  const auto pending = ask("b.example.org.");
  const ForwardResult third = resolve("c.example.org.");
  EXPECT_EQ(third.rcode, dns::Rcode::kServFail);
  EXPECT_TRUE(third.ede);
  EXPECT_FALSE(third.reason.empty());
  EXPECT_FALSE(*ask("a.example.org.")) << "one more who waits for a question in flight costs no descriptor";
  ask("a.example.org.");
  EXPECT_EQ(resolve("a.example.org.").rcode, dns::Rcode::kServFail);
  wait(pending);
  server.handle(answerAll);
  EXPECT_TRUE(resolve("c.example.org.").response) << "there is room again";
}

// However many questions there may be.
TEST_F(ForwardTest, TheClientsThatWaitAreBounded) {
  auto& server = upstream(sayNothing);
  Forwarder::Options options = optionsFor({server.target()});
  options.max_waiting = 8;
  make(options);
  for (int i = 0; i < 8; ++i) ask(std::to_string(i) + ".example.org.");
  EXPECT_EQ(forwarder_->waiting(), 8u);
  const Answer ninth = ask("ninth.example.org.");
  EXPECT_EQ(forwarder_->waiting(), 8u);
  const ForwardResult result = wait(ninth);
  EXPECT_EQ(result.rcode, dns::Rcode::kServFail);
  EXPECT_TRUE(result.overloaded);
}

TEST_F(ForwardTest, DescriptorsAreBounded) {
  std::vector<Reply> held;
  auto& server = upstream([&held](const Asked&, const Reply& reply) { held.push_back(reply); });
  Forwarder::Options options = optionsFor({server.target()});
  options.room = roomFor(1);
  options.max_fails = 0;                                 // a probe would take the only one
  options.attempt_time = options.total_time = kTimeout;  // however slow the machine is
  make(options);
  const auto first = ask("a.example.org.");
  const ForwardResult second = resolve("b.example.org.");
  EXPECT_EQ(second.rcode, dns::Rcode::kServFail);
  EXPECT_TRUE(second.ede);
  EXPECT_TRUE(second.overloaded) << "nothing that the cache should remember";
  runUntil([&held] { return !held.empty(); });
  server.handle(answerAll);
  held.front().send(server.asked().front().answer());
  EXPECT_TRUE(wait(first).response);
  EXPECT_TRUE(resolve("b.example.org.").response);
}

TEST_F(ForwardTest, NextNamesRcodes) {
  auto& server = upstream([](const Asked& asked, const Reply& reply) { reply.send(asked.response(0x8183).bytes); });
  Forwarder::Options options = hastyOptionsFor({server.target()});
  options.next = {dns::Rcode::kNxDomain, dns::Rcode::kServFail};
  make(options);
  const ForwardResult denied = resolve();
  EXPECT_EQ(denied.rcode, dns::Rcode::kNxDomain);
  EXPECT_TRUE(denied.next);
  server.handle(answerAll);
  EXPECT_FALSE(resolve().next);
  server.handle(sayNothing);
  EXPECT_TRUE(resolve().next) << "our own SERVFAIL too";
}

TEST_F(ForwardTest, PoliciesChooseServers) {
  const auto answering = [](uint8_t number) {
    return [number](const Asked& asked, const Reply& reply) { reply.send(asked.answer(number)); };
  };
  const std::vector<UpstreamTarget> to{upstream(answering(1)).target(), upstream(answering(2)).target(),
                                       upstream(answering(3)).target()};
  Forwarder::Options options = optionsFor(to);
  const auto sequence = [this, &options](Policy policy, int count) {
    options.policy = policy;
    make(options);
    // All before the first answer, which says how fast a server is.
    std::vector<Answer> answers;
    for (int i = 0; i < count; ++i) answers.push_back(ask(std::to_string(i) + ".example.org."));
    std::vector<int> numbers;
    for (const Answer& answer : answers) numbers.push_back(lastOctet(wait(answer)));
    return numbers;
  };
  EXPECT_EQ(sequence(Policy::kSequential, 4), (std::vector<int>{1, 1, 1, 1}));
  EXPECT_EQ(sequence(Policy::kRoundRobin, 5), (std::vector<int>{1, 2, 3, 1, 2}));
  std::array<int, 4> hits{};
  for (const int number : sequence(Policy::kRandom, 300)) ++hits.at(static_cast<size_t>(number));
  for (size_t i = 1; i <= 3; ++i) EXPECT_GT(hits.at(i), 50) << "of an expected 100";
}

// --- not to ourselves ---

TEST_F(ForwardTest, WeDoNotAskOurselves) {
  auto& self = upstream(answerAll);
  auto& other = upstream([](const Asked& asked, const Reply& reply) { reply.send(asked.answer(2)); });
  Forwarder::Options options = optionsFor({self.target(), other.target()});
  options.own = {self.address()};
  make(options);
  EXPECT_EQ(lastOctet(resolve()), 2);
  EXPECT_EQ(self.udpCount(), 0u);
  options.own = {{.ip = IpAddress::v4({}), .port = self.port()}};
  make(options);
  EXPECT_EQ(lastOctet(resolve()), 2) << "we listen on every address";
  EXPECT_EQ(self.udpCount(), 0u);
  const std::string port = ":" + std::to_string(self.port());
  for (const char* ip : {"127.0.0.1", "127.3.2.1", "[::ffff:127.0.0.1]"}) {
    make([&] {
      options.to = {parseUpstreamTarget(ip + port).value(), other.target()};
      return options;
    }());
    EXPECT_EQ(forwarder_->upstreams().size(), 1u) << ip;
    EXPECT_EQ(forwarder_->ourselves().size(), 1u) << ip;
  }
}

TEST_F(ForwardTest, NobodyIsLeftToAsk) {
  auto& self = upstream(answerAll);
  Forwarder::Options options = optionsFor({self.target()});
  options.own = {self.address()};
  make(options);
  const ForwardResult result = resolve();
  EXPECT_EQ(result.rcode, dns::Rcode::kServFail);
  EXPECT_EQ(result.ede, dns::EdeCode::kNoReachableAuthority);
  EXPECT_EQ(result.reason, "there is no server to forward to");
}

// --- files ---

class ForwardFileTest : public ForwardTest {
 protected:
  ForwardFileTest() {
    char pattern[] = "/tmp/idetcd-forward-XXXXXX";
    EXPECT_NE(mkdtemp(pattern), nullptr);
    directory_ = pattern;
    file_ = directory_ + "/resolv.conf";
  }
  ~ForwardFileTest() override {
    std::remove(file_.c_str());
    rmdir(directory_.c_str());
  }
  void write(const std::string& text) const {
    const std::string temporary = directory_ + "/new";
    std::ofstream(temporary) << text;
    std::rename(temporary.c_str(), file_.c_str());
  }
  std::string directory_;
  std::string file_;
};

TEST_F(ForwardFileTest, ServersOfAFileAreReadAgainWhenItChanges) {
  auto& first = upstream([](const Asked& asked, const Reply& reply) { reply.send(asked.answer(1)); });
  auto& second = upstream([](const Asked& asked, const Reply& reply) { reply.send(asked.answer(2)); });
  write("search example.org\nnameserver " + first.address().toString() + "\n");
  Forwarder::Options options = optionsFor({parseUpstreamTarget(file_).value()});
  options.file_interval = milliseconds(20);
  make(options);
  EXPECT_EQ(lastOctet(resolve()), 1);
  write("nameserver " + second.address().toString() + "\n");
  runUntil([&] { return forwarder_->upstreams().front().address == second.address(); });
  EXPECT_EQ(lastOctet(resolve()), 2);
  std::remove(file_.c_str());
  runFor(milliseconds(60));
  EXPECT_EQ(lastOctet(resolve()), 2) << "a file that is away changes nothing";
  write("# nobody\n");
  runUntil([&] { return forwarder_->upstreams().empty(); });
  EXPECT_EQ(resolve().rcode, dns::Rcode::kServFail);
}

TEST_F(ForwardFileTest, HoweverTheFileIsChanged) {
  auto& first = upstream([](const Asked& asked, const Reply& reply) { reply.send(asked.answer(1)); });
  auto& second = upstream([](const Asked& asked, const Reply& reply) { reply.send(asked.answer(2)); });
  const auto lineOf = [](const SocketAddress& address) { return "nameserver " + address.toString() + "\n"; };
  const auto follows = [&](const SocketAddress& address) {
    runUntil([&] { return forwarder_->upstreams().front().address == address; });
  };
  write(lineOf(first.address()));
  Forwarder::Options options = optionsFor({parseUpstreamTarget(file_).value()});
  options.file_interval = milliseconds(20);
  make(options);
  // In place, within the same tick of the clock, and of the same size if the ports are.
  std::ofstream(file_) << lineOf(second.address());
  follows(second.address());
  // Truncated first, and written later.
  std::ofstream(file_, std::ios::trunc).flush();
  runFor(milliseconds(60));
  EXPECT_EQ(lastOctet(resolve()), 2) << "an empty file changes nothing";
  std::ofstream(file_) << lineOf(first.address());
  follows(first.address());
  // A symbolic link that comes to point elsewhere.
  const std::string elsewhere = directory_ + "/elsewhere";
  const std::string link = directory_ + "/link";
  std::ofstream(elsewhere) << lineOf(second.address());
  ASSERT_EQ(symlink(elsewhere.c_str(), link.c_str()), 0);
  std::rename(link.c_str(), file_.c_str());
  follows(second.address());
  std::ofstream(elsewhere) << lineOf(first.address());
  follows(first.address());
  std::remove(elsewhere.c_str());
}

TEST_F(ForwardFileTest, AFifoInItsPlaceHoldsNobodyUp) {
  auto& server = upstream(answerAll);
  write("nameserver " + server.address().toString() + "\n");
  Forwarder::Options options = optionsFor({parseUpstreamTarget(file_).value()});
  options.file_interval = milliseconds(20);
  make(options);
  std::remove(file_.c_str());
  ASSERT_EQ(mkfifo(file_.c_str(), 0600), 0);
  runFor(milliseconds(60));
  const ForwardResult result = resolve();
  EXPECT_TRUE(result.response) << result.reason;
}

TEST_F(ForwardFileTest, AChangeDoesNotDisturbWhatIsInFlight) {
  Reply reply;
  auto& first = upstream([&reply](const Asked&, const Reply& r) { reply = r; });
  write("nameserver " + first.address().toString() + "\n");
  Forwarder::Options options = optionsFor({parseUpstreamTarget(file_).value()});
  options.file_interval = milliseconds(20);
  make(options);
  const Answer answer = ask("www.example.org.");
  runUntil([&] { return first.udpCount() == 1; });
  write("# nobody\n");
  runUntil([&] { return forwarder_->upstreams().empty(); });
  reply.send(first.asked().front().answer());
  EXPECT_EQ(lastOctet(wait(answer)), 1);
}

TEST_F(ForwardTest, DestroyedWhileQuestionsWait) {
  auto& server = upstream(sayNothing);
  make(optionsFor({server.target()}));
  const Answer udp = ask("a.example.org.");
  const Answer tcp = ask(Question{.name = "b.example.org.", .transport = resolve::Transport::kTcp});
  runUntil([&server] { return server.udpCount() == 1 && server.tcpCount() == 1; });
  forwarder_.reset();
  EXPECT_FALSE(*udp);
  EXPECT_FALSE(*tcp);
}

TEST_F(ForwardTest, ACallbackMayAskAgain) {
  auto& server = upstream(answerAll);
  make(optionsFor({server.target()}));
  Message message("www.example.org.", 1);
  dns::Query query;
  dns::parseQuery(message.data(), message.size(), Message::kSeed, query);
  int left = 3;
  Forwarder::Callback again = [&](const ForwardResult& result) {
    EXPECT_TRUE(result.response);
    if (--left > 0) forwarder_->resolve(query, resolve::Transport::kUdp, again);
  };
  forwarder_->resolve(query, resolve::Transport::kUdp, again);
  runUntil([&left] { return left == 0; });
  EXPECT_EQ(server.udpCount(), 3u);
}

}  // namespace
}  // namespace idetcd::resolver
