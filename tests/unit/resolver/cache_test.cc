#include "resolver/cache.h"

#include <cmath>
#include <ctime>
#include <future>
#include <list>
#include <malloc.h>
#include <optional>
#include <random>
#include <unordered_map>

#include <gtest/gtest.h>

#include "support/metric_values.h"
#include "support/query_fixture.h"
#include "support/upstream_message.h"

namespace idetcd::resolver {
namespace {

using std::chrono::seconds;
using State = Cache::State;

class CacheTest : public testing::Test {
 protected:
  // The parsed query for a name; its message lives as long as the test.
  dns::Query ask(const std::string& qname, uint16_t qtype = 1, bool dnssec_ok = false, bool checking_disabled = false) {
    auto& message = *messages_.emplace_back(std::make_unique<Message>(qname, qtype, 1232));
    dns::Query query;
    dns::parseQuery(message.data(), message.size(), Message::kSeed, query);
    query.dnssec_ok = dnssec_ok;
    if (checking_disabled) query.flags |= dns::kFlagCd;
    return query;
  }

  void insert(Cache& cache, const dns::Query& query, const UpstreamMessage& upstream) {
    StoredResponse response;
    ASSERT_EQ(readUpstreamResponse(upstream.bytes, 0xbeef, query, response), UpstreamVerdict::kAccepted);
    cache.insert(query, response, now_);
  }
  void insertA(Cache& cache, const std::string& qname, uint32_t ttl = 300) {
    insert(cache, ask(qname), UpstreamMessage(qname, 1).a(qname, ttl, {192, 0, 2, 1}));
    messages_.clear();
  }
  void insertTxt(Cache& cache, const std::string& qname, size_t size) {
    insert(
        cache, ask(qname, 16),
        UpstreamMessage(qname, 16).record(UpstreamMessage::kAnswer, qname, 16, 300, std::vector<uint8_t>(size, 0x20)));
    messages_.clear();
  }
  State find(Cache& cache, const std::string& qname, uint16_t qtype = 1) {
    const State state = cache.find(ask(qname, qtype), now_).state;
    messages_.clear();
    return state;
  }

  std::vector<std::unique_ptr<Message>> messages_;
  BootClock::time_point now_{std::chrono::hours(5)};
};

TEST_F(CacheTest, CountsTtlsDownAndForgets) {
  Cache cache({});
  insertA(cache, "a.example.", 100);
  now_ += seconds(40);
  const dns::Query query = ask("A.example.");
  const auto found = cache.find(query, now_);
  ASSERT_EQ(found.state, State::kFresh);
  EXPECT_EQ(found.age_seconds, 40u);
  Message& message = *messages_.back();
  message.setResponse(dns::writePackedResponse(*found.response, query, 1232, {.age_seconds = found.age_seconds}));
  EXPECT_EQ(message.records()[0].ttl, 60u);
  now_ += seconds(59);
  EXPECT_EQ(find(cache, "a.example."), State::kFresh);
  now_ += seconds(1);
  EXPECT_EQ(find(cache, "a.example."), State::kMiss);
}

// Byte for byte what find() and writePackedResponse() would give, or nothing.
TEST_F(CacheTest, WritesFreshAnswersInOnePiece) {
  Cache cache({});
  const auto soa = [](UpstreamMessage message) {
    std::vector<uint8_t> rdata{0, 0};
    for (int i = 0; i < 5; ++i) rdata.insert(rdata.end(), {0, 0, 1, 44});
    return message.record(UpstreamMessage::kAuthority, "example.", 6, 400, rdata);
  };
  insert(cache, ask("one.example."), UpstreamMessage("one.example.", 1).a("one.example.", 300, {192, 0, 2, 1}));
  insert(cache, ask("signed.example."),
         UpstreamMessage("signed.example.", 1, 0x81a0).a("signed.example.", 3, {192, 0, 2, 1}));
  insert(
      cache, ask("two.example."),
      UpstreamMessage("two.example.", 1).a("two.example.", 200, {192, 0, 2, 1}).a("two.example.", 100, {192, 0, 2, 2}));
  insert(
      cache, ask("alias.example."),
      UpstreamMessage("alias.example.", 1).cname("alias.example.", "to.example.").a("to.example.", 90, {192, 0, 2, 3}));
  insert(cache, ask("none.example."), soa(UpstreamMessage("none.example.", 1, 0x8183)));
  insert(cache, ask("empty.example."), soa(UpstreamMessage("empty.example.", 1)));
  insert(cache, ask("mail.example.", 2),
         UpstreamMessage("mail.example.", 2)
             .record(UpstreamMessage::kAnswer, "mail.example.", 2, 300, UpstreamMessage::name("mx.example."))
             .a("mx.example.", 300, {192, 0, 2, 4}, UpstreamMessage::kAdditional));
  UpstreamMessage many("many.example.", 1);
  for (uint8_t i = 0; i < 60; ++i) many.a("many.example.", 300, {192, 0, 2, i});
  insert(cache, ask("many.example."), many);

  struct Case {
    const char* name;
    uint16_t qtype;
    Cache::FastPath fast_path;
    size_t limit;
    bool fast;
  };
  const Case cases[] = {
      {"one.example.", 1, {}, 1232, true},
      {"one.example.", 1, {.answers_only = true, .single_answer = true}, 512, true},
      {"signed.example.", 1, {}, 1232, true},
      {"two.example.", 1, {.answers_only = true}, 1232, true},
      {"two.example.", 1, {.single_answer = true}, 1232, false},
      {"alias.example.", 1, {}, 1232, false},
      {"alias.example.", 1, {.no_others = false}, 1232, true},
      {"none.example.", 1, {.answers_only = true, .single_answer = true}, 1232, true},
      {"empty.example.", 1, {}, 1232, true},
      {"mail.example.", 2, {}, 1232, false},
      {"mail.example.", 2, {.no_others = false}, 1232, true},
      {"mail.example.", 2, {.answers_only = true}, 1232, false},
      {"mail.example.", 2, {.answers_only = true, .no_others = false}, 1232, false},
      {"many.example.", 1, {}, 1232, true},
      {"many.example.", 1, {}, 512, false},
      {"nobody.example.", 1, {}, 1232, false},
  };
  for (const seconds age : {seconds(0), seconds(4), seconds(60)}) {
    const auto now = now_ + age;
    for (const Case& c : cases) {
      for (const uint16_t more_flags : {0, int{dns::kFlagAd}}) {
        for (const bool edns : {true, false}) {
          const auto query_of = [&] {
            dns::Query query = ask(c.name, c.qtype);
            query.flags |= more_flags;
            query.has_edns = edns;
            return query;
          };
          const dns::Query fast = query_of();
          const auto written = cache.writeFresh(fast, c.limit, now, c.fast_path);
          const bool expired = age > seconds(5) && std::string_view(c.name) == "signed.example.";  // 5 s, at least
          ASSERT_EQ(written.size > 0, c.fast && !expired) << c.name << " " << c.limit << " after " << age.count();
          if (written.size == 0) continue;
          const dns::Query slow = query_of();
          const auto found = cache.find(slow, now);
          const size_t size =
              dns::writePackedResponse(*found.response, slow, c.limit, {.age_seconds = found.age_seconds});
          EXPECT_EQ(std::vector<uint8_t>(fast.message, fast.message + written.size),
                    std::vector<uint8_t>(slow.message, slow.message + size))
              << c.name << " after " << age.count();
        }
      }
    }
  }
}

TEST_F(CacheTest, PrefetchIsWantedByFreshAnswersToo) {
  const metrics::Registry registry;
  Cache cache({.prefetch = {.amount = 2}}, registry.scope());
  insertA(cache, "a.example.", 100);
  now_ += seconds(95);
  EXPECT_FALSE(cache.writeFresh(ask("a.example."), 1232, now_, {}).wants_prefetch);
  EXPECT_TRUE(cache.writeFresh(ask("a.example."), 1232, now_, {}).wants_prefetch);
  EXPECT_FALSE(cache.writeFresh(ask("a.example."), 1232, now_, {}).wants_prefetch) << "once";
  EXPECT_EQ(test_support::sumOf(registry, "coredns_cache_hits_total"), 3);
  EXPECT_EQ(test_support::sumOf(registry, "coredns_cache_prefetch_total"), 1);
}

TEST_F(CacheTest, WhatIsNotWorthKeepingIsCounted) {
  const metrics::Registry registry;
  Cache cache({}, registry.scope());
  insertA(cache, "a.example.", 100);
  EXPECT_EQ(test_support::sumOf(registry, "coredns_cache_drops_total"), 0);
  insertA(cache, "b.example.", 0);
  insert(cache, ask("c.example."), UpstreamMessage("c.example.", 1, 0x8183));  // without SOA
  EXPECT_EQ(test_support::sumOf(registry, "coredns_cache_drops_total"), 2);
}

TEST_F(CacheTest, KeysAreNameTypeDoAndCd) {
  Cache cache({});
  insertA(cache, "a.example.");
  EXPECT_EQ(cache.find(ask("a.example.", 28), now_).state, State::kMiss);
  EXPECT_EQ(cache.find(ask("b.example.", 1), now_).state, State::kMiss);
  EXPECT_EQ(cache.find(ask("a.example.", 1, true), now_).state, State::kMiss);
  EXPECT_EQ(cache.find(ask("a.example.", 1, false, true), now_).state, State::kMiss);
  EXPECT_EQ(cache.find(ask("A.EXAMPLE.", 1), now_).state, State::kFresh);
}

TEST_F(CacheTest, ClampsTtls) {
  Cache cache({.success = {.max_ttl_seconds = 60, .min_ttl_seconds = 10}});
  insertA(cache, "short.example.", 2);
  insertA(cache, "long.example.", 100000);
  now_ += seconds(9);
  EXPECT_EQ(find(cache, "short.example."), State::kFresh);
  now_ += seconds(1);
  EXPECT_EQ(find(cache, "short.example."), State::kMiss);
  now_ += seconds(49);
  EXPECT_EQ(find(cache, "long.example."), State::kFresh);
  now_ += seconds(1);
  EXPECT_EQ(find(cache, "long.example."), State::kMiss);
}

TEST_F(CacheTest, KeepsDenialsButNotWithoutSoa) {
  Cache cache({});
  insert(cache, ask("no.example."), UpstreamMessage("no.example.", 1, 0x8183).soa("example.", 300, 60));
  insert(cache, ask("nosoa.example."), UpstreamMessage("nosoa.example.", 1, 0x8183));
  EXPECT_EQ(find(cache, "no.example."), State::kFresh);
  EXPECT_EQ(find(cache, "nosoa.example."), State::kMiss);
  now_ += seconds(60);
  EXPECT_EQ(find(cache, "no.example."), State::kMiss);
}

TEST_F(CacheTest, FailuresAreShortAndNeverStale) {
  Cache cache({.serve_stale = seconds(3600)});
  insert(cache, ask("fail.example."), UpstreamMessage("fail.example.", 1, 0x8182));
  EXPECT_EQ(find(cache, "fail.example."), State::kFresh);
  now_ += seconds(5);
  EXPECT_EQ(find(cache, "fail.example."), State::kMiss);
}

TEST_F(CacheTest, StaleAnswersOutliveFailures) {
  Cache cache({.serve_stale = seconds(3600)});
  insertA(cache, "a.example.", 60);
  now_ += seconds(61);
  EXPECT_EQ(find(cache, "a.example."), State::kStale);
  insert(cache, ask("a.example."), UpstreamMessage("a.example.", 1, 0x8182));
  EXPECT_EQ(find(cache, "a.example."), State::kStale);
  now_ += seconds(3600);
  EXPECT_EQ(find(cache, "a.example."), State::kMiss);
  insert(cache, ask("a.example."), UpstreamMessage("a.example.", 1, 0x8182));
  EXPECT_EQ(find(cache, "a.example."), State::kFresh) << "the failure";
}

TEST_F(CacheTest, WithPreferPositiveAnAnswerOutlivesDenials) {
  Cache cache({.serve_stale = seconds(3600), .prefer_positive = true});
  const auto say = [&](const UpstreamMessage& message) {
    insert(cache, ask("a.example."), message);
    const auto found = cache.find(ask("a.example."), now_);
    return found.state == State::kMiss ? "nothing" : found.response->answers > 0 ? "answer" : "denial";
  };
  const auto nxdomain = UpstreamMessage("a.example.", 1, 0x8183).soa("example.", 60, 60);
  insertA(cache, "a.example.", 60);
  EXPECT_STREQ(say(nxdomain), "answer") << "while it is fresh";
  now_ += seconds(61);
  EXPECT_STREQ(say(nxdomain), "answer");
  EXPECT_STREQ(say(UpstreamMessage("a.example.", 1).soa("example.", 60, 60)), "answer") << "NODATA";
  EXPECT_STREQ(say(UpstreamMessage("a.example.", 1, 0x8183)), "answer") << "a denial without SOA";
  EXPECT_STREQ(say(UpstreamMessage("a.example.", 1).cname("a.example.", "b.example.")), "answer") << "no end";
  EXPECT_STREQ(say(UpstreamMessage("a.example.", 1, 0x8182)), "answer") << "SERVFAIL";
  EXPECT_STREQ(say(UpstreamMessage("a.example.", 1).a("a.example.", 60, {192, 0, 2, 2})), "answer");
  EXPECT_EQ(find(cache, "a.example."), State::kFresh) << "an answer replaces it";
  now_ += seconds(61);
  EXPECT_STREQ(say(UpstreamMessage("a.example.", 1).a("a.example.", 0, {192, 0, 2, 3})), "nothing")
      << "one that must not be kept does too";
  insertA(cache, "a.example.", 60);
  now_ += seconds(3660);
  EXPECT_STREQ(say(nxdomain), "denial") << "serve_stale is over";
  insertA(cache, "a.example.", 60);
  EXPECT_STREQ(say(UpstreamMessage("a.example.", 1, 0x8182)), "answer");
}

TEST_F(CacheTest, DisabledZonesKeepNothing) {
  const auto name = [](const char* text) { return dns::Name::parse(text).value(); };
  Cache cache({.success = {.disabled = {name("a.example."), name("b.example.")}},
               .denial = {.disabled = {name("c.example.")}}});
  const auto deny = [&](const std::string& qname) {
    insert(cache, ask(qname), UpstreamMessage(qname, 1, 0x8183).soa("example.", 60, 60));
  };
  for (const char* qname : {"a.example.", "x.b.example.", "c.example."}) insertA(cache, qname);
  EXPECT_EQ(find(cache, "a.example."), State::kMiss);
  EXPECT_EQ(find(cache, "x.b.example."), State::kMiss);
  EXPECT_EQ(find(cache, "c.example."), State::kFresh);
  for (const char* qname : {"n.a.example.", "n.c.example."}) deny(qname);
  EXPECT_EQ(find(cache, "n.a.example."), State::kFresh);
  EXPECT_EQ(find(cache, "n.c.example."), State::kMiss);
}

TEST_F(CacheTest, AFailedRefreshIsNotRepeatedForAWhile) {
  Cache cache({.serve_stale = seconds(3600)});
  insertA(cache, "a.example.", 60);
  now_ += seconds(61);
  const auto look = [&] { return cache.find(ask("a.example."), now_); };
  EXPECT_TRUE(look().wants_refresh);
  EXPECT_FALSE(look().has_failed);
  cache.noteRefresh(ask("a.example."), now_);
  EXPECT_FALSE(look().wants_refresh) << "it is on its way";
  EXPECT_FALSE(look().has_failed);
  now_ += Cache::kRefreshTime;
  EXPECT_TRUE(look().wants_refresh) << "it got lost";
  cache.noteFailure(ask("a.example."), now_);
  now_ += seconds(29);
  EXPECT_FALSE(look().wants_refresh);
  EXPECT_TRUE(look().has_failed);
  now_ += seconds(1);
  EXPECT_TRUE(look().wants_refresh);
  EXPECT_TRUE(look().has_failed) << "who verifies need not make all clients wait";
  insertA(cache, "a.example.", 60);
  now_ += seconds(61);
  EXPECT_TRUE(look().wants_refresh);
  EXPECT_FALSE(look().has_failed) << "it has worked since";
}

TEST_F(CacheTest, StaleAnswersEndWithWhatMustNotBeKept) {
  Cache cache({.serve_stale = seconds(3600)});
  const auto say = [&](const UpstreamMessage& message) {
    insertA(cache, "a.example.", 60);
    now_ += seconds(30);
    insert(cache, ask("a.example."), message);
    EXPECT_EQ(find(cache, "a.example."), State::kFresh);
    now_ += seconds(31);
    insert(cache, ask("a.example."), message);
    return find(cache, "a.example.");
  };
  EXPECT_EQ(say(UpstreamMessage("a.example.", 1).a("a.example.", 0, {192, 0, 2, 2})), State::kMiss);
  EXPECT_EQ(say(UpstreamMessage("a.example.", 1, 0x8183)), State::kMiss) << "a denial without SOA";
  EXPECT_EQ(say(UpstreamMessage("a.example.", 1, 0x8182)), State::kStale);
}

TEST_F(CacheTest, PrefetchWantsWhatIsAskedForOftenAndEndsSoon) {
  Cache cache({.prefetch = {.amount = 3, .gap = seconds(60), .percentage = 10}});
  insertA(cache, "a.example.", 100);
  const auto wants = [&] { return cache.find(ask("a.example."), now_).wants_prefetch; };
  EXPECT_FALSE(wants());
  now_ += seconds(50);
  EXPECT_FALSE(wants());
  now_ += seconds(41);
  EXPECT_TRUE(wants()) << "the third hit, in the last tenth";
  EXPECT_FALSE(wants()) << "said once";
  insertA(cache, "a.example.", 100);
  now_ += seconds(95);
  EXPECT_FALSE(wants()) << "gap too long: not popular any more";
}

TEST_F(CacheTest, CapacitiesHold) {
  const metrics::Registry registry;
  Cache cache({.success = {.capacity = 100}, .denial = {.capacity = 10}}, registry.scope());
  for (int i = 0; i < 1000; ++i) {
    insertA(cache, "p" + std::to_string(i) + ".example.");
    const std::string denied = "n" + std::to_string(i) + ".example.";
    insert(cache, ask(denied), UpstreamMessage(denied, 1, 0x8183).soa("example.", 300, 300));
    messages_.clear();
    EXPECT_LE(cache.size(), 110u);
  }
  EXPECT_EQ(cache.size(), 110u);
  EXPECT_EQ(test_support::sumOf(registry, "coredns_cache_evictions_total"), 2000 - 110);
  EXPECT_EQ(find(cache, "p999.example."), State::kFresh);
}

// As a reload does.
TEST_F(CacheTest, NewOptionsAreForWhatIsKeptFromNowOn) {
  constexpr size_t kBefore = 5000;
  Cache cache({.success = {.capacity = kBefore}});
  for (size_t i = 0; i < kBefore; ++i) insertA(cache, "p" + std::to_string(i) + ".example.");
  ASSERT_EQ(cache.size(), kBefore);
  cache.setOptions({.success = {.capacity = 100, .max_ttl_seconds = 10}, .nxdomain_cut = true});
  EXPECT_EQ(cache.size(), kBefore);
  insertA(cache, "first.example.");
  EXPECT_LT(cache.size(), kBefore - 500) << "it comes down";
  EXPECT_GT(cache.size(), kBefore - 2500) << "in steps";
  for (int i = 0; i < 20; ++i) insertA(cache, "q" + std::to_string(i) + ".example.");
  EXPECT_EQ(cache.size(), 100u);
  insert(cache, ask("not.example."), UpstreamMessage("not.example.", 1, 0x8183).soa("example.", 300, 300));
  EXPECT_NE(cache.findCut(ask("a.not.example."), now_).response, nullptr);
  now_ += seconds(11);
  EXPECT_EQ(find(cache, "q19.example."), State::kMiss);
  cache.setOptions({});
  EXPECT_EQ(cache.findCut(ask("a.not.example."), now_).response, nullptr);
}

TEST_F(CacheTest, WhatItDoesAndHoldsIsCounted) {
  const metrics::Registry registry;
  const metrics::Scope scope = registry.scope().with("block", ".:53");
  std::optional<Cache> cache(std::in_place, Cache::Options{.serve_stale = seconds(3600)}, scope);
  EXPECT_EQ(find(*cache, "a.example."), State::kMiss);
  insertA(*cache, "a.example.", 60);
  insertA(*cache, "b.example.", 60);
  insertA(*cache, "b.example.", 60);
  EXPECT_EQ(find(*cache, "a.example."), State::kFresh);
  now_ += seconds(61);
  EXPECT_EQ(find(*cache, "a.example."), State::kStale);
  auto values = test_support::valuesOf(registry);
  EXPECT_EQ(values.at("coredns_cache_misses_total{block=\".:53\"}"), 1);
  EXPECT_EQ(values.at("coredns_cache_hits_total{block=\".:53\",type=\"success\"}"), 2) << "one is stale";
  EXPECT_EQ(values.at("coredns_cache_hits_total{block=\".:53\",type=\"denial\"}"), 0);
  EXPECT_EQ(values.at("coredns_cache_served_stale_total{block=\".:53\"}"), 0) << "who asks the cache may not take it";
  EXPECT_EQ(values.at("idetcd_cache_insertions_total{block=\".:53\"}"), 3);
  EXPECT_EQ(values.at("coredns_cache_evictions_total{block=\".:53\",type=\"success\"}"), 0);
  EXPECT_EQ(values.at("coredns_cache_entries{block=\".:53\",type=\"success\"}"), 2);
  EXPECT_EQ(values.at("idetcd_cache_bytes{block=\".:53\"}"), static_cast<double>(cache->bytes()));
  cache.reset();  // as at a reload
  values = test_support::valuesOf(registry);
  EXPECT_EQ(values.at("idetcd_cache_insertions_total{block=\".:53\"}"), 3);
  EXPECT_FALSE(values.contains("coredns_cache_entries{block=\".:53\",type=\"success\"}"));
}

// To free a million entries takes a loop long.
TEST_F(CacheTest, ItsEndLeavesTheEntriesToTheExecutor) {
  const auto executor = std::make_shared<Executor>(1);
  std::promise<void> may_go_on;
  ASSERT_TRUE(executor->submit([go_on = may_go_on.get_future().share()] { go_on.wait(); }));
  const auto in_use = [] { return mallinfo2().uordblks; };
  std::optional<Cache> cache(std::in_place, Cache::Options{}, metrics::Scope{}, executor);
  const size_t before = in_use();
  for (int i = 0; i < 5000; ++i) insertA(*cache, "n" + std::to_string(i) + ".example.");
  const size_t entries = in_use() - before;
  if (entries < cache->bytes()) GTEST_SKIP() << "the sanitizers have a malloc of their own";
  cache.reset();
  EXPECT_GE(in_use(), before + entries / 2) << "nothing was freed here";
  may_go_on.set_value();
  ASSERT_TRUE(executor->finish(std::chrono::seconds(30)));
  EXPECT_LT(in_use(), before + entries / 2);
}

// Everything is popular: one more name does not send the queue round and round.
TEST_F(CacheTest, AnInsertionPassesOverAThousandEntriesAtMost) {
  const metrics::Registry registry;
  Cache cache({.success = {.capacity = 2000}}, registry.scope());
  const auto name = [](int i) { return "n" + std::to_string(i) + ".example."; };
  for (int i = 0; i < 2000; ++i) insertA(cache, name(i));
  for (int i = 0; i < 2000; ++i) {
    for (int asked = 0; asked < 3; ++asked) find(cache, name(i));
  }
  insertA(cache, "new.example.");
  EXPECT_EQ(test_support::sumOf(registry, "coredns_cache_evictions_total"), 1);
  EXPECT_EQ(find(cache, name(999)), State::kFresh) << "it had its second chance";
  EXPECT_EQ(find(cache, name(1000)), State::kMiss) << "and this one had none";
}

TEST_F(CacheTest, MemoryIsBoundedInBytesToo) {
  Cache cache({.success = {.capacity = 1000}});
  for (int i = 0; i < 400; ++i) {
    const std::string qname = "big" + std::to_string(i) + ".example.";
    for (int asked = 0; asked < 3; ++asked) {  // so that it is no one-off
      if (asked == 0) insertTxt(cache, qname, 9000);
      find(cache, qname, 16);
    }
    EXPECT_LE(cache.bytes(), 1000u * 1024);
  }
  EXPECT_GE(cache.size(), 80u);
}

TEST_F(CacheTest, LargeOneOffsEvictOnlyThemselves) {
  Cache cache({});
  constexpr int kHot = 1000;
  const auto hot = [](int i) { return "hot" + std::to_string(i) + ".example."; };
  for (int i = 0; i < kHot; ++i) insertA(cache, hot(i), 3600);
  insertTxt(cache, "wanted.example.", 60000);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(find(cache, "wanted.example.", 16), State::kFresh);
  for (int i = 0; i < 200; ++i) insertTxt(cache, "big" + std::to_string(i) + ".example.", 60000);
  for (int i = 0; i < kHot; ++i) EXPECT_EQ(find(cache, hot(i)), State::kFresh) << i;
  EXPECT_EQ(find(cache, "wanted.example.", 16), State::kFresh) << "large, but asked for again";
  EXPECT_LE(cache.bytes(), 9984u * 1024 / 10 + 61000 + kHot * 300);
  EXPECT_EQ(find(cache, "big199.example.", 16), State::kFresh);
}

TEST_F(CacheTest, NothingAboveAHundredthOfAllBytesIsKept) {
  Cache cache({.success = {.capacity = 1000}});
  insertTxt(cache, "a.example.", 9000);
  EXPECT_EQ(find(cache, "a.example.", 16), State::kFresh);
  now_ += seconds(400);
  insertTxt(cache, "a.example.", 11000);
  EXPECT_EQ(find(cache, "a.example.", 16), State::kMiss);
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_EQ(cache.bytes(), 0u);
  Cache small({.success = {.capacity = 1}});
  insertTxt(small, "a.example.", 800);
  EXPECT_EQ(find(small, "a.example.", 16), State::kFresh) << "but the mean size always is";
}

// Every name that has been inserted into a chain of occupied slots stays reachable when others leave it.
TEST_F(CacheTest, WhatIsErasedHidesNobody) {
  Cache cache({});
  constexpr int kNames = 500;  // of 1024 slots
  const auto name = [](int i) { return "n" + std::to_string(i) + ".example."; };
  for (int i = 0; i < kNames; ++i) insertA(cache, name(i), i % 3 == 0 ? 60 : 3000);
  now_ += seconds(60);
  for (int gone = 0; gone < kNames; gone += 3) {
    insertA(cache, name(gone), 0);  // not to be cached, and what has ended is erased
    ASSERT_EQ(find(cache, name(gone)), State::kMiss);
    for (int i = 0; i < kNames; ++i) {
      if (i % 3 == 0) continue;
      ASSERT_EQ(find(cache, name(i)), State::kFresh) << name(i) << " after " << name(gone);
    }
  }
}

TEST_F(CacheTest, NothingOutlivesItsSignature) {
  const auto now = static_cast<uint32_t>(std::time(nullptr));
  const auto signedUntil = [](const std::string& qname, uint32_t end) {
    std::vector<uint8_t> rrsig{0, 1, 8, 2, 0, 0, 1, 44};
    for (int shift = 24; shift >= 0; shift -= 8) rrsig.push_back(static_cast<uint8_t>(end >> shift));
    rrsig.insert(rrsig.end(), {0, 0, 0, 0, 0, 1, 0, 1, 2, 3});
    return UpstreamMessage(qname, 1)
        .a(qname, 300, {192, 0, 2, 1})
        .record(UpstreamMessage::kAnswer, qname, 46, 300, rrsig);
  };
  Cache cache({.serve_stale = std::chrono::hours(1)});
  const auto state = [&](const std::string& qname) { return cache.find(ask(qname, 1, true), now_).state; };
  insert(cache, ask("ends.example.", 1, true), signedUntil("ends.example.", now + 100));
  insert(cache, ask("soon.example.", 1, true), signedUntil("soon.example.", now + 3));
  insert(cache, ask("lasts.example.", 1, true), signedUntil("lasts.example.", now + 4000));
  insert(cache, ask("ended.example.", 1, true), signedUntil("ended.example.", now - 1));
  EXPECT_EQ(state("ended.example."), State::kMiss);
  ASSERT_EQ(state("ends.example."), State::kFresh);
  const auto found = cache.find(ask("soon.example.", 1, true), now_);
  ASSERT_EQ(found.state, State::kFresh);
  EXPECT_LE(dns::load32(&found.response->body()[found.response->ttlOffsets()[0]]), 3u)
      << "the least TTL is not for these";
  now_ += seconds(4);
  EXPECT_EQ(state("soon.example."), State::kMiss);
  now_ += seconds(90);
  EXPECT_EQ(state("ends.example."), State::kFresh);
  now_ += seconds(10);
  EXPECT_EQ(state("ends.example."), State::kMiss) << "not as a stale answer either";
  now_ += seconds(250);
  EXPECT_EQ(state("lasts.example."), State::kStale);
}

// RFC 9520 §3.2
TEST_F(CacheTest, AFailureIsKeptWhateverItsRcode) {
  Cache cache({.serve_stale = std::chrono::hours(1)});
  for (uint16_t rcode = 1; rcode < 16; ++rcode) {
    if (rcode == dns::code(dns::Rcode::kNxDomain)) continue;
    const std::string name = "a" + std::to_string(rcode) + ".example.";
    insert(cache, ask(name), UpstreamMessage(name, 1, static_cast<uint16_t>(0x8180 | rcode)));
    EXPECT_EQ(find(cache, name), State::kFresh) << rcode;
  }
  insertA(cache, "a.example.", 10);
  insert(cache, ask("a.example."), UpstreamMessage("a.example.", 1, 0x8181));
  const Cache::Found found = cache.find(ask("a.example."), now_);
  EXPECT_EQ(found.response->rcode, dns::Rcode::kNoError) << "it replaces no answer";
}

TEST_F(CacheTest, AliasesWithoutTheirTargetAreNotKept) {
  Cache cache({});
  insert(cache, ask("a.example."), UpstreamMessage("a.example.", 1).cname("a.example.", "b.example.", 3600));
  EXPECT_EQ(cache.size(), 0u);
  insert(cache, ask("a.example.", 5), UpstreamMessage("a.example.", 5).cname("a.example.", "b.example.", 3600));
  EXPECT_EQ(cache.size(), 1u) << "it was asked for";
}

TEST_F(CacheTest, AScanEvictsOnlyItself) {
  Cache cache({.success = {.capacity = 1000}});
  const auto touchHotSet = [&] {
    size_t hits = 0;
    for (int i = 0; i < 500; ++i) {
      const std::string qname = "hot" + std::to_string(i) + ".example.";
      if (find(cache, qname) == State::kFresh) {
        ++hits;
      } else {
        insertA(cache, qname, 3600);
      }
    }
    return hits;
  };
  for (int round = 0; round < 5; ++round) touchHotSet();
  EXPECT_EQ(touchHotSet(), 500u);
  for (int i = 0; i < 20000; ++i) insertA(cache, "scan" + std::to_string(i) + ".example.");
  EXPECT_GE(touchHotSet(), 495u);
}

TEST_F(CacheTest, SurvivesAModelOfRandomUse) {
  Cache cache({.success = {.capacity = 64, .min_ttl_seconds = 1}});
  std::mt19937 random(7);
  std::unordered_map<std::string, BootClock::time_point> expires;  // what may be found, and until when
  for (int i = 0; i < 50000; ++i) {
    const std::string qname = "n" + std::to_string(random() % 200) + ".example.";
    now_ += std::chrono::milliseconds(random() % 50);
    if (random() % 3 == 0) {
      const uint32_t ttl = 1 + random() % 20;
      insertA(cache, qname, ttl);
      expires[qname] = now_ + seconds(ttl);
      ASSERT_EQ(find(cache, qname), State::kFresh);
    } else if (find(cache, qname) == State::kFresh) {
      ASSERT_TRUE(expires.contains(qname) && now_ < expires[qname]);
    }
    ASSERT_LE(cache.size(), 64u);
  }
}

// unbound's replacement is LRU: what we keep of a Zipf trace must not be worse.
TEST_F(CacheTest, HitRatioOnAZipfTraceBeatsLru) {
  constexpr size_t kNames = 20000;
  constexpr size_t kCapacity = kNames / 100;
  std::vector<double> weights(kNames);
  for (size_t i = 0; i < kNames; ++i) weights[i] = 1 / std::pow(static_cast<double>(i + 1), 0.9);
  std::discrete_distribution<size_t> zipf(weights.begin(), weights.end());
  std::mt19937 random(1);

  Cache cache({.success = {.capacity = kCapacity}});
  std::list<size_t> lru;
  std::unordered_map<size_t, std::list<size_t>::iterator> where;
  size_t hits = 0;
  size_t lru_hits = 0;
  for (int i = 0; i < 100000; ++i) {
    const size_t n = zipf(random);
    const std::string qname = "z" + std::to_string(n) + ".example.";
    if (find(cache, qname) == State::kFresh) {
      ++hits;
    } else {
      insertA(cache, qname, 3600);
    }
    if (const auto it = where.find(n); it != where.end()) {
      ++lru_hits;
      lru.erase(it->second);
    } else if (lru.size() == kCapacity) {
      where.erase(lru.back());
      lru.pop_back();
    }
    lru.push_front(n);
    where[n] = lru.begin();
  }
  EXPECT_GT(hits, lru_hits);
  RecordProperty("hits", static_cast<int>(hits));
  RecordProperty("lru_hits", static_cast<int>(lru_hits));
}

// RFC 8020.
class NxdomainCutTest : public CacheTest {
 protected:
  static constexpr uint16_t kNoError = 0x8180;
  static constexpr uint16_t kNxDomain = 0x8183;
  void deny(const std::string& qname, uint16_t qtype = 1, uint16_t flags = kNxDomain) {
    insert(cache_, ask(qname, qtype), UpstreamMessage(qname, qtype, flags).soa("example.", 3600, 300));
  }
  // The name that stands for `qname`; empty: none.
  std::string cut(const dns::Query& query) {
    const Cache::Cut found = cache_.findCut(query, now_);
    return found.response != nullptr ? dns::nameToString(found.name.data()) : "";
  }
  std::string cut(const std::string& qname) { return cut(ask(qname)); }

  Cache cache_{{.denial = {.capacity = 4}, .nxdomain_cut = true}};
};

TEST_F(NxdomainCutTest, StandsForAllNamesBelowAndForEveryType) {
  deny("no.example.");
  EXPECT_EQ(cut("a.no.example."), "no.example.");
  EXPECT_EQ(cut("d.c.b.A.No.example."), "no.example.");
  EXPECT_EQ(cut(ask("no.example.", 28)), "no.example.");
  EXPECT_EQ(cut("yes.example."), "");
  EXPECT_EQ(cut("xno.example."), "") << "labels, not bytes";
  EXPECT_EQ(cut("example."), "");
  EXPECT_EQ(cut(ask("a.no.example.", 1, true)), "") << "without proofs";
  EXPECT_EQ(cut(ask("a.no.example.", 1, false, true)), "") << "perhaps validated";
}

TEST_F(NxdomainCutTest, TheNearestNameAndTheLongestOne) {
  deny("no.example.");
  deny("a.no.example.");
  EXPECT_EQ(cut("b.a.no.example."), "a.no.example.");
  std::string longest = "no.example.";
  while (longest.size() < 253) longest = "x." + longest;
  EXPECT_EQ(cut(longest), "no.example.");
}

TEST_F(NxdomainCutTest, ADenialOfATypeOrOfTheTargetOfACnameIsNone) {
  deny("nodata.example.", 1, kNoError);
  EXPECT_EQ(cut("a.nodata.example."), "");
  insert(cache_, ask("alias.example."),
         UpstreamMessage("alias.example.", 1, kNxDomain)
             .cname("alias.example.", "gone.example.")
             .soa("example.", 3600, 300));
  EXPECT_EQ(find(cache_, "alias.example."), State::kFresh);
  EXPECT_EQ(cut("a.alias.example."), "") << "RFC 6604: it is gone.example. that does not exist";
  deny(".");
  EXPECT_EQ(cut("a.example."), "") << "the root exists, whatever an upstream says";
}

TEST_F(NxdomainCutTest, EndsWithItsTimeAndWithTheEntry) {
  deny("no.example.");
  now_ += seconds(299);
  const Cache::Cut found = cache_.findCut(ask("a.no.example."), now_);
  EXPECT_EQ(found.age_seconds, 299u);
  now_ += seconds(1);
  EXPECT_EQ(cut("a.no.example."), "");
  deny("no.example.");
  EXPECT_EQ(cut("a.no.example."), "no.example.");
  insertA(cache_, "no.example.");
  EXPECT_EQ(cut("a.no.example."), "") << "it exists now";
  deny("one.example.");
  for (int i = 0; i < 8; ++i) deny("other" + std::to_string(i) + ".example.");
  EXPECT_EQ(cut("a.one.example."), "") << "evicted";
}

TEST_F(NxdomainCutTest, OfTwoTypesOneIsEnough) {
  deny("no.example.", 1);
  deny("no.example.", 28);
  insert(cache_, ask("no.example.", 28), UpstreamMessage("no.example.", 28, kNoError).soa("example.", 3600, 300));
  EXPECT_EQ(cut("a.no.example."), "") << "the latest one was taken back";
  deny("no.example.", 1);
  EXPECT_EQ(cut("a.no.example."), "no.example.");
}

TEST_F(NxdomainCutTest, IsNotThereUnlessItIsTurnedOn) {
  Cache plain({});
  insert(plain, ask("no.example."), UpstreamMessage("no.example.", 1, kNxDomain).soa("example.", 3600, 300));
  EXPECT_EQ(plain.findCut(ask("a.no.example."), now_).response, nullptr);
}

// --- what an operator drops ---

class CacheFlushTest : public CacheTest {
 protected:
  size_t flush(Cache& cache, const std::string& zone, size_t step = 256) {
    const auto flush = cache.beginFlush(dns::Name::parse(zone).value());
    for (;;) {
      if (const auto flushed = cache.flushSome(flush, step)) return *flushed;
    }
  }
  void deny(Cache& cache, const std::string& qname, uint16_t flags = 0x8183) {
    insert(cache, ask(qname), UpstreamMessage(qname, 1, flags).soa("example.", 3600, 300));
    messages_.clear();
  }
};

TEST_F(CacheFlushTest, AllGoAtOnceAndTheCacheGoesOn) {
  const metrics::Registry registry;
  Cache cache({.nxdomain_cut = true}, registry.scope());
  for (int i = 0; i < 3000; ++i) insertA(cache, "a" + std::to_string(i) + ".example.");  // of both tables, as it grows
  deny(cache, "no.example.");
  deny(cache, "fails.example.", 0x8182);
  find(cache, "a1.example.");
  cache.beginWalk();
  size_t walked = 0;
  const auto visit = [&walked](const Cache::Kept&) { ++walked; };
  EXPECT_TRUE(cache.walk(10, visit));
  EXPECT_EQ(cache.flushAll(), 3002u);
  EXPECT_FALSE(cache.walk(1000, visit));
  EXPECT_EQ(walked, 10u);
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_EQ(cache.bytes(), 0u);
  EXPECT_EQ(test_support::sumOf(registry, "coredns_cache_entries"), 0);
  EXPECT_EQ(test_support::sumOf(registry, "idetcd_cache_bytes"), 0);
  EXPECT_EQ(find(cache, "a1.example."), State::kMiss);
  EXPECT_EQ(find(cache, "no.example."), State::kMiss);
  EXPECT_EQ(cache.findCut(ask("a.no.example."), now_).response, nullptr);
  EXPECT_EQ(cache.flushAll(), 0u);
  for (int i = 0; i < 3000; ++i) insertA(cache, "b" + std::to_string(i) + ".example.");
  deny(cache, "no.example.");
  EXPECT_EQ(find(cache, "b2999.example."), State::kFresh);
  EXPECT_NE(cache.findCut(ask("a.no.example."), now_).response, nullptr);
  EXPECT_EQ(cache.size(), 3001u);
}

TEST_F(CacheFlushTest, ANameGoesWithAllThatIsBelowIt) {
  Cache cache({});
  for (const char* name : {"example.", "a.example.", "b.a.example.", "ba.example.", "a.example.org."})
    insertA(cache, name);
  insertTxt(cache, "a.example.", 10);
  insertTxt(cache, "A.a.eXample.", 5000);  // in the queue of large ones
  deny(cache, "no.a.example.");
  deny(cache, "no.example.");
  deny(cache, "fails.a.example.", 0x8182);
  EXPECT_EQ(flush(cache, "A.EXAMPLE"), 6u);
  for (const char* name : {"a.example.", "b.a.example.", "no.a.example.", "fails.a.example."})
    EXPECT_EQ(find(cache, name), State::kMiss) << name;
  EXPECT_EQ(find(cache, "a.example.", 16), State::kMiss);
  EXPECT_EQ(find(cache, "a.a.example.", 16), State::kMiss);
  for (const char* name : {"example.", "ba.example.", "a.example.org.", "no.example."})
    EXPECT_EQ(find(cache, name), State::kFresh) << name;
  EXPECT_EQ(flush(cache, "a.example."), 0u);
  EXPECT_EQ(flush(cache, "."), 4u);
}

// Entries move to other queues and out of the cache while it goes on, and others come.
TEST_F(CacheFlushTest, NothingThatWasThereStaysWhateverHappensBetweenTheSteps) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    Cache cache({.success = {.capacity = 60}});
    std::vector<std::string> old;
    for (int i = 0; i < 60; ++i) {
      old.push_back("o" + std::to_string(i) + (i % 3 == 0 ? ".other." : ".zone."));
      insertA(cache, old.back());
    }
    std::vector<std::string> all = old;
    const auto hit_some = [&] {
      for (int i = 0; i < 20; ++i) find(cache, all[random() % all.size()]);
    };
    for (int i = 0; i < 5; ++i) hit_some();
    const auto flush = cache.beginFlush(dns::Name::parse("zone.").value());
    const auto beside = cache.beginFlush(dns::Name::parse("o1.zone.").value());
    cache.beginWalk();
    bool more = true;
    for (int step = 0; !cache.flushSome(flush, 1); ++step) {
      ASSERT_LT(step, 1000) << "it ends";
      hit_some();
      for (unsigned i = random() % 4; i > 0; --i) {
        all.push_back("n" + std::to_string(random()) + ".other.");
        insertA(cache, all.back());
        for (int hits = 0; hits < 3; ++hits) find(cache, all.back());
      }
      if (more) more = cache.walk(1, [](const Cache::Kept&) {});
      if (step == 3) {
        EXPECT_TRUE(cache.flushSome(beside, 1000));
      }
    }
    for (const std::string& name : old) {
      const bool stays = find(cache, name) != State::kMiss && name.ends_with(".zone.");
      EXPECT_FALSE(stays) << name << " seed " << seed;
    }
  }
}

TEST_F(CacheFlushTest, OneThatIsGivenUpOrOvertakenEnds) {
  Cache cache({});
  for (int i = 0; i < 10; ++i) insertA(cache, "a" + std::to_string(i) + ".example.");
  auto given_up = cache.beginFlush(dns::Name::parse("example.").value());
  EXPECT_FALSE(cache.flushSome(given_up, 5));
  given_up.reset();
  const auto overtaken = cache.beginFlush(dns::Name::parse("example.").value());
  EXPECT_FALSE(cache.flushSome(overtaken, 2));
  EXPECT_EQ(cache.flushAll(), 3u);
  insertA(cache, "new.other.");
  EXPECT_EQ(cache.flushSome(overtaken, 10), 2u);
  EXPECT_EQ(find(cache, "new.other."), State::kFresh);
}

}  // namespace
}  // namespace idetcd::resolver
