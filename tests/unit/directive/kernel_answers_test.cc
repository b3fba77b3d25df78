#include "directive/xdp/kernel_answers.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "net/event_loop.h"
#include "records/epoch.h"
#include "support/metric_values.h"
#include "unit/kernel/kernel_support.h"

namespace idetcd::directive {
namespace {

using kernel::test::ip;
using kernel::test::name;
using kernel::test::queryFor;
using test_support::sumOf;
using test_support::valuesOf;

constexpr uint16_t kA = 1;

class KernelCountsTest : public kernel::test::ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    if (IsSkipped()) return;
    store_.addObserver(std::make_shared<kernel::AnswerFeed>(program_.maps, 0, kernel::ZoneIdentity{}, store_));
    store_.put(name("w1.tf.local."), {.ipv4 = ip("192.0.2.1"), .ipv6 = {}}, 1);
    store_.setFreshness(records::Freshness::kFresh);
    listen("127.0.0.1");
  }

  records::EpochDomain epochs_;
  records::RecordStore store_{epochs_, {.zone = name("tf.local."), .addresses = {}}};
  metrics::Registry registry_;
  std::shared_ptr<resolve::QueryMeter> meter_ = std::make_shared<resolve::QueryMeter>();
  std::shared_ptr<resolve::QuerySamples> samples_ = std::make_shared<resolve::QuerySamples>();
};

TEST_F(KernelCountsTest, WhatTheKernelHasAnsweredIsAddedOnce) {
  const SocketAddress address{.ip = ip("127.0.0.1"), .port = 53};
  ask(queryFor("w1.tf.local.", kA));  // before: another process's
  KernelCounts counts(program_.maps, registry_.scope(), samples_);
  const resolve::DirectiveId by = 3;
  ASSERT_EQ(counts.meterFor({address, "."}, meter_, by), 0);
  EXPECT_EQ(counts.meterFor({address, "."}, meter_, by), 0);
  EXPECT_EQ(counts.meterFor({address, "other."}, nullptr, by), 1);
  const auto now = BootClock::now();
  for (int i = 0; i < 3; ++i) ask(queryFor("w1.tf.local.", kA, true));
  ask(queryFor("w2.tf.local.", kA));
  ask(queryFor("tf.local.", kA));
  for (int i = 0; i < 2; ++i) counts.update(now);
  const auto values = valuesOf(registry_);
  EXPECT_EQ(values.at(R"(idetcd_xdp_answered_total{type="A",rcode="NOERROR"})"), 3);
  EXPECT_EQ(values.at(R"(idetcd_xdp_answered_total{type="A",rcode="NXDOMAIN"})"), 1);
  EXPECT_EQ(values.at(R"(idetcd_xdp_passed_total{reason="zone"})"), 1);
  EXPECT_EQ(sumOf(registry_, "idetcd_xdp_answered_total"), 4);
  EXPECT_EQ(sumOf(registry_, "idetcd_xdp_passed_total"), 1);
  EXPECT_EQ(meter_->requests[0][0][resolve::QueryMeter::typeIndex(kA)].value(), 4u);
  EXPECT_EQ(meter_->responses[by][0].value(), 3u);
  EXPECT_EQ(meter_->responses[by][3].value(), 1u);
  EXPECT_EQ(meter_->request_sizes[0].buckets_[1].value(), 4u);
  resolve::QuerySamples::Sums sums;
  samples_->read(resolve::QuerySamples::secondOf(now), sums);
  EXPECT_EQ(sums.queries, 4u);
}

TEST_F(KernelCountsTest, AMeterThatIsNotWantedAnyMoreIsAnothers) {
  KernelCounts counts(program_.maps, registry_.scope(), samples_);
  const resolve::DirectiveId by = 3;
  const auto subject = [](int i) {
    return KernelCounts::Subject({.ip = ip("127.0.0.1"), .port = 53}, std::to_string(i));
  };
  for (int i = 0; i < kernel::kMeters; ++i) ASSERT_EQ(counts.meterFor(subject(i), meter_, by), i);
  EXPECT_EQ(counts.meterFor(subject(-1), meter_, by), std::nullopt);
  ask(queryFor("w1.tf.local.", kA));  // counted by the first
  counts.keepOnly({subject(1), subject(kernel::kMeters - 1)});
  EXPECT_EQ(sumOf(registry_, "idetcd_xdp_answered_total"), 1) << "the last ones";
  const auto other = std::make_shared<resolve::QueryMeter>();
  EXPECT_EQ(counts.meterFor(subject(-1), other, by), 0);
  EXPECT_EQ(counts.meterFor(subject(1), meter_, by), 1);
  ask(queryFor("w1.tf.local.", kA));
  counts.update(BootClock::now());
  EXPECT_EQ(sumOf(registry_, "idetcd_xdp_answered_total"), 2);
  EXPECT_EQ(meter_->responses[by][0].value(), 1u);
  EXPECT_EQ(other->responses[by][0].value(), 1u);
}

class KernelAnswersTest : public kernel::test::ProgramTest {
 protected:
  net::EventLoop loop_;
  records::EpochDomain epochs_;
  resolve::Process process_{Logger::toStdout(), loop_, epochs_};
};

TEST_F(KernelAnswersTest, SaysWhetherTheKernelAnswers) {
  KernelAnswers answers(process_);
  const XdpSettings settings{.attach = {.interfaces = {"lo"}}, .required = true, .pin = {}};
  auto attached = kernel::attach({.interfaces = {}, .mode = kernel::Mode::kAny, .max_names = 64});
  ASSERT_TRUE(attached);
  ASSERT_TRUE(answers.want(settings, std::move(attached)));
  answers.accept();
  answers.onRoutes({});
  const auto values = valuesOf(process_.metrics);
  EXPECT_EQ(values.at("idetcd_xdp_attached"), 0);  // no block can be answered
  EXPECT_EQ(values.at("idetcd_xdp_names"), 0);
  EXPECT_EQ(values.at("idetcd_xdp_left_out_total"), 0);
  // A reload with the same settings goes on; with others it cannot, and says so if it must.
  EXPECT_TRUE(answers.want(settings, std::nullopt));
  answers.accept();
  const XdpSettings other{.attach = {.interfaces = {"eth0"}}, .required = true, .pin = {}};
  const auto refused = answers.want(other, std::nullopt);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "plugin/xdp: a change of what is attached takes a restart");
  answers.refuse();
  answers.stop();
}

}  // namespace
}  // namespace idetcd::directive
