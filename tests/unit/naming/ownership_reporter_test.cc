#include "naming/ownership_reporter.h"

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/manual_scheduler.h"
#include "unit/naming/given_name.h"

namespace idetcd::naming {
namespace {

using namespace std::chrono_literals;
using test_support::ManualScheduler;

class OwnershipReporterTest : public testing::Test {
 protected:
  OwnershipReporterTest() { scheduler_.spawn(reporter_.watchDeadline()); }
  ~OwnershipReporterTest() override { scheduler_.stop(); }

  void own(const std::string& name, int64_t token, std::chrono::nanoseconds time = 18s) {
    name_.own(name, token, time);
    reporter_.report();
  }
  using Lines = std::vector<std::string>;

  ManualScheduler scheduler_;
  Lifetime lifetime_{scheduler_};
  GivenName name_{scheduler_};
  Lines lines_;
  OwnershipReporter reporter_{scheduler_,
                              lifetime_,
                              name_,
                              {.claimed = [this](const Ownership& owned) { lines_.push_back("+" + owned.name); },
                               .lost = [this] { lines_.push_back("-"); }}};
};

TEST_F(OwnershipReporterTest, AClaimAndItsLossAreReportedOnceEach) {
  scheduler_.advance(5s);
  EXPECT_TRUE(lines_.empty());
  own("a.", 1);
  EXPECT_EQ(lines_, Lines{"+a."});
  scheduler_.advance(6s);
  own("a.", 1);
  EXPECT_EQ(lines_, Lines{"+a."}) << "a renewal";
  EXPECT_EQ(reporter_.reported()->deadline, scheduler_.now() + 18s);
  name_.owned.reset();
  reporter_.report();
  reporter_.report();
  EXPECT_EQ(lines_, (Lines{"+a.", "-"}));
}

TEST_F(OwnershipReporterTest, TheDeadlineIsReportedWhenItPasses) {
  own("a.", 1);
  scheduler_.advance(17s);
  EXPECT_EQ(lines_, Lines{"+a."});
  scheduler_.advance(1s);
  EXPECT_EQ(lines_, (Lines{"+a.", "-"}));
  EXPECT_FALSE(reporter_.reported());
}

TEST_F(OwnershipReporterTest, AnotherNameOrTokenIsAnotherOwnership) {
  own("a.", 1);
  own("a.", 2);
  own("b.", 2);
  EXPECT_EQ(lines_, (Lines{"+a.", "-", "+a.", "-", "+b."}));
}

// The process stands still beyond the deadline, and the first thing that it learns is a renewal.
TEST_F(OwnershipReporterTest, AnOwnershipThatEndedUnseenHasEnded) {
  own("a.", 1);
  scheduler_.standStill(20s);
  own("a.", 1);
  EXPECT_EQ(lines_, (Lines{"+a.", "-", "+a."}));
}

TEST_F(OwnershipReporterTest, ADoubtThatIsOverSoonIsNotReported) {
  own("a.", 1);
  name_.being_confirmed = true;
  reporter_.report();
  scheduler_.advance(900ms);
  name_.being_confirmed = false;
  own("a.", 1);
  scheduler_.advance(5s);
  EXPECT_EQ(lines_, Lines{"+a."});
  name_.being_confirmed = true;
  reporter_.report();
  scheduler_.advance(2s);
  EXPECT_EQ(lines_, (Lines{"+a.", "-"})) << "one that lasts is";
}

TEST_F(OwnershipReporterTest, ADoubtDoesNotOutlastTheDeadline) {
  own("a.", 1, 500ms);
  name_.being_confirmed = true;
  reporter_.report();
  scheduler_.advance(500ms);
  EXPECT_EQ(lines_, (Lines{"+a.", "-"}));
}

TEST_F(OwnershipReporterTest, AtTheEndNothingIsOwned) {
  own("a.", 1);
  lifetime_.stop();
  reporter_.report();
  EXPECT_EQ(lines_, (Lines{"+a.", "-"}));
  own("a.", 1);
  scheduler_.run();
  EXPECT_EQ(lines_.size(), 2u);
  EXPECT_TRUE(scheduler_.isIdle());
}

}  // namespace
}  // namespace idetcd::naming
