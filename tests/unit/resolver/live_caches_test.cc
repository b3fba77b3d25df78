// An operator's flush over several loops, and what the files of the caches say afterwards. Real loops, threads and files.
#include "resolver/kept_caches.h"

#include <atomic>
#include <filesystem>
#include <future>
#include <thread>

#include <gtest/gtest.h>

#include "records/epoch.h"
#include "resolver/cache_saver.h"
#include "support/query_fixture.h"
#include "support/temporary_directory.h"
#include "support/upstream_message.h"

namespace idetcd::resolver {
namespace {

using std::chrono::seconds;

const BootClock::time_point kNow = BootClock::now();

dns::Query queryOf(Message& message) {
  dns::Query query;
  dns::parseQuery(message.data(), message.size(), Message::kSeed, query);
  return query;
}

void insertA(Cache& cache, const std::string& qname) {
  Message message(qname, 1, 1232);
  const dns::Query query = queryOf(message);
  const UpstreamMessage upstream = UpstreamMessage(qname, 1).a(qname, 300, {192, 0, 2, 1});
  StoredResponse response;
  ASSERT_EQ(readUpstreamResponse(upstream.bytes, 0xbeef, query, response), UpstreamVerdict::kAccepted);
  cache.insert(query, response, kNow);
}

bool has(Cache& cache, const std::string& qname) {
  Message message(qname, 1, 1232);
  return cache.find(queryOf(message), BootClock::now()).state == Cache::State::kFresh;
}

const dns::Name kRoot;
const dns::Name kZone = dns::Name::parse("Zone.example").value();

class LiveCachesTest : public ::testing::Test {
 protected:
  // One loop with a cache, perhaps one with a file. It does not run yet.
  struct Worker {
    Worker(LiveCachesTest& test, const std::string& file, bool loads)
        : cache(std::make_shared<Cache>(Cache::Options{}, metrics::Scope(), test.process_.executor)) {
      if (!file.empty()) {
        saver = CacheSaver::make({.file = file, .seed = Message::kSeed, .loads = loads, .max_bytes = 1 << 20}, cache,
                                 loop, test.process_);
      }
      user.emplace(test.live_, cache, saver, loop);
    }

    net::EventLoop loop;
    std::shared_ptr<Cache> cache;
    std::shared_ptr<CacheSaver> saver;
    std::optional<LiveCaches::User> user;
  };

  std::future<LiveCaches::FlushResult> flush(const dns::Name& zone) {
    auto promise = std::make_shared<std::promise<LiveCaches::FlushResult>>();
    live_->flush(zone, [promise](const LiveCaches::FlushResult& outcome) { promise->set_value(outcome); });
    return promise->get_future();
  }
  // On this thread, until it is answered.
  LiveCaches::FlushResult flushOn(Worker& worker, const dns::Name& zone) {
    std::optional<LiveCaches::FlushResult> result;
    live_->flush(zone, [&result, &worker](const LiveCaches::FlushResult& outcome) {
      worker.loop.post([&result, &worker, outcome] {
        result = outcome;
        worker.loop.stop();
      });
    });
    worker.loop.run();
    return result.value();
  }
  // The answers that a new process begins with.
  static size_t saved(const std::string& file, Cache& cache) {
    auto reader = AnswersReader::open(file, "", 1 << 20);
    if (!reader) return 0;
    while (reader->restore(cache, Message::kSeed, Clocks::now(), 100)) {
    }
    return cache.size();
  }

  TemporaryDirectory directory_;
  const std::string file_ = directory_ / "answers";
  records::EpochDomain epochs_;
  net::EventLoop main_loop_;
  resolve::Process process_{Logger(), main_loop_, epochs_};
  std::shared_ptr<LiveCaches> live_ = std::make_shared<LiveCaches>();
};

TEST_F(LiveCachesTest, WithoutACacheThereIsNothing) {
  const auto outcome = flush(kRoot).get();
  EXPECT_EQ(outcome.flushed, 0u);
  EXPECT_EQ(outcome.error, "");
}

TEST_F(LiveCachesTest, EachLoopDropsWhatItsCacheHas) {
  Worker one(*this, "", false);
  Worker two(*this, "", false);
  for (int i = 0; i < 1000; ++i) insertA(*one.cache, "a" + std::to_string(i) + ".zone.example.");
  insertA(*one.cache, "other.example.");
  insertA(*two.cache, "zone.example.");
  std::thread first([&one] { one.loop.run(); });
  std::thread second([&two] { two.loop.run(); });
  const auto outcome = flush(kZone).get();
  EXPECT_EQ(outcome.flushed, 1001u);
  EXPECT_EQ(outcome.error, "");
  std::vector<std::future<LiveCaches::FlushResult>> all;
  for (int i = 0; i < 10; ++i) all.push_back(flush(i % 2 == 0 ? kRoot : kZone));
  uint64_t rest = 0;
  for (auto& flushed : all) rest += flushed.get().flushed;
  EXPECT_EQ(rest, 1u) << "other.example.";
  one.loop.stop();
  two.loop.stop();
  first.join();
  second.join();
  EXPECT_EQ(one.cache->size() + two.cache->size(), 0u);
}

TEST_F(LiveCachesTest, TheFileIsWrittenBeforeTheAnswer) {
  Worker worker(*this, file_, false);
  for (int i = 0; i < 1000; ++i) insertA(*worker.cache, "a" + std::to_string(i) + ".zone.example.");
  insertA(*worker.cache, "other.example.");
  EXPECT_EQ(flushOn(worker, dns::Name::parse("a7.zone.example.").value()).flushed, 1u);
  Cache before({});
  EXPECT_EQ(saved(file_, before), 1000u);
  EXPECT_EQ(flushOn(worker, kZone).flushed, 999u);
  Cache next({});
  EXPECT_EQ(saved(file_, next), 1u);
  EXPECT_TRUE(has(next, "other.example."));
  const auto outcome = flushOn(worker, kRoot);
  EXPECT_EQ(outcome.flushed, 1u);
  EXPECT_EQ(outcome.error, "");
  Cache empty({});
  EXPECT_EQ(saved(file_, empty), 0u);
  EXPECT_TRUE(std::filesystem::exists(file_));
  EXPECT_FALSE(std::filesystem::exists(file_ + ".new"));
}

// The next flush begins while the file of the one before is on its way.
TEST_F(LiveCachesTest, AFileThatIsBeingWrittenIsWrittenAnew) {
  Worker worker(*this, file_, false);
  for (int i = 0; i < 5000; ++i) insertA(*worker.cache, "a" + std::to_string(i) + ".example.");
  std::atomic<uint64_t> flushed{0};
  for (int i = 0; i < 20; ++i) {
    live_->flush(dns::Name::parse("a" + std::to_string(i) + ".example.").value(),
                 [&flushed](const LiveCaches::FlushResult& outcome) {
                   EXPECT_EQ(outcome.error, "");
                   flushed += outcome.flushed;
                 });
  }
  const auto last = flushOn(worker, dns::Name::parse("a20.example.").value());
  EXPECT_EQ(last.error, "");
  EXPECT_EQ(flushed + last.flushed, 21u);
  Cache next({});
  EXPECT_EQ(saved(file_, next), 4979u);
}

TEST_F(LiveCachesTest, AFileThatIsBeingReadBringsNothingBack) {
  {
    Worker before(*this, file_, false);
    for (int i = 0; i < 3000; ++i) insertA(*before.cache, "a" + std::to_string(i) + ".zone.example.");
    for (int i = 0; i < 3000; ++i) insertA(*before.cache, "a" + std::to_string(i) + ".other.example.");
    flushOn(before, dns::Name::parse("none.example.").value());
  }
  {
    Worker worker(*this, file_, true);
    EXPECT_TRUE(worker.saver->isLoading());
    EXPECT_EQ(flushOn(worker, kZone).flushed, 3000u);
    EXPECT_FALSE(worker.saver->isLoading());
    EXPECT_EQ(worker.cache->size(), 3000u);
    Cache next({});
    EXPECT_EQ(saved(file_, next), 3000u);
    EXPECT_TRUE(has(next, "a2999.other.example."));
  }
  Worker worker(*this, file_, true);
  flushOn(worker, kRoot);
  EXPECT_FALSE(worker.saver->isLoading());
  EXPECT_EQ(worker.cache->size(), 0u);
  Cache next({});
  EXPECT_EQ(saved(file_, next), 0u);
}

// As while a reload replaces one chain by another.
TEST_F(LiveCachesTest, TwoUsersOfACacheAreOne) {
  Worker worker(*this, file_, false);
  insertA(*worker.cache, "a.zone.example.");
  insertA(*worker.cache, "other.example.");
  const auto saver =
      CacheSaver::make({.file = file_, .seed = Message::kSeed, .loads = false}, worker.cache, worker.loop, process_);
  const LiveCaches::User next(live_, worker.cache, saver, worker.loop);
  const auto outcome = flushOn(worker, kZone);
  EXPECT_EQ(outcome.flushed, 1u);
  EXPECT_EQ(outcome.error, "");
  Cache after({});
  EXPECT_EQ(saved(file_, after), 1u);
}

TEST_F(LiveCachesTest, AFileThatCannotBeWrittenIsAnError) {
  Worker worker(*this, directory_ / "none/answers", false);
  insertA(*worker.cache, "a.example.");
  const auto outcome = flushOn(worker, kRoot);
  EXPECT_NE(outcome.error.find("none/answers: "), std::string::npos) << outcome.error;
  EXPECT_EQ(worker.cache->size(), 0u) << "it is flushed all the same";
}

TEST_F(LiveCachesTest, ALoopThatEndsBeforeIsAnError) {
  std::future<LiveCaches::FlushResult> outcome;
  {
    Worker worker(*this, "", false);
    insertA(*worker.cache, "a.example.");
    outcome = flush(kRoot);
  }
  EXPECT_NE(outcome.get().error, "");
  EXPECT_EQ(flush(kRoot).get().error, "") << "it is not there any more";
}

TEST_F(LiveCachesTest, ACacheThatHasGoneHasNothing) {
  Worker worker(*this, "", false);
  insertA(*worker.cache, "a.example.");
  auto outcome = flush(kZone);
  worker.cache.reset();
  worker.loop.post([&worker] { worker.loop.stop(); });
  worker.loop.run();
  EXPECT_EQ(outcome.get().flushed, 0u);
}

}  // namespace
}  // namespace idetcd::resolver
