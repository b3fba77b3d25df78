#include "resolver/cache_saver.h"

#include <filesystem>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "support/query_fixture.h"
#include "support/temporary_directory.h"
#include "support/upstream_message.h"

namespace idetcd::resolver {
namespace {

using std::chrono::seconds;

class SavedAnswersTest : public testing::Test {
 protected:
  static constexpr size_t kMaxBytes = 1 << 20;
  static constexpr std::string_view kRules = "private";

  dns::Query ask(const std::string& qname, uint16_t qtype = 1) {
    message_ = std::make_unique<Message>(qname, qtype, 1232);
    dns::Query query;
    dns::parseQuery(message_->data(), message_->size(), Message::kSeed, query);
    return query;
  }
  void insert(Cache& cache, const std::string& qname, const UpstreamMessage& upstream, BootClock::time_point at) {
    StoredResponse response;
    const dns::Query query = ask(qname);
    ASSERT_EQ(readUpstreamResponse(upstream.bytes, 0xbeef, query, response), UpstreamVerdict::kAccepted);
    cache.insert(query, response, at);
  }
  void insertA(Cache& cache, const std::string& qname, BootClock::time_point at) {
    insert(cache, qname, UpstreamMessage(qname, 1).a(qname, 300, {192, 0, 2, 1}), at);
  }
  void save(Cache& cache) {
    auto writer = AnswersWriter::begin(path_, kRules).value();
    std::string bytes;
    uint64_t count = 0;
    cache.beginWalk();
    while (cache.walk(3, [&](const Cache::Kept& kept) { count += appendAnswer(kept, clocks_, bytes); })) {
    }
    ASSERT_TRUE(writer.append(bytes, count));
    ASSERT_TRUE(writer.commit());
  }
  void restore(Cache& cache, const Clocks& clocks) {
    auto reader = AnswersReader::open(path_, kRules, kMaxBytes).value();
    while (reader.restore(cache, Message::kSeed, clocks, 2)) {
    }
  }
  Cache::State find(Cache& cache, const std::string& qname, BootClock::time_point now) {
    return cache.find(ask(qname), now).state;
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/answers";
  const Clocks clocks_{BootClock::time_point{std::chrono::hours(5)}, std::chrono::hours(480'000)};
  std::unique_ptr<Message> message_;
};

TEST_F(SavedAnswersTest, TheNextProcessHasThemAndTheirTimesGoOn) {
  Cache before({});
  for (int i = 0; i < 20; ++i) insertA(before, "a" + std::to_string(i) + ".example.", clocks_.boot - seconds(i));
  insert(before, "not.example.", UpstreamMessage("not.example.", 1, 0x8183).soa("example.", 300, 300), clocks_.boot);
  save(before);
  // Another boot of the machine, a minute later.
  Cache after({});
  const BootClock::time_point now{seconds(30)};
  restore(after, {now, clocks_.wall + seconds(60)});
  EXPECT_EQ(after.size(), 21u);
  EXPECT_EQ(find(after, "not.example.", now), Cache::State::kFresh);
  EXPECT_EQ(after.find(ask("a7.example."), now).age_seconds, 67u);
  EXPECT_EQ(find(after, "a7.example.", now + seconds(232)), Cache::State::kFresh);
  EXPECT_EQ(find(after, "a7.example.", now + seconds(233)), Cache::State::kMiss);
}

TEST_F(SavedAnswersTest, WhatHasEndedOrIsThereOrComesFromTheFutureIsLeftOut) {
  Cache before({});
  insertA(before, "ended.example.", clocks_.boot - seconds(290));
  insertA(before, "there.example.", clocks_.boot - seconds(5));
  insertA(before, "other.example.", clocks_.boot - seconds(5));
  save(before);
  Cache after({});
  insertA(after, "there.example.", clocks_.boot);
  restore(after, {clocks_.boot, clocks_.wall + seconds(20)});
  EXPECT_EQ(after.size(), 2u);
  EXPECT_EQ(after.find(ask("there.example."), clocks_.boot).age_seconds, 0u) << "the newer one";
  Cache past({});
  restore(past, {clocks_.boot, clocks_.wall - seconds(10)});
  EXPECT_EQ(past.size(), 1u) << "ended.example. alone came before now";
}

// Between its steps the cache changes: what is there all the time is visited.
TEST_F(SavedAnswersTest, AWalkMissesNothingThatStays) {
  Cache cache({.success = {.capacity = 40}});
  for (int i = 0; i < 30; ++i) insertA(cache, "s" + std::to_string(i) + ".example.", clocks_.boot);
  for (int times = 0; times < 3; ++times) {
    for (int i = 0; i < 30; ++i) find(cache, "s" + std::to_string(i) + ".example.", clocks_.boot);
  }
  std::map<std::string, int> seen;
  const auto visit = [&](const Cache::Kept& kept) { ++seen[std::string(kept.name.begin(), kept.name.end())]; };
  cache.beginWalk();
  int next = 0;
  while (cache.walk(2, visit)) {
    insertA(cache, "n" + std::to_string(next++) + ".example.", clocks_.boot);
  }
  int missed = 0;
  for (int i = 0; i < 30; ++i) {
    const std::string name = "s" + std::to_string(i) + ".example.";
    const dns::Query query = ask(name);
    const bool stayed = cache.find(query, clocks_.boot).state == Cache::State::kFresh;
    missed += stayed && !seen.contains(std::string(query.name().begin(), query.name().end()));
  }
  EXPECT_EQ(missed, 0);
  EXPECT_GT(next, 0);
}

TEST_F(SavedAnswersTest, ADamagedFileIsRefused) {
  Cache cache({});
  insertA(cache, "a.example.", clocks_.boot);
  save(cache);
  const std::string whole = readFile(path_, kMaxBytes).value();
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    ASSERT_TRUE(replaceFile(path_, damaged));
    EXPECT_FALSE(AnswersReader::open(path_, kRules, kMaxBytes)) << i;
    ASSERT_TRUE(replaceFile(path_, whole.substr(0, i)));
    EXPECT_FALSE(AnswersReader::open(path_, kRules, kMaxBytes)) << i;
  }
  EXPECT_EQ(AnswersReader::open(directory_.path() + "/none", kRules, kMaxBytes).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(replaceFile(path_, whole));
  EXPECT_FALSE(AnswersReader::open(path_, kRules, whole.size() - 1)) << "too large";
}

}  // namespace
}  // namespace idetcd::resolver
