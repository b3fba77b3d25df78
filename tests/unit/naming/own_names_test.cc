#include "naming/own_names.h"

#include <gtest/gtest.h>

#include "support/manual_scheduler.h"
#include "unit/naming/given_name.h"

namespace idetcd::naming {
namespace {

using namespace std::chrono_literals;

class OwnNamesTest : public testing::Test {
 protected:
  std::string name() const {
    const auto owned = names_.ownership();
    return owned ? owned->name : "";
  }

  test_support::ManualScheduler scheduler_;
  const std::shared_ptr<GivenName> first_ = std::make_shared<GivenName>(scheduler_);
  const std::shared_ptr<GivenName> second_ = std::make_shared<GivenName>(scheduler_);
  OwnNames names_{first_};
};

TEST_F(OwnNamesTest, OfOneStoreTheNameIsThatStores) {
  EXPECT_EQ(name(), "");
  first_->own("a.", 1);
  EXPECT_EQ(name(), "a.");
  EXPECT_FALSE(names_.join());
}

TEST_F(OwnNamesTest, UntilBothHaveItTheFirstDecides) {
  first_->own("a.", 1);
  names_.add(second_, false);
  EXPECT_EQ(name(), "a.");
  EXPECT_FALSE(names_.join());
  second_->own("a.", 2);
  EXPECT_FALSE(names_.join()) << "the first does not know the token yet";
  first_->own("a.", 2);
  EXPECT_TRUE(names_.join());
  second_->owned.reset();
  EXPECT_EQ(name(), "");
  EXPECT_TRUE(names_.join()) << "it stays so";
}

TEST_F(OwnNamesTest, WhatIsNeededIsNeededAtOnce) {
  first_->own("a.", 1);
  names_.add(second_, true);
  EXPECT_EQ(name(), "");
  second_->own("b.", 1);
  EXPECT_EQ(name(), "");
  second_->own("a.", 1, 5s);
  EXPECT_EQ(name(), "a.");
  EXPECT_EQ(names_.ownership()->deadline, scheduler_.now() + 5s) << "the earlier one";
}

TEST_F(OwnNamesTest, WithoutANameInTheFirstBothAreNeeded) {
  names_.add(second_, false);
  names_.need();
  first_->own("a.", 1);
  EXPECT_EQ(name(), "");
  second_->own("a.", 1);
  EXPECT_EQ(name(), "a.");
}

TEST_F(OwnNamesTest, GoesOnWithOneOfThem) {
  first_->own("a.", 1);
  names_.add(second_, true);
  names_.keepFirst();
  EXPECT_EQ(name(), "a.");
  names_.add(second_, true);
  names_.keepSecond();
  EXPECT_EQ(name(), "");
  second_->own("b.", 3);
  EXPECT_EQ(name(), "b.");
}

}  // namespace
}  // namespace idetcd::naming
