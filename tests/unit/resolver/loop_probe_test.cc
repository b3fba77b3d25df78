#include "resolver/loop_probe.h"

#include <set>

#include <gtest/gtest.h>

#include "support/query_fixture.h"

namespace idetcd::resolver {
namespace {

using std::chrono::milliseconds;

constexpr uint16_t kHinfo = 13;

// A forwarder that does nothing but note what it was asked, unless `upstream` does something about it.
class LoopProbeTest : public testing::Test {
 protected:
  using Done = std::function<void(bool)>;

  std::shared_ptr<LoopProbe> make(LoopProbe::Options options) {
    return std::make_shared<LoopProbe>(
        loop_, std::move(options),
        [this](const dns::Query& query, Done done) {
          EXPECT_EQ(query.qtype, kHinfo);
          EXPECT_EQ(query.qclass, 1);
          asked_.push_back(dns::nameToString(query.qname));
          if (upstream_) upstream_(asked_.back(), std::move(done));
        },
        [this](const std::string& line) {
          lines_.push_back(line);
          if (stop_when_found_) loop_.stop();
        });
  }

  // A client asks us.
  void ask(LoopProbe& probe, const std::string& name, uint16_t type = kHinfo) {
    Message message(name, type);
    dns::Query query;
    ASSERT_EQ(dns::parseQuery(message.data(), message.size(), Message::kSeed, query), dns::ParseOutcome::kQuery);
    sockaddr_storage source;
    SocketAddress{*IpAddress::parse("192.0.2.9"), 4711}.toSockaddr(&source);
    const SocketAddress local{{}, 53};
    probe.see(query, {.source = reinterpret_cast<const sockaddr*>(&source), .local = &local, .response_limit = 512});
  }

  // Runs the loop until the probing is over.
  void runUntilOver(const LoopProbe& probe) {
    net::Timer look(loop_, [&] {
      if (!probe.isProbing()) loop_.stop();
    });
    look.start(milliseconds(1), milliseconds(1));
    loop_.run();
  }

  // With time enough for all that a test waits for.
  static LoopProbe::Options quick(std::string_view zone = ".") {
    return {.zone = *dns::Name::parse(zone),
            .retry = milliseconds(5),
            .grace = milliseconds(5),
            .total = std::chrono::minutes(1)};
  }
  // For probing that only the time ends.
  static LoopProbe::Options brief() {
    LoopProbe::Options options = quick();
    options.total = milliseconds(500);
    return options;
  }

  net::EventLoop loop_;
  std::function<void(const std::string& name, Done)> upstream_;
  std::vector<std::string> asked_;
  std::vector<std::string> lines_;
  bool stop_when_found_ = true;
};

TEST_F(LoopProbeTest, FindsALoopThroughAForwarderThatAsksNothingTwice) {
  const auto probe = make(quick());
  std::set<std::string> in_flight;
  upstream_ = [&](const std::string& name, Done) {
    if (in_flight.insert(name).second) ask(*probe, name);  // never answered: it waits for itself
  };
  probe->start();
  loop_.run();
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0].find("Loop (192.0.2.9:4711 -> :53) detected for zone \".\", see "
                           "https://coredns.io/plugins/loop#troubleshooting. Query: \"HINFO "),
            0u)
      << lines_[0];
  EXPECT_EQ(in_flight.size(), 2u);
  EXPECT_FALSE(probe->isProbing());
  EXPECT_NE(lines_[0].find(*++asked_.begin()), std::string::npos) << "the name that came back last";
}

TEST_F(LoopProbeTest, CountsTheSameNameEachTime) {
  const auto probe = make(quick());
  probe->start();
  for (int i = 0; i < 5; ++i) ask(*probe, asked_[0]);
  loop_.run();
  EXPECT_EQ(lines_.size(), 1u);
}

TEST_F(LoopProbeTest, OneEchoIsNoLoop) {
  LoopProbe::Options options = quick("example.org.");
  options.grace = milliseconds(1500);  // longer than it takes to hear of the echo
  const auto probe = make(std::move(options));
  bool echoed = false;
  upstream_ = [&](const std::string& name, Done done) {
    if (!std::exchange(echoed, true)) ask(*probe, name);
    done(true);
  };
  probe->start();
  runUntilOver(*probe);
  EXPECT_TRUE(lines_.empty());
  ASSERT_EQ(asked_.size(), 2u);
  EXPECT_NE(asked_[0], asked_[1]);
}

TEST_F(LoopProbeTest, NamesAreUnguessableAndInTheZone) {
  const auto probe = make(quick("Example.org."));
  const auto other = make(quick("Example.org."));
  probe->start();
  other->start();
  ASSERT_EQ(asked_.size(), 2u);
  EXPECT_NE(asked_[0], asked_[1]);
  for (const std::string& name : asked_) {
    EXPECT_EQ(name.size(), 32u + 1 + 32 + 1 + 12);
    EXPECT_TRUE(name.ends_with(".example.org.")) << name;
  }
  std::string longest;
  for (int i = 0; i < 4; ++i) longest += std::string(i < 3 ? 63 : 61, 'a') + '.';
  const auto in_long_zone = make(quick(longest));
  in_long_zone->start();
  EXPECT_EQ(asked_.back().size(), 66u);
}

TEST_F(LoopProbeTest, CountsNothingElse) {
  const auto probe = make(brief());
  ask(*probe, "before.the.start.");
  probe->start();
  const std::string name = asked_[0];
  for (int i = 0; i < 5; ++i) {
    ask(*probe, name, 1);
    ask(*probe, "x." + name);
    ask(*probe, name.substr(name.find('.') + 1));
    ask(*probe, "loop.test.");
  }
  runUntilOver(*probe);
  EXPECT_TRUE(lines_.empty());
  for (int i = 0; i < 5; ++i) ask(*probe, name);
  net::Timer stop(loop_, [this] { loop_.stop(); });
  stop.start(milliseconds(5));
  loop_.run();
  EXPECT_TRUE(lines_.empty()) << "after the probing";
}

TEST_F(LoopProbeTest, AsksAgainUntilThereIsAnAnswer) {
  const auto probe = make(quick());
  upstream_ = [this](const std::string&, const Done& done) { done(asked_.size() == 3); };
  probe->start();
  EXPECT_TRUE(probe->isProbing());
  runUntilOver(*probe);
  ASSERT_EQ(asked_.size(), 3u);
  EXPECT_EQ(asked_[0], asked_[2]) << "the same name as long as it has not come back";
}

TEST_F(LoopProbeTest, GivesUpInTheEnd) {
  const auto probe = make(brief());
  upstream_ = [](const std::string&, const Done& done) { done(false); };
  probe->start();
  runUntilOver(*probe);
  const size_t asked = asked_.size();
  EXPECT_GE(asked, 2u);
  net::Timer stop(loop_, [this] { loop_.stop(); });
  stop.start(milliseconds(20));
  loop_.run();
  EXPECT_EQ(asked_.size(), asked);
}

TEST_F(LoopProbeTest, MayBeDestroyedWhileItWaits) {
  auto probe = make(quick());
  Done kept;
  upstream_ = [&kept](const std::string&, Done done) { kept = std::move(done); };
  probe->start();
  ask(*probe, asked_[0]);
  ask(*probe, asked_[0]);
  probe.reset();
  kept(true);
  kept(false);
  net::Timer stop(loop_, [this] { loop_.stop(); });
  stop.start(milliseconds(10));
  loop_.run();
  EXPECT_TRUE(lines_.empty());
}

TEST_F(LoopProbeTest, MayBeDestroyedByWhatItFinds) {
  std::shared_ptr<LoopProbe> probe = std::make_shared<LoopProbe>(
      loop_, quick(), [this](const dns::Query& query, Done) { asked_.push_back(dns::nameToString(query.qname)); },
      [&](const std::string&) {
        probe.reset();
        loop_.stop();
      });
  probe->start();
  for (int i = 0; i < 3; ++i) ask(*probe, asked_[0]);
  loop_.run();
  EXPECT_EQ(probe, nullptr);
}

}  // namespace
}  // namespace idetcd::resolver
