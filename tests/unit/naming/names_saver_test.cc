#include "naming/names_saver.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "support/manual_scheduler.h"
#include "support/temporary_directory.h"
#include "unit/naming/records_view.h"

namespace idetcd::naming {
namespace {

using namespace std::chrono_literals;
using records::Freshness;
using test_support::ManualScheduler;

// Brings what the test puts.
class GivenSource final : public RecordSource {
 public:
  void restored() override { was_restored = true; }
  uint64_t changes() const override { return changed; }

  uint64_t changed = 0;
  bool was_restored = false;
};

// A node's store, whose names are in a file that outlives it.
struct Node {
  explicit Node(const std::string& file) {
    saver = std::make_shared<NamesSaver>(scheduler, store, source, counters, executor.makeStrand(),
                                         NamesSaver::Options{.file = file, .pattern = "w{{.ID}}.x.", .max_names = 2},
                                         Logger());
    scheduler.spawn(saver->saveRegularly(lifetime));
  }
  ~Node() {
    scheduler.stop();
    saver->drain();
  }
  void put(const char* name, int64_t revision) {
    store.put(dns::Name::parse(name).value(), records::HostAddresses{.ipv4 = IpAddress::parse("192.0.2.1"), .ipv6 = {}},
              revision);
    ++source.changed;
  }
  // What is being written is written then.
  void advance(std::chrono::nanoseconds duration) {
    scheduler.advance(duration);
    saver->drain();
    scheduler.run();
  }

  ManualScheduler scheduler;
  Lifetime lifetime{scheduler};
  records::EpochDomain epochs;
  records::RecordStore store{epochs, {}};
  RecordsView view{epochs, store};
  GivenSource source;
  FileCounters counters;
  Executor executor;
  std::shared_ptr<NamesSaver> saver;
};

class NamesSaverTest : public testing::Test {
 protected:
  const TemporaryDirectory directory_;
  const std::string file_ = directory_ / "names";
};

TEST_F(NamesSaverTest, ChangesAreSavedSoonAndThenAtIntervals) {
  Node node(file_);
  node.put("w1.x.", 5);
  node.advance(10s);
  EXPECT_EQ(node.counters.saves.value(), 0u) << "nothing from etcd is known to be current";
  node.store.setFreshness(Freshness::kFresh);
  node.advance(1s);
  EXPECT_EQ(node.counters.saves.value(), 1u);
  node.put("w2.x.", 6);
  EXPECT_TRUE(node.saver->hasUnsaved());
  node.advance(28s);
  EXPECT_EQ(node.counters.saves.value(), 1u);
  node.advance(2s);
  EXPECT_EQ(node.counters.saves.value(), 2u);
  EXPECT_FALSE(node.saver->hasUnsaved());
  node.advance(120s);
  EXPECT_EQ(node.counters.saves.value(), 2u) << "nothing has changed";
}

TEST_F(NamesSaverTest, WhatCouldNotBeSavedIsTriedAgain) {
  Node node(directory_ / "no/names");
  node.put("w1.x.", 5);
  node.store.setFreshness(Freshness::kFresh);
  node.advance(1s);
  EXPECT_EQ(node.counters.save_failures.value(), 1u);
  EXPECT_TRUE(node.saver->hasUnsaved());
  std::filesystem::create_directory(directory_ / "no");
  node.advance(30s);
  EXPECT_EQ(node.counters.saves.value(), 1u);
}

TEST_F(NamesSaverTest, TheNamesComeBackAsOfAFile) {
  {
    Node node(file_);
    node.put("w1.x.", 5);
    node.put("w2.x.", 6);
    node.put("w3.x.", 7);
    node.store.setFreshness(Freshness::kFresh);
    node.advance(1s);
  }
  Node node(file_);
  std::vector<int64_t> seen;
  node.saver->restore([&seen](int64_t revision) { seen.push_back(revision); });
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_EQ(node.store.size(), 2u) << "as many as may be";
  EXPECT_TRUE(node.source.was_restored);
  EXPECT_EQ(node.store.freshness(), Freshness::kFromFile);
}

TEST_F(NamesSaverTest, WithoutAFileNothingIsRestored) {
  Node node(file_);
  node.saver->restore([](int64_t) { FAIL(); });
  EXPECT_FALSE(node.source.was_restored);
  EXPECT_EQ(node.store.freshness(), Freshness::kLoading);
}

TEST_F(NamesSaverTest, ADamagedFileIsRefused) {
  overwrite(file_, "idetcdN1 and nonsense");
  Node node(file_);
  node.saver->restore([](int64_t) { FAIL(); });
  EXPECT_EQ(node.counters.saved_refused.value(), 1u);
  EXPECT_EQ(node.store.freshness(), Freshness::kLoading);
}

TEST_F(NamesSaverTest, WhatIsAbandonedLeavesTheFileAsItWas) {
  overwrite(file_, "before");
  Node node(file_);
  node.put("w1.x.", 5);
  node.saver->abandon();
  node.saver->save();
  node.saver->drain();
  EXPECT_EQ(contentsOf(file_), "before");
}

}  // namespace
}  // namespace idetcd::naming
