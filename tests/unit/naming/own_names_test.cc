#include "naming/own_names.h"

#include <gtest/gtest.h>

namespace idetcd::naming {
namespace {

using namespace std::chrono_literals;

// A name as the test wants it to be in one store.
class HeldName final : public OwnName {
 public:
  std::optional<Ownership> ownership() const override { return owned; }
  void noteGeneration() override {}
  bool isBeingConfirmed() const override { return false; }
  void suspect() override {}
  const NodeRecord& record() const override { return record_; }
  std::string uuid() const override { return {}; }
  void setAddresses(const records::HostAddresses&) override {}
  void setDrained(bool) override {}
  runtime::Task<bool> whenPublished(std::chrono::nanoseconds) override { co_return true; }

  void own(const std::string& name, int64_t token, std::chrono::seconds until = 10s) {
    owned = Ownership{.name = name, .token = token, .deadline = BootClock::time_point(until)};
  }
  std::optional<Ownership> owned;

 private:
  const NodeRecord record_{};
};

class OwnNamesTest : public testing::Test {
 protected:
  std::string name() const {
    const auto owned = names_.ownership();
    return owned ? owned->name : "";
  }

  const std::shared_ptr<HeldName> first_ = std::make_shared<HeldName>();
  const std::shared_ptr<HeldName> second_ = std::make_shared<HeldName>();
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
  EXPECT_EQ(names_.ownership()->deadline, BootClock::time_point(5s)) << "the earlier one";
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
