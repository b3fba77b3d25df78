// The status is what the accepted configuration has added; requests and answers as the subcommands have them.
#include "control/control.h"

#include <string>

#include <gtest/gtest.h>

#include "net/event_loop.h"
#include "records/epoch.h"

namespace idetcd::control {
namespace {

using nlohmann::json;

class ControlTest : public ::testing::Test {
 protected:
  void SetUp() override { control_.begin(); }

  records::EpochDomain epochs_;
  net::EventLoop loop_;
  resolve::Process process_{Logger(), loop_, epochs_};
  Control& control_ = process_.state<Control>();
};

TEST_F(ControlTest, SaysWhatTheAcceptedConfigurationHasAdded) {
  control_.addStatus("one", [] { return json(1); });
  EXPECT_FALSE(control_.report().contains("one"));
  control_.accept();
  EXPECT_EQ(control_.report()["one"], 1);
  control_.begin();
  control_.addStatus("two", [] { return json(2); });
  control_.refuse();
  EXPECT_EQ(control_.report()["one"], 1);
  EXPECT_FALSE(control_.report().contains("two"));
  control_.begin();
  control_.accept();
  EXPECT_FALSE(control_.report().contains("one"));
}

TEST_F(ControlTest, ArraysOfOneSectionArePutTogether) {
  control_.addStatus("all", [] { return json::array({1, 2}); });
  control_.addStatus("all", [] { return json::array({3}); });
  control_.addStatus("last", [] { return json(1); });
  control_.addStatus("last", [] { return json(2); });
  control_.accept();
  const json report = control_.report();
  EXPECT_EQ(report["all"], json::array({1, 2, 3}));
  EXPECT_EQ(report["last"], 2);
  EXPECT_TRUE(report["version"].is_string());
  EXPECT_GT(report["pid"], 0);
  EXPECT_GE(report["uptime_seconds"], 0);
}

TEST_F(ControlTest, IsReadyWhenNothingIsMissing) {
  std::string missing = "names";
  control_.addReadiness("idetcd", [&missing] { return missing; });
  control_.addReadiness("idetcd", [&missing] { return missing; });
  control_.accept();
  EXPECT_EQ(control_.report()["ready"], false);
  EXPECT_EQ(control_.report()["not_ready"], json::array({"idetcd: names"}));
  missing.clear();
  EXPECT_EQ(control_.report()["ready"], true);
  EXPECT_EQ(control_.report()["not_ready"], json::array());
}

TEST(ControlMessageTest, BodiesAreLines) {
  EXPECT_EQ(answer({{"a", 1}}).body, "{\"a\":1}\n");
  EXPECT_EQ(answer({{"a", 1}}).content_type, "application/json");
  EXPECT_EQ(refuse(409, "taken").status, 409);
  EXPECT_EQ(refuse(409, "taken").body, "{\"error\":\"taken\"}\n");
  EXPECT_EQ(answer({{"a", "\xff"}}).body, "{\"a\":\"\xEF\xBF\xBD\"}\n") << "not UTF-8, from strangers";
}

TEST(ControlMessageTest, ParametersAreDecoded) {
  const auto value = [](const std::string& query, std::string_view name) {
    http::Request request;
    request.query = query;
    return parameter(request, name);
  };
  EXPECT_EQ(value("name=a&zone=b", "name"), "a");
  EXPECT_EQ(value("name=a&zone=b", "zone"), "b");
  EXPECT_EQ(value("name=a&zone=b", "zon"), "");
  EXPECT_EQ(value("", "name"), "");
  EXPECT_EQ(value("name", "name"), "");
  EXPECT_EQ(value("name=a%2eb%2F%25", "name"), "a.b/%");
  EXPECT_EQ(value("name=a+b%", "name"), "a b%");
  EXPECT_EQ(value("name=%4", "name"), "%4");
  EXPECT_EQ(value("name=%zz", "name"), "%zz");
  EXPECT_EQ(value("name==&x", "name"), "=");
}

// Another part shows it, without a socket.
TEST_F(ControlTest, APathOfTheAcceptedConfigurationIsAsked) {
  const auto ask = [this](const std::string& path, const std::string& query = "") {
    http::Response answered{.status = 0};
    control_.ask(path, query, [&answered](http::Response response) { answered = std::move(response); });
    return std::to_string(answered.status) + " " + answered.body;
  };
  control_.add("/v1/now", [](const http::Request& request) {
    return request.is_post ? answer("changed") : answer(parameter(request, "a"));
  });
  control_.addLate("/v1/late", [](const http::Request&, const http::Reply& reply) { reply(answer(1)); });
  EXPECT_EQ(ask("/v1/now").substr(0, 3), "404");
  control_.accept();
  EXPECT_EQ(ask("/v1/now", "a=b"), "200 \"b\"\n");
  EXPECT_EQ(ask("/v1/late"), "200 1\n");
  EXPECT_EQ(ask("/v1/status").substr(0, 3), "200");
  EXPECT_EQ(ask("/v1/other"), "404 {\"error\":\"there is no /v1/other\"}\n");
}

}  // namespace
}  // namespace idetcd::control
