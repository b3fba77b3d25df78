// The page as a viewer's browser gets it, and that viewers share it.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "directive/admin/answers.h"
#include "directive/admin/page_response.h"

namespace idetcd::directive {
namespace {

using nlohmann::json;
using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ms;

TEST(AdminHost, IsReadAsABrowserSendsIt) {
  EXPECT_EQ(hostOf("localhost"), "localhost");
  EXPECT_EQ(hostOf("LocalHost:9154"), "localhost");
  EXPECT_EQ(hostOf("worker1.tf.local.:9154"), "worker1.tf.local");
  EXPECT_EQ(hostOf("192.0.2.1:80"), "192.0.2.1");
  EXPECT_EQ(hostOf("[::1]:9154"), "::1");
  EXPECT_EQ(hostOf("[::1]"), "::1");
  for (const char* wrong : {"", ":", "::1", "[::1", "a:b", "a:1:2", "[::1]x", "a:1x"}) {
    EXPECT_EQ(hostOf(wrong), "") << wrong;
  }
}

TEST(AdminHost, OnlyWhatNobodyElseCanHaveLeadHereIsTaken) {
  for (const char* here : {"localhost", "127.0.0.1", "192.0.2.1", "::1", "2001:db8::1"}) {
    EXPECT_TRUE(isAddressOrLocalhost(here)) << here;
  }
  for (const char* other : {"", "example.org", "localhost.example.org", "127.0.0.1.example.org", "1", "127.1"}) {
    EXPECT_FALSE(isAddressOrLocalhost(other)) << other;
  }
}

// The digest is that of `printf x | openssl dgst -sha512 -binary | base64 -w0`.
TEST(AdminPage, PolicyNamesScriptAndStyleByTheirDigests) {
  const std::string x =
      "'sha512-pKvURIxJVi2CgRXROh/M6pJ/UrTVRZKX+LQ+QtqJI4vBNibkPcs43bCCSIkn7JBPtCBXRDmD6IWFF51QVRr+Yg=='";
  const std::string policy = policyOf("<style>x</style><script>x</script>");
  EXPECT_NE(policy.find("script-src " + x + ";"), policy.npos) << policy;
  EXPECT_NE(policy.find("style-src " + x + ";"), policy.npos) << policy;
  EXPECT_TRUE(policy.starts_with("default-src 'none'; ")) << policy;
  EXPECT_EQ(policy.find("unsafe"), policy.npos);
}

TEST(AdminPage, IsOneDocumentWithoutAnythingFromElsewhere) {
  ASSERT_TRUE(kPage.starts_with("<!doctype html>"));
  EXPECT_TRUE(kPage.ends_with("</html>\n"));
  for (const char* no : {"innerHTML", "insertAdjacentHTML", "document.write", "eval(", "src=", "@import", "style=\"",
                         "onclick", "https://"}) {
    EXPECT_EQ(kPage.find(no), kPage.npos) << no;
  }
  for (const char* once : {"<script", "<style"}) EXPECT_EQ(kPage.find(once), kPage.rfind(once)) << once;
  const http::Response response = pageResponse();
  EXPECT_EQ(response.content_type, "text/html; charset=utf-8");
  EXPECT_EQ(response.fields.front().first, "Content-Security-Policy");
  EXPECT_EQ(response.fields.front().second, policyOf(kPage));
}

class SharedAnswerTest : public ::testing::Test {
 protected:
  std::shared_ptr<SharedAnswer> make(std::chrono::milliseconds interval) {
    return SharedAnswer::of([this](const http::Reply& reply) { asked_.push_back(reply); }, interval);
  }
  void read(const std::shared_ptr<SharedAnswer>& shared) {
    shared->read([this](const SharedAnswer::Value& value) { seen_.push_back(value.response.body); });
  }

  std::vector<std::string> seen_;
  std::vector<http::Reply> asked_;  // goes first: those that are lost answer
};

TEST_F(SharedAnswerTest, WhoAsksMeanwhileGetsTheSame) {
  const auto shared = make(1h);
  read(shared);
  read(shared);
  ASSERT_EQ(asked_.size(), 1U);
  EXPECT_TRUE(seen_.empty());
  asked_[0]({.body = "1"});
  EXPECT_EQ(seen_, (std::vector<std::string>{"1", "1"}));
  read(shared);
  EXPECT_EQ(seen_.size(), 3U) << "within the interval";
  EXPECT_EQ(asked_.size(), 1U);
  asked_[0]({.body = "again"});
  read(shared);
  EXPECT_EQ(seen_.back(), "1");
}

TEST_F(SharedAnswerTest, IsMadeAnewAfterTheInterval) {
  const auto shared = make(0ms);
  read(shared);
  asked_[0]({.body = "1"});
  read(shared);
  ASSERT_EQ(asked_.size(), 2U);
  asked_[1]({.body = "2"});
  EXPECT_EQ(seen_, (std::vector<std::string>{"1", "2"}));
}

TEST_F(SharedAnswerTest, AReplyThatIsLostIsAnError) {
  const auto shared = make(0ms);
  read(shared);
  asked_.clear();
  ASSERT_EQ(seen_.size(), 1U);
  EXPECT_NE(seen_[0].find("error"), std::string::npos);
  read(shared);
  EXPECT_EQ(asked_.size(), 1U) << "it is asked for again";
}

TEST_F(SharedAnswerTest, OnlySoManyWait) {
  const auto shared = make(1h);
  for (size_t i = 0; i <= SharedAnswer::kMaxWaiting; ++i) read(shared);
  ASSERT_EQ(seen_.size(), 1U);
  EXPECT_NE(seen_[0].find("too many"), std::string::npos);
  asked_[0]({.body = "1"});
  EXPECT_EQ(seen_.size(), SharedAnswer::kMaxWaiting + 1);
}

TEST(AdminHistory, HasTheSecondsAfterTheOneThatIsKnown) {
  const json all = json::parse(R"({"now": 9.5, "seconds": [{"at": 7}, {"at": 8}, {"at": 9}]})");
  EXPECT_EQ(historySince(all, 0), all);
  EXPECT_EQ(historySince(all, 8).dump(), R"({"now":9.5,"seconds":[{"at":9}]})");
  EXPECT_EQ(historySince(all, 9)["seconds"], json::array());
  for (const char* other : {"1", "[]", R"({"seconds": 1})", "{}"}) {
    EXPECT_EQ(historySince(json::parse(other), 1), json::parse(other));
  }
}

}  // namespace
}  // namespace idetcd::directive
