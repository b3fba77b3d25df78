// Which place names are taken from: stores and relays of a few lines, in virtual time.
#include "naming/relayed_names.h"

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "naming/keyspace.h"
#include "support/manual_scheduler.h"

namespace idetcd::naming {
namespace {

using namespace std::chrono_literals;
using runtime::Task;
using store::RangeResult;
using store::StoreError;
using store::StoreResult;
using store::WatchStream;
using test_support::ManualScheduler;

class QuietStream final : public WatchStream {
 public:
  explicit QuietStream(std::optional<StoreError>& end) : end_(end) {}
  Task<StoreResult<store::WatchBatch>> next(std::chrono::nanoseconds) override {
    co_return tl::unexpected(end_.value_or(StoreError{ErrorCode::kDeadlineExceeded, "silent"}));
  }
  int64_t createdRevision() const override { return 1; }
  uint64_t clusterId() const override { return 1; }
  bool isAtCurrentEndpoint() const override { return true; }
  void doubt(std::chrono::nanoseconds) override {}
  void leave(const std::string& why) override { left = why; }
  std::string left;

 private:
  std::optional<StoreError>& end_;
};

// Answers what a test says; counts what it is asked.
struct Place {
  std::optional<StoreError> refuses;
  std::optional<StoreError> ends;
  int64_t revision = 10;
  int ranges = 0;
  int watches = 0;

  StoreResult<RangeResult> range() {
    ++ranges;
    if (refuses) return tl::unexpected(*refuses);
    RangeResult made;
    made.revision = revision;
    made.cluster_id = 1;
    return made;
  }
  StoreResult<std::unique_ptr<WatchStream>> watch() {
    ++watches;
    if (refuses) return tl::unexpected(*refuses);
    return std::make_unique<QuietStream>(ends);
  }
};

class RelayPlace final : public store::Source {
 public:
  explicit RelayPlace(Place& place) : place_(place) {}
  Task<StoreResult<RangeResult>> range(store::KeyRange, store::RangeOptions) override { co_return place_.range(); }
  Task<StoreResult<std::unique_ptr<WatchStream>>> watch(std::vector<store::WatchRange>) override {
    co_return place_.watch();
  }

 private:
  Place& place_;
};

class ListingStore final : public store::Store {
 public:
  std::string kind() const override { return "test"; }
  std::vector<std::string> endpoints() const override { return {}; }
  Task<StoreResult<RangeResult>> range(store::KeyRange, store::RangeOptions) override { co_return place.range(); }
  Task<StoreResult<std::unique_ptr<WatchStream>>> watch(std::vector<store::WatchRange>) override {
    co_return place.watch();
  }
  Task<StoreResult<store::TxnResult>> txn(store::TxnRequest request) override {
    ++listings;
    store::TxnResult made;
    for (const store::Op& op : request.success) {
      const auto& range = std::get<store::RangeOp>(op).range;
      RangeResult found;
      for (const auto& [key, card] : listed) {
        if (key >= range.begin && key < range.end) found.kvs.push_back({.key = key, .value = card});
      }
      made.results.emplace_back(std::move(found));
    }
    made.succeeded = true;
    co_return made;
  }
  Task<StoreResult<store::Lease>> leaseGrant(std::chrono::seconds) override { co_return refused<store::Lease>(); }
  Task<StoreResult<store::Lease>> leaseKeepAlive(int64_t, std::chrono::nanoseconds) override {
    co_return refused<store::Lease>();
  }
  Task<StoreResult<std::chrono::seconds>> leaseTimeToLive(int64_t) override {
    co_return refused<std::chrono::seconds>();
  }
  Task<StoreResult<void>> leaseRevoke(int64_t) override { co_return refused<void>(); }
  Task<bool> returnHome() override { co_return false; }

  Place place;
  std::map<std::string, std::string> listed;
  int listings = 0;

 private:
  template <typename T>
  static StoreResult<T> refused() {
    return tl::unexpected(StoreError{ErrorCode::kUnavailable, "not asked here"});
  }
};

class RelayedNamesTest : public testing::Test {
 protected:
  ~RelayedNamesTest() override { scheduler_.stop(); }

  void list(const std::string& name) {
    store_.listed["/relays/" + name] = encodeCard({.endpoints = {name}, .certificate = "c", .token = "t"});
  }
  std::unique_ptr<WatchStream> watch() {
    std::optional<StoreResult<std::unique_ptr<WatchStream>>> opened;
    auto open = [this, &opened]() -> Task<void> {
      std::vector<store::WatchRange> ranges{{watchedRange(), 5}};
      opened = co_await names_.watch(std::move(ranges));
    };
    scheduler_.spawn(open());
    scheduler_.run();
    if (!opened || !*opened) return nullptr;
    return std::move(**opened);
  }
  StoreResult<RangeResult> range(int64_t revision) {
    std::optional<StoreResult<RangeResult>> found;
    auto read = [this, &found, revision]() -> Task<void> {
      found = co_await names_.range(watchedRange(), {.revision = revision, .cluster_id = 1});
    };
    scheduler_.spawn(read());
    scheduler_.run();
    return *found;
  }
  void read(WatchStream& stream) {
    auto next = [&stream]() -> Task<void> { co_await stream.next(1s); };
    scheduler_.spawn(next());
    scheduler_.run();
  }

  ManualScheduler scheduler_;
  ListingStore store_;
  std::map<std::string, Place> relays_;
  size_t count_ = 200;
  Lifetime lifetime_{scheduler_};
  ErrorLogThrottle trouble_{Logger()};
  Counters counters_;
  KernelRandom random_;
  Jitter jitter_{random_};
  RoundTrip round_trip_{20s, {}};
  Context context_{scheduler_, store_, lifetime_, trouble_, counters_, random_, jitter_, round_trip_, {}};
  RelayedNames names_{context_,
                      {.fan_out = 100,
                       .limit = 1000,
                       .ranges = {watchedRange()},
                       .prefix = "/relays/",
                       .connect = [this](const RelayCard& card) -> std::shared_ptr<store::Source> {
                         if (card.endpoints.front() == "nonsense") return nullptr;
                         return std::make_shared<RelayPlace>(relays_[card.endpoints.front()]);
                       }},
                      [this] { return count_; }};
};

TEST_F(RelayedNamesTest, WithoutARelayTheStoreIsAsked) {
  const auto stream = watch();
  ASSERT_TRUE(stream);
  EXPECT_EQ(store_.place.watches, 1);
  EXPECT_TRUE(range(7));
  EXPECT_EQ(store_.place.ranges, 1);
}

TEST_F(RelayedNamesTest, ARelayThatIsListedIsAsked) {
  list("a");
  const auto stream = watch();
  ASSERT_TRUE(stream);
  EXPECT_TRUE(stream->isAtCurrentEndpoint());
  EXPECT_TRUE(range(7));
  EXPECT_EQ(relays_["a"].watches, 1);
  EXPECT_EQ(relays_["a"].ranges, 1);
  EXPECT_EQ(store_.place.watches + store_.place.ranges, 0);
}

TEST_F(RelayedNamesTest, WhatTheRelayDoesNotHaveTheStoreHas) {
  list("a");
  const auto stream = watch();
  EXPECT_TRUE(range(11)) << "its answer is older than what was asked for";
  EXPECT_EQ(store_.place.ranges, 1);
  relays_["a"].refuses = StoreError{ErrorCode::kUnavailable, "not that far"};
  EXPECT_TRUE(range(7));
  EXPECT_EQ(store_.place.ranges, 2);
}

TEST_F(RelayedNamesTest, TheNewestRevisionIsTheStores) {
  list("a");
  const auto stream = watch();
  EXPECT_TRUE(range(0)) << "where the history is compacted meanwhile: a relay that is late has an older one";
  EXPECT_EQ(relays_["a"].ranges, 0);
  EXPECT_EQ(store_.place.ranges, 1);
}

TEST_F(RelayedNamesTest, ARelayThatRefusesIsAvoidedForAWhile) {
  list("a");
  relays_["a"].refuses = StoreError{ErrorCode::kUnavailable, "full"};
  EXPECT_TRUE(watch());
  EXPECT_TRUE(watch());
  EXPECT_EQ(relays_["a"].watches, 1);
  EXPECT_EQ(store_.place.watches, 2);
}

TEST_F(RelayedNamesTest, OutOfReachIsLookedForBesideTheWatch) {
  scheduler_.spawn(names_.lookRegularly());
  list("a");
  list("b");
  relays_["a"].refuses = relays_["b"].refuses = StoreError{ErrorCode::kDeadlineExceeded, "a firewall"};
  const auto stream = watch();
  ASSERT_TRUE(stream);
  scheduler_.advance(1h);
  EXPECT_TRUE(stream->isAtCurrentEndpoint());
  EXPECT_TRUE(watch());
  EXPECT_EQ(relays_["a"].watches + relays_["b"].watches, 2) << "a new watch waits for none of them again";
  EXPECT_EQ(store_.place.watches, 2);
  EXPECT_GT(relays_["a"].ranges, 1);

  relays_["a"].refuses.reset();
  scheduler_.advance(1h);
  EXPECT_FALSE(stream->isAtCurrentEndpoint());
  EXPECT_TRUE(watch());
  EXPECT_TRUE(names_.isRelayed());
  EXPECT_EQ(names_.place(), "a");
  const int ranges = relays_["a"].ranges;
  scheduler_.advance(1h);
  EXPECT_EQ(relays_["a"].ranges, ranges) << "who has a relay looks for none";
}

TEST_F(RelayedNamesTest, ARelayWhoseWatchEndsIsLeftForAnother) {
  list("a");
  list("b");
  relays_["a"].ends = relays_["b"].ends = StoreError{ErrorCode::kUnavailable, "it has died"};
  const auto first = watch();
  read(*first);
  EXPECT_TRUE(watch());
  EXPECT_EQ(relays_["a"].watches, 1);
  EXPECT_EQ(relays_["b"].watches, 1);
  EXPECT_EQ(store_.place.watches, 0);
}

TEST_F(RelayedNamesTest, ARelayThatIsBehindIsLeft) {
  list("a");
  const auto stream = watch();
  stream->leave("it does not show the present");
  EXPECT_TRUE(watch());
  EXPECT_EQ(relays_["a"].watches, 1);
  EXPECT_EQ(store_.place.watches, 1);
}

TEST_F(RelayedNamesTest, ARelayThatHasBegunLatelyIsNotAvoided) {
  list("a");
  relays_["a"].refuses = StoreError{ErrorCode::kCompacted, "not kept"};
  EXPECT_TRUE(watch());
  EXPECT_EQ(store_.place.watches, 1);
  relays_["a"].refuses.reset();
  EXPECT_TRUE(watch());
  EXPECT_EQ(relays_["a"].watches, 2);
}

TEST_F(RelayedNamesTest, OfNoUseIsPassedOver) {
  list("nonsense");
  store_.listed["/relays/x"] = "no card";
  EXPECT_TRUE(watch());
  EXPECT_EQ(store_.place.watches, 1);
}

TEST_F(RelayedNamesTest, ARelayTakesItsNamesFromTheStore) {
  list("a");
  names_.setRelay(true);
  EXPECT_TRUE(watch());
  EXPECT_EQ(store_.listings, 0);
  EXPECT_EQ(store_.place.watches, 1);
}

TEST_F(RelayedNamesTest, WhereThereIsNoneItLooksAgain) {
  scheduler_.spawn(names_.lookRegularly());
  const auto stream = watch();
  EXPECT_TRUE(stream->isAtCurrentEndpoint());
  scheduler_.advance(10min);
  EXPECT_TRUE(stream->isAtCurrentEndpoint());
  list("a");
  scheduler_.advance(20min);  // a pause is of ten minutes, and half as many more at most
  EXPECT_FALSE(stream->isAtCurrentEndpoint());
  const auto moved = watch();
  EXPECT_EQ(relays_["a"].watches, 1);
  scheduler_.advance(1h);
  EXPECT_TRUE(moved->isAtCurrentEndpoint());
  names_.setRelay(true);
  EXPECT_FALSE(moved->isAtCurrentEndpoint());
}

TEST_F(RelayedNamesTest, ASmallClusterDoesNotLook) {
  count_ = 199;
  scheduler_.spawn(names_.lookRegularly());
  const auto stream = watch();
  list("a");
  scheduler_.advance(1h);
  EXPECT_TRUE(stream->isAtCurrentEndpoint());
}

TEST(RelayCard, IsReadAsItWasWritten) {
  const RelayCard card{.endpoints = {"https://192.0.2.1:4", "https://[::1]:4"}, .certificate = "pem\n", .token = "t"};
  EXPECT_EQ(decodeCard(encodeCard(card)).value(), card);
  for (const char* bad : {"", "{}", "[]", "{\"endpoints\":[1],\"certificate\":\"\",\"secret\":\"\"}"})
    EXPECT_FALSE(decodeCard(bad)) << bad;
}

}  // namespace
}  // namespace idetcd::naming
