#include "naming/own_key_observer.h"

#include <gtest/gtest.h>

#include "naming/record_codec.h"

namespace idetcd::naming {
namespace {

constexpr const char* kKey = "worker1.tf.local.";
const OwnKeyObserver::Held kHeld{.create_revision = 10, .revision = 10, .lease = 7, .uuid = "me"};

store::KeyValue kv(int64_t create_revision, int64_t mod_revision, int64_t lease = 7, const std::string& uuid = "me") {
  return {kKey, encodeRecord({{}, {}, "53", uuid}), create_revision, mod_revision, 1, lease};
}

class OwnKeyTest : public testing::Test {
 protected:
  OwnKeyTest() {
    own_.follow(kKey);
    own_.onChange([this] { ++changes_; });
  }
  OwnKeyObserver own_;
  int changes_ = 0;
};

TEST_F(OwnKeyTest, OursOnceSeenAsClaimed) {
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kUnseen);
  own_.put(kv(10, 10));
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kOurs);
  EXPECT_EQ(changes_, 1);
  own_.put(kv(10, 15));  // an operator changed the address
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kOurs);
}

TEST_F(OwnKeyTest, OtherKeysDoNotMatter) {
  store::KeyValue other = kv(10, 10);
  other.key = "worker2.tf.local.";
  own_.put(other);
  own_.remove("worker2.tf.local.", 11);
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kUnseen);
  EXPECT_EQ(changes_, 0);
}

TEST_F(OwnKeyTest, WhatIsOlderThanTheClaimSaysNothing) {
  own_.put(kv(3, 3, 5, "other"));
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kUnseen);
  own_.remove(kKey, 9);
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kUnseen);
  own_.beginSnapshot(false);
  own_.endSnapshot(9);
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kUnseen);
}

TEST_F(OwnKeyTest, GoneWhenDeletedOrMissing) {
  own_.put(kv(10, 10));
  own_.remove(kKey, 11);
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kGone);

  own_.follow(kKey);
  own_.put(kv(10, 10));
  own_.beginSnapshot(false);
  own_.endSnapshot(12);
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kGone);
}

TEST_F(OwnKeyTest, ASnapshotOlderThanTheWatchDoesNotCount) {
  own_.beginSnapshot(false);
  own_.put(kv(10, 10));
  own_.endSnapshot(9);
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kOurs);
  own_.beginSnapshot(false);
  own_.endSnapshot(9);
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kOurs);
}

TEST_F(OwnKeyTest, ForeignByUuidLeaseOrRevision) {
  own_.put(kv(10, 11, 7, "other"));
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kForeign);
  own_.put(kv(10, 12, 0));  // ours no more: it would not vanish with our lease
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kForeign);
  own_.put(kv(13, 13));  // deleted and created again between two events
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kForeign);
  store::KeyValue garbage = kv(10, 14);
  garbage.value = "garbage";
  own_.put(garbage);
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kForeign);
}

TEST_F(OwnKeyTest, InAStoreThatWentBackRevisionsDoNotCompare) {
  own_.put(kv(10, 10));
  own_.beginSnapshot(true);
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kUnseen);
  own_.endSnapshot(2);
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kGone);
  own_.put(kv(3, 3, 5, "other"));
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kForeign);
  own_.follow(kKey);  // the next claim is made in the new history
  own_.put(kv(4, 4, 9));
  EXPECT_EQ(own_.state({.create_revision = 4, .lease = 9, .uuid = "me"}), OwnKeyObserver::State::kOurs);
}

TEST_F(OwnKeyTest, AnotherLeaseMeansACopyOnlyIfItCameAfterTheClaim) {
  own_.put(kv(10, 11, 5));
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kDuplicateNodeId);
  own_.beginSnapshot(true);
  own_.put(kv(2, 3, 5));  // of an earlier process, in a store that was set back
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kReverted);
  own_.endSnapshot(4);
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kReverted);
  own_.put(kv(2, 5, 6));  // and now a copy
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kDuplicateNodeId);
}

TEST_F(OwnKeyTest, AClaimInAStoreThatWasSetBackBeforeTheMirrorNoticed) {
  own_.put(kv(10, 10));
  own_.follow(kKey);
  own_.claimed(6);
  own_.beginSnapshot(true);
  own_.put(kv(2, 3, 5));  // the snapshot was begun before the claim
  own_.endSnapshot(5);
  const OwnKeyObserver::Held held{.create_revision = 2, .revision = 6, .lease = 9, .uuid = "me"};
  EXPECT_EQ(own_.state(held), OwnKeyObserver::State::kUnseen);
  own_.put(kv(2, 6, 9));
  EXPECT_EQ(own_.state(held), OwnKeyObserver::State::kOurs);
}

// The answer to the claim was lost, and it was read back when the mirror had shown more.
TEST_F(OwnKeyTest, AClaimThatIsLearntOfLateIsOfTheStoreThatTheMirrorShows) {
  own_.put(kv(10, 10));
  own_.put({"0/idetcd/beat", "{}", 1, 12, 2, 0});
  own_.claimed(10);
  own_.beginSnapshot(true);
  own_.put(kv(4, 5, 8, "another"));
  own_.endSnapshot(6);
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kForeign);
}

// Its snapshot is of before the claim, and comes before the answer to the claim.
TEST_F(OwnKeyTest, AClaimThatIsMadeWhileTheMirrorReadsAStoreThatWasSetBackIsNotLost) {
  own_.beginSnapshot(true);
  own_.endSnapshot(8);
  own_.claimed(10);
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kDoubted);
  own_.put(kv(10, 10));
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kOurs);
}

TEST_F(OwnKeyTest, AClaimThatWasSeenIsLostInAStoreThatWasSetBackTwice) {
  own_.put(kv(10, 10));
  own_.beginSnapshot(true);
  own_.endSnapshot(8);
  own_.beginSnapshot(true);
  own_.endSnapshot(7);
  EXPECT_EQ(own_.state(kHeld), OwnKeyObserver::State::kGone);
}

TEST_F(OwnKeyTest, TheHighestTokenOutlivesAStoreThatWentBack) {
  own_.put(kv(10, 15));
  own_.sawToken(12);
  EXPECT_EQ(own_.highestToken(), 15);
  own_.beginSnapshot(true);
  own_.endSnapshot(4);
  EXPECT_EQ(own_.highestToken(), 15);
  own_.remove("other.", 20);
  EXPECT_EQ(own_.highestToken(), 20);
}

}  // namespace
}  // namespace idetcd::naming
