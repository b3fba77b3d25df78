#include "directive/ready/readiness.h"

#include <string>

#include <gtest/gtest.h>

#include "net/event_loop.h"
#include "records/epoch.h"

namespace idetcd::directive {
namespace {

class ReadinessTest : public ::testing::Test {
 protected:
  using Monitor = Readiness::Monitor;

  void add(const std::string& name, std::string& missing, Monitor monitor = Monitor::kUntilReady) {
    readiness_.add(
        name, [&missing] { return missing; }, monitor);
  }
  std::string say() {
    const http::Response response = readiness_.respond();
    return std::to_string(response.status) + " " + response.body;
  }

  records::EpochDomain epochs_;
  net::EventLoop loop_;
  resolve::Process process_{Logger(), loop_, epochs_};
  Readiness& readiness_ = process_.state<Readiness>();
};

TEST_F(ReadinessTest, SaysWhatIsMissing) {
  std::string a = "all";
  std::string b = "half";
  add("a", a);
  add("b", b);
  EXPECT_EQ(say(), "200 OK") << "not accepted";
  readiness_.accept();
  EXPECT_EQ(say(), "503 a: all\nb: half\n");
  a = "";
  EXPECT_EQ(say(), "503 b: half\n");
  b = "";
  EXPECT_EQ(say(), "200 OK");
}

TEST_F(ReadinessTest, MonitorsUntilReadyOrContinuously) {
  std::string once;
  std::string always;
  add("once", once);
  add("always", always, Monitor::kContinuously);
  readiness_.accept();
  EXPECT_EQ(say(), "200 OK");
  once = always = "gone";
  EXPECT_EQ(say(), "503 always: gone\n");
}

TEST_F(ReadinessTest, AReloadAsksAnew) {
  std::string a;
  add("a", a);
  readiness_.accept();
  EXPECT_EQ(say(), "200 OK");
  a = "all";
  add("a", a);
  readiness_.refuse();
  EXPECT_EQ(say(), "200 OK");
  add("a", a);
  readiness_.accept();
  EXPECT_EQ(say(), "503 a: all\n");
}

TEST_F(ReadinessTest, AtTheEndNothingIsReady) {
  EXPECT_EQ(readiness_.prepareEnd().count(), 0);
  EXPECT_EQ(say(), "503 Shutting down");
}

}  // namespace
}  // namespace idetcd::directive
