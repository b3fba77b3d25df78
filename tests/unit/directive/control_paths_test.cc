// The sections of the status about caches and upstreams, as the accepted configuration has them.
#include "directive/forward/control_paths.h"

#include <memory>

#include <gtest/gtest.h>

#include "control/control.h"
#include "net/event_loop.h"
#include "records/epoch.h"

namespace idetcd::directive {
namespace {

using nlohmann::json;
using resolver::ServerReport;
using resolver::ServerReports;

class ControlPathsTest : public ::testing::Test {
 protected:
  void SetUp() override { begin(); }
  void begin() {
    control_.begin();
    addForwardPaths(process_);
  }
  json section(const std::string& name) { return control_.report().at(name); }

  static std::shared_ptr<ServerReport> server(const std::string& name) { return std::make_shared<ServerReport>(name); }
  static std::shared_ptr<ServerReports> serversOf(ServerReports::All all) {
    auto servers = std::make_shared<ServerReports>();
    servers->set(std::move(all));
    return servers;
  }

  records::EpochDomain epochs_;
  net::EventLoop loop_;
  resolve::Process process_{Logger(), loop_, epochs_};
  control::Control& control_ = process_.state<control::Control>();
};

TEST_F(ControlPathsTest, SectionsAreThereWhereNothingIsForwarded) {
  control_.accept();
  EXPECT_EQ(section("caches"), json::array());
  EXPECT_EQ(section("upstreams"), json::array());
}

TEST_F(ControlPathsTest, CachesAreSumsOverTheLoops) {
  const auto one = std::make_shared<resolver::CacheCounters>(metrics::Scope());
  const auto two = std::make_shared<resolver::CacheCounters>(metrics::Scope());
  one->success.entries.set(3);
  one->denial.entries.set(1);
  two->success.entries.set(2);
  one->bytes.set(700);
  two->bytes.set(300);
  one->success.hits.add(10);
  one->denial.hits.add(2);
  two->denial.hits.add(4);
  one->misses.add(5);
  two->misses.add(6);
  const auto block = BlockReport::make(process_);
  block->add(".:53", {.cache = one});
  block->add(".:53", {.cache = two});
  const auto other = BlockReport::make(process_);
  other->add("a.:53", {});
  EXPECT_EQ(control_.report().contains("caches"), false) << "not accepted yet";
  control_.accept();
  const json all{{"block", ".:53"}, {"entries", 6}, {"bytes", 1000}, {"hits", 16}, {"misses", 11}};
  EXPECT_EQ(section("caches"), json::array({all})) << "the other block has none";
}

TEST_F(ControlPathsTest, AnUpstreamIsUpIfOneLoopThinksSo) {
  const auto a1 = server("192.0.2.1:53");
  const auto a2 = server("192.0.2.1:53");
  const auto b1 = server("192.0.2.2:53");
  const auto b2 = server("192.0.2.2:53");
  a1->setRoundTrip(std::chrono::milliseconds(10));
  a2->setRoundTrip(std::chrono::milliseconds(30));
  b1->setUp(false);
  const auto first = serversOf({a1, b1});
  const auto second = serversOf({b2, a2});
  const auto block = BlockReport::make(process_);
  block->add(".:53", {.upstreams = {first}, .files = {""}});
  block->add(".:53", {.upstreams = {second}, .files = {""}});
  control_.accept();
  json a{{"block", ".:53"}, {"server", "192.0.2.1:53"}, {"up", true}, {"round_trip_seconds", 0.02}};
  json b{{"block", ".:53"}, {"server", "192.0.2.2:53"}, {"up", true}, {"round_trip_seconds", nullptr}};
  EXPECT_EQ(section("upstreams"), json::array({a, b}));
  a1->setUp(false);
  b2->setUp(false);
  a["round_trip_seconds"] = 0.03;
  b["up"] = false;
  EXPECT_EQ(section("upstreams"), json::array({a, b}));
  a2->setUp(false);
  a["up"] = false;
  a["round_trip_seconds"] = nullptr;
  EXPECT_EQ(section("upstreams"), json::array({a, b}));
  first->set({});
  second->set({b2});
  EXPECT_EQ(section("upstreams"), json::array({b})) << "a list of servers has changed";
}

TEST_F(ControlPathsTest, AForwardWithoutAServerThatAnswersIsDegraded) {
  const auto a1 = server("192.0.2.1:53");
  const auto a2 = server("192.0.2.1:53");
  const auto b = server("192.0.2.2:53");
  const auto block = BlockReport::make(process_);
  const auto first = serversOf({a1});
  const auto second = serversOf({b});
  const auto of_other_loop = serversOf({a2});
  block->add(".:53", {.upstreams = {first, second}, .files = {"", ""}});
  block->add(".:53", {.upstreams = {of_other_loop, second}, .files = {"", ""}});
  control_.accept();
  EXPECT_EQ(section("degraded"), json::array());
  a1->setUp(false);
  EXPECT_EQ(section("degraded"), json::array()) << "another loop thinks that it is up";
  a2->setUp(false);
  EXPECT_EQ(section("degraded"), json::array({".:53: no upstream answers: 192.0.2.1:53"}));
  a1->setUp(true);
  EXPECT_EQ(section("degraded"), json::array());
  const auto none = serversOf({});
  BlockReport::make(process_)->add("empty.:53", {.upstreams = {none}, .files = {"/etc/servers"}});
  control_.accept();
  EXPECT_EQ(section("degraded"), json::array({"empty.:53: there is no upstream: /etc/servers names none"}));
}

TEST_F(ControlPathsTest, AnOlderConfigurationIsNotShown) {
  const auto counters = std::make_shared<resolver::CacheCounters>(metrics::Scope());
  const auto servers = serversOf({server("192.0.2.1:53")});
  BlockReport::make(process_)->add("old.:53", {.cache = counters, .upstreams = {servers}, .files = {""}});
  control_.accept();
  EXPECT_EQ(section("caches").size(), 1u);
  begin();
  BlockReport::make(process_)->add("refused.:53", {.cache = counters, .upstreams = {servers}, .files = {""}});
  control_.refuse();
  EXPECT_EQ(section("caches")[0]["block"], "old.:53");
  EXPECT_EQ(section("upstreams").size(), 1u);
  begin();
  BlockReport::make(process_)->add("new.:53", {.cache = counters, .upstreams = {servers}, .files = {""}});
  control_.accept();
  EXPECT_EQ(section("caches").size(), 1u);
  EXPECT_EQ(section("caches")[0]["block"], "new.:53");
  EXPECT_EQ(section("upstreams").size(), 1u);
  EXPECT_EQ(section("upstreams")[0]["block"], "new.:53");
}

}  // namespace
}  // namespace idetcd::directive
