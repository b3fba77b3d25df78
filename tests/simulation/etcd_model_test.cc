// The model and a real etcd do the same scripts and must give the same answers: revisions, keys, errors with their
// texts, events. One etcd and one model go through all scripts, so each begins where the one before has left the store.
#include "simulation/etcd_model.h"

#include <array>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/eventually.h"
#include "unit/etcd/client_fixture.h"

namespace idetcd::simulation {
namespace {

using Target = Compare::Target;
using namespace std::chrono_literals;

// --- as text ---

std::string describe(const KeyValue& kv) {
  return fmt::format("{}={} [{} {} v{} L{:x}]", kv.key, kv.value.substr(0, 32), kv.create_revision, kv.mod_revision,
                     kv.version, kv.lease);
}

std::string describe(const StoreError& error) {
  return fmt::format("error {}: {}", static_cast<int>(error.code), error.message);
}

std::string describe(const RangeResult& result) {
  std::string text =
      fmt::format("at {}, {} of {}{}:", result.revision, result.kvs.size(), result.count, result.more ? ", more" : "");
  for (const KeyValue& kv : result.kvs) text += " " + describe(kv);
  return text;
}

std::string describe(const TxnResult& result) {
  std::string text = fmt::format("{} at {}:", result.succeeded ? "success" : "failure", result.revision);
  for (const store::OpResult& op : result.results) {
    if (std::holds_alternative<store::PutResult>(op)) text += " put;";
    if (const auto* removal = std::get_if<store::DeleteResult>(&op))
      text += fmt::format(" deleted {};", removal->deleted);
    if (const auto* range = std::get_if<RangeResult>(&op)) text += " " + describe(*range) + ";";
  }
  return text;
}

std::string describe(const store::Lease& lease) { return fmt::format("lease for {} s", lease.ttl.count()); }

template <typename T>
std::string describe(const StoreResult<T>& result) {
  if (!result) return describe(result.error());
  if constexpr (std::is_void_v<T>) {
    return "done";
  } else {
    return describe(*result);
  }
}

using Events = std::map<size_t, std::string>;  // by range

void append(Events& events, const WatchBatch& batch) {
  for (const WatchEvent& event : batch.events) {
    const char* what = event.type == WatchEvent::Type::kPut ? "put " : "delete ";
    events[batch.range] += what + describe(event.kv) + "\n";
  }
}

size_t count(const std::vector<WatchBatch>& batches) {
  size_t events = 0;
  for (const WatchBatch& batch : batches) events += batch.events.size();
  return events;
}

// --- a real etcd and the model, asked the same ---

class Pair {
 public:
  explicit Pair(etcd::EtcdServer::Options options = {})
      : server_(std::move(options)), etcd_(patient(server_)), model_({.min_ttl = 1s, .election_timeout = 500ms}) {}

  EtcdModel& model() { return model_; }
  etcd::EtcdServer& server() { return server_; }
  // The revision that this many changes lead to, or led to.
  int64_t in(int64_t changes) const { return model_.revision() + changes; }

  // --- requests: both are asked, and their answers compared ---
  void range(const KeyRange& range, RangeOptions options = {}) {
    EXPECT_EQ(describe(etcd_.range(range, options)), describe(model_.range(range, options)));
  }
  void get(const std::string& key, int64_t revision = 0) { range(KeyRange::single(key), {.revision = revision}); }
  bool txn(const TxnRequest& request) {
    const StoreResult<TxnResult> expected = model_.txn(request);
    EXPECT_EQ(describe(etcd_.txn(request)), describe(expected));
    return expected.has_value();
  }
  bool put(std::string key, std::string value, int64_t lease = 0) {
    return txn({.compares = {}, .success = {PutOp{std::move(key), std::move(value), lease}}, .failure = {}});
  }
  void remove(KeyRange range) { txn({.compares = {}, .success = {DeleteOp{std::move(range)}}, .failure = {}}); }
  void remove(std::string key) { remove(KeyRange::single(std::move(key))); }
  void compact(int64_t revision) {
    const StoreResult<void> expected = model_.compact(revision);
    std::string error;
    try {
      server_.ctl({"compact", std::to_string(revision)});
    } catch (const std::runtime_error& failure) {
      error = failure.what();
    }
    EXPECT_EQ(error.empty(), expected.has_value()) << error;
  }

  // 0: refused, by both.
  int64_t grant(std::chrono::seconds ttl) {
    const StoreResult<store::Lease> granted = etcd_.grant(ttl);
    // The server draws the number.
    const StoreResult<store::Lease> expected = model_.leaseGrant(granted ? granted->id : 1, ttl, now());
    EXPECT_EQ(describe(granted), describe(expected));
    return granted ? granted->id : 0;
  }
  void keepAlive(int64_t lease) {
    const auto expected = model_.leaseKeepAlive(lease, now());
    ASSERT_TRUE(expected);
    EXPECT_EQ(describe(etcd_.keepAlive(lease)), describe(*expected));
  }
  void timeToLive(int64_t lease) {
    const auto found = etcd::await(etcd_.thread, etcd_.client.leaseTimeToLive(lease));
    const auto expected = model_.leaseTimeToLive(lease, now());
    ASSERT_EQ(found.has_value(), expected.has_value());
    if (!found) {
      EXPECT_EQ(describe(found.error()), describe(expected.error()));
      return;
    }
    EXPECT_LE(std::abs(found->count() - expected->count()), 1) << "they read the clock at different moments";
  }
  void revoke(int64_t lease) { EXPECT_EQ(describe(etcd_.revoke(lease)), describe(model_.leaseRevoke(lease))); }
  // The leases that end so soon do, in the real etcd too. REQUIRES: keys hang on one of them at least.
  void passUntilExpired(std::chrono::seconds duration) {
    model_.revokeExpired(now() + duration);
    EXPECT_TRUE(idetcd::eventually([&] {
      const auto read = etcd_.range(KeyRange::single("x"));
      return read && read->revision >= model_.revision();
    }));
  }
  void restart() {
    server_.restart();
    model_.changeLeader(now());
  }

  // --- a watch, one at a time ---
  void watch(std::vector<store::WatchRange> ranges) {
    stream_.reset();
    watch_.emplace(model_, ranges, model_.revision());
    auto opened = etcd::await(etcd_.thread, etcd_.client.watch(std::move(ranges)));
    ASSERT_TRUE(etcd::succeeded(opened));
    stream_ = std::move(*opened);
    EXPECT_EQ(stream_->createdRevision(), watch_->createdRevision());
  }
  void watch(KeyRange range, int64_t start_revision) { watch({{std::move(range), start_revision}}); }
  // What has come since: all of what the model says, and nothing else before it.
  void events() {
    const auto expected = watch_->collect(model_.revision());
    Events wanted;
    Events found;
    if (!expected) {
      const auto batch = etcd_.next(stream_);
      ASSERT_FALSE(batch.has_value());
      EXPECT_EQ(describe(batch.error()), describe(expected.error()));
      return;
    }
    for (const WatchBatch& batch : *expected) append(wanted, batch);
    for (size_t left = count(*expected); left > 0;) {
      const auto batch = etcd_.next(stream_);
      ASSERT_TRUE(etcd::succeeded(batch));
      append(found, *batch);
      left -= std::min(left, batch->events.size());
    }
    EXPECT_EQ(found, wanted);
  }
  // REQUIRES: events() has taken all.
  void progress() {
    const auto batch = etcd_.next(stream_, 1s);
    ASSERT_TRUE(etcd::succeeded(batch));
    const WatchBatch expected = watch_->progress(model_.revision());
    EXPECT_EQ(batch->revision, expected.revision);
    EXPECT_EQ(batch->range, expected.range);
    EXPECT_EQ(batch->resume_revision, expected.resume_revision);
    EXPECT_TRUE(batch->events.empty());
  }

 private:
  static EtcdModel::Time now() { return BootClock::now(); }
  static etcd::Client::Options patient(const etcd::EtcdServer& server) {
    etcd::Client::Options options = etcd::optionsFor({server.endpoint()});
    options.call_timeout = 60s;
    return options;
  }

  etcd::EtcdServer server_;
  etcd::BlockingClient etcd_;
  EtcdModel model_;
  std::unique_ptr<store::WatchStream> stream_;
  std::optional<WatchModel> watch_;
};

// --- scripts ---

const KeyRange kAll{std::string(1, '\0'), std::string(1, '\0')};

Compare created(std::string key, int64_t number) { return {std::move(key), Target::kCreateRevision, number}; }
Compare modified(std::string key, int64_t number) { return {std::move(key), Target::kModRevision, number}; }
Compare leased(std::string key, int64_t number) { return {std::move(key), Target::kLease, number}; }
Compare valued(std::string key, std::string value) { return {std::move(key), Target::kValue, 0, std::move(value)}; }
RangeOp read(std::string key) { return {KeyRange::single(std::move(key)), {}}; }

struct Script {
  const char* name;
  std::function<void(Pair&)> run;
};

const Script kScripts[]{
    // Keys.
    {"PutSetsRevisionsAndVersion",
     [](Pair& p) {
       p.put("a", "1");
       p.get("a");
       p.put("a", "2");
       p.get("a");
       p.put("b", "3");
       p.get("a");
     }},
    {"MissingKey", [](Pair& p) { p.get("missing"); }},
    {"DeleteBeginsAnew",
     [](Pair& p) {
       p.put("a", "1");
       p.remove("a");
       p.get("a");
       p.put("a", "2");
       p.get("a");
     }},
    {"DeleteOfNothingIsNoRevision",
     [](Pair& p) {
       p.remove("missing");
       p.get("missing");
     }},
    {"DeleteOfARange",
     [](Pair& p) {
       for (const char* key : {"r1", "r2", "r3", "s"}) p.put(key, "x");
       p.remove(KeyRange{"r1", "r3"});
       p.range(kAll);
       p.remove(KeyRange::prefix("r"));
       p.range(kAll);
     }},
    {"BytesAsTheyAre",
     [](Pair& p) {
       p.put(std::string("k\0\xff\x80", 4), std::string("\0\n\xfe", 3));
       p.range(kAll);
       p.range(KeyRange::prefix(std::string("k\0", 2)));
     }},
    {"EmptyValueAndLargeValue",
     [](Pair& p) {
       p.put("a", "");
       p.put("b", std::string(100'000, 'b'));
       p.range(KeyRange::prefix("a"));
       p.range(KeyRange::prefix("b"));
     }},

    // Range.
    {"Ranges",
     [](Pair& p) {
       for (const char* key : {"c", "a", "b", "/path", "d"}) p.put(key, "v");
       p.range({"a", "c"});
       p.range({"0", std::string(1, '\0')});
       p.range(kAll);
       p.range(KeyRange::prefix(""));
       p.range({"c", "a"});
       p.range({"b", "b"});
       p.range({"", "z"});
     }},
    {"Limits",
     [](Pair& p) {
       for (const char* key : {"l3", "l1", "l2"}) p.put(key, "v");
       for (const int64_t limit : {0, 1, 2, 3, 4}) p.range(KeyRange::prefix("l"), {.limit = limit});
       p.range(KeyRange::prefix("l"), {.limit = 2, .sort_by_create_revision = true});
       p.range(KeyRange::prefix("l"), {.limit = 2, .keys_only = true});
     }},
    {"KeysOnlyAndCount",
     [](Pair& p) {
       p.put("k1", "v");
       p.put("k2", "v");
       p.range(KeyRange::prefix("k"), {.keys_only = true});
       p.range(KeyRange::prefix("k"), {.count_only = true});
       p.range(KeyRange::prefix("none"), {.count_only = true});
       p.range(KeyRange::prefix("k"), {.limit = 1, .count_only = true});
     }},
    {"SortedByCreation",
     [](Pair& p) {
       for (const char* key : {"o3", "o1", "o2"}) p.put(key, "v");
       p.put("o3", "again");
       p.range(KeyRange::prefix("o"), {.sort_by_create_revision = true});
       p.remove("o3");
       p.put("o3", "anew");
       p.range(KeyRange::prefix("o"), {.sort_by_create_revision = true});
     }},
    {"CreatedTogetherStaysInOrderOfKeys",
     [](Pair& p) {
       p.txn({.compares = {}, .success = {PutOp{"t2", "", 0}, PutOp{"t1", "", 0}, PutOp{"t3", "", 0}}, .failure = {}});
       p.range(KeyRange::prefix("t"), {.sort_by_create_revision = true});
     }},
    {"AtARevision",
     [](Pair& p) {
       p.put("h", "1");
       p.put("h", "2");
       p.remove("h");
       p.put("h", "3");
       for (int64_t back = -4; back <= 0; ++back) p.get("h", p.in(back));
       for (int64_t back = -4; back <= 0; ++back) p.range(KeyRange::prefix("h"), {.revision = p.in(back), .limit = 1});
     }},
    {"FutureRevision", [](Pair& p) { p.get("a", p.in(1)); }},
    {"Serializable",
     [](Pair& p) {
       p.put("z", "1");
       p.range(KeyRange::prefix("z"), {.serializable = true});
     }},

    // Transactions.
    {"CreateOnce",
     [](Pair& p) {
       for (int i = 0; i < 2; ++i) {
         p.txn({.compares = {created("once", 0)}, .success = {PutOp{"once", "1", 0}}, .failure = {read("once")}});
       }
     }},
    {"CompareAndSwap",
     [](Pair& p) {
       p.put("cas", "1");
       p.txn({.compares = {modified("cas", p.in(-1))}, .success = {PutOp{"cas", "no", 0}}, .failure = {read("cas")}});
       p.txn({.compares = {modified("cas", p.in(0))}, .success = {PutOp{"cas", "yes", 0}}, .failure = {}});
       p.get("cas");
     }},
    {"ComparesOfAMissingKey",
     [](Pair& p) {
       for (const Target target : {Target::kCreateRevision, Target::kModRevision, Target::kLease}) {
         for (const int64_t number : {0, 1}) p.txn({{{"missing", target, number}}, {read("a")}, {read("b")}});
       }
       p.txn({{valued("missing", "")}, {read("a")}, {read("b")}});
     }},
    {"CompareOfTheValue",
     [](Pair& p) {
       p.put("said", "1");
       p.txn({{valued("said", "1")}, {PutOp{"said", "", 0}}, {read("said")}});
       p.txn({{valued("said", "1")}, {PutOp{"said", "2", 0}}, {read("said")}});
       p.txn({{valued("said", "")}, {}, {read("said")}});
     }},
    {"CompareOfTheLease",
     [](Pair& p) {
       const int64_t lease = p.grant(60s);
       p.put("mine", "1", lease);
       p.txn({{leased("mine", lease)}, {PutOp{"mine", "2", lease}}, {}});
       p.txn({{leased("mine", lease + 1)}, {PutOp{"mine", "3", lease}}, {read("mine")}});
       p.txn({{leased("mine", 0)}, {}, {read("mine")}});
       p.revoke(lease);
     }},
    {"AllComparesMustHold",
     [](Pair& p) {
       p.put("one", "1");
       p.txn({{created("one", p.in(0)), created("two", 0)}, {PutOp{"two", "2", 0}}, {}});
       p.txn({{created("one", p.in(-1)), created("two", 0)}, {PutOp{"two", "2", 0}}, {read("two")}});
     }},
    {"ReadsSeeWhatTheTransactionHasDone",
     [](Pair& p) {
       p.put("w1", "1");
       p.txn({{},
              {RangeOp{KeyRange::prefix("w"), {}}, PutOp{"w2", "2", 0}, RangeOp{KeyRange::prefix("w"), {}},
               DeleteOp{KeyRange::single("w1")}, RangeOp{KeyRange::prefix("w"), {.count_only = true}}},
              {}});
     }},
    {"OneRevisionForAllChanges",
     [](Pair& p) {
       p.watch(KeyRange::prefix("m"), 0);
       p.txn({{}, {PutOp{"m2", "2", 0}, PutOp{"m1", "1", 0}}, {}});
       p.txn({{}, {DeleteOp{KeyRange::prefix("m")}, PutOp{"n", "1", 0}}, {}});
       p.events();
     }},
    {"ReadAtARevisionInATransaction",
     [](Pair& p) {
       p.put("v", "old");
       p.put("v", "new");
       p.txn({{}, {PutOp{"v", "newest", 0}, RangeOp{KeyRange::single("v"), {.revision = p.in(-1)}}, read("v")}, {}});
       p.txn({{}, {PutOp{"v", "x", 0}, RangeOp{KeyRange::single("v"), {.revision = p.in(1)}}}, {}});
       p.get("v");
     }},
    {"DuplicateKeysAreRefused",
     [](Pair& p) {
       p.txn({{}, {PutOp{"d", "1", 0}, PutOp{"d", "2", 0}}, {}});
       p.txn({{}, {}, {PutOp{"d", "1", 0}, PutOp{"d", "2", 0}}});
       p.txn({{}, {PutOp{"d", "1", 0}, DeleteOp{KeyRange::single("d")}}, {}});
       p.txn({{}, {DeleteOp{KeyRange::prefix("d")}, PutOp{"d1", "1", 0}}, {}});
       p.txn({{}, {DeleteOp{KeyRange::prefix("d")}, DeleteOp{KeyRange::single("d")}}, {}});
       p.txn({{}, {PutOp{"d", "1", 0}}, {PutOp{"d", "1", 0}}});
     }},
    {"OperationsAreLimited",
     [](Pair& p) {
       p.txn({{}, std::vector<Op>(128, read("a")), {}});
       p.txn({{}, std::vector<Op>(129, read("a")), {}});
       p.txn({{}, {}, std::vector<Op>(129, read("a"))});
       p.txn({std::vector<Compare>(129, created("a", 0)), {read("a")}, {}});
     }},
    {"EmptyKeysAreRefused",
     [](Pair& p) {
       p.put("", "1");
       p.txn({{created("", 0)}, {read("a")}, {}});
       p.remove("");
     }},
    {"EmptyTransaction", [](Pair& p) { p.txn({}); }},

    // Leases.
    {"RevokedLeaseTakesItsKeysInOneRevision",
     [](Pair& p) {
       const int64_t lease = p.grant(60s);
       p.watch(kAll, 0);
       for (const char* key : {"e3", "e1", "e2"}) p.put(key, "x", lease);
       p.revoke(lease);
       p.events();
       p.range(KeyRange::prefix("e"));
       p.revoke(lease);
       p.keepAlive(lease);
       p.timeToLive(lease);
     }},
    {"RevokedLeaseWithoutKeysIsNoRevision",
     [](Pair& p) {
       p.revoke(p.grant(60s));
       p.get("a");
     }},
    {"UnknownLeaseIsRefusedAsAWhole",
     [](Pair& p) {
       p.put("f", "1", 4711);
       p.txn({{}, {PutOp{"f1", "1", 0}, PutOp{"f2", "1", 4711}}, {}});
       p.txn({{created("f1", 1)}, {PutOp{"f2", "1", 4711}}, {read("f1")}});
       p.revoke(4711);
       p.keepAlive(4711);
       p.timeToLive(4711);
     }},
    {"AKeyHangsOnItsLastLease",
     [](Pair& p) {
       const int64_t first = p.grant(60s);
       const int64_t second = p.grant(60s);
       p.put("g1", "1", first);
       p.put("g2", "1", first);
       p.put("g3", "1", first);
       p.put("g1", "2", second);
       p.put("g2", "2");
       p.revoke(first);
       p.range(KeyRange::prefix("g"));
       p.revoke(second);
       p.range(KeyRange::prefix("g"));
     }},
    {"ADeletedKeyHangsOnNoLease",
     [](Pair& p) {
       const int64_t lease = p.grant(60s);
       p.put("j", "1", lease);
       p.remove("j");
       p.put("j", "2");
       p.revoke(lease);
       p.get("j");
     }},
    {"TimeToLive",
     [](Pair& p) {
       const int64_t lease = p.grant(100s);
       p.timeToLive(lease);
       p.keepAlive(lease);
       p.timeToLive(lease);
       p.revoke(lease);
     }},
    {"TooLargeALease", [](Pair& p) { p.grant(9'000'000'001s); }},
    {"ExpiredLeaseTakesItsKeysInOneRevision",
     [](Pair& p) {
       p.watch(kAll, 0);
       const int64_t lease = p.grant(1s);
       p.put("x2", "1", lease);
       p.put("x1", "1", lease);
       p.passUntilExpired(2s);
       p.events();
       p.keepAlive(lease);
       p.range(KeyRange::prefix("x"));
     }},

    // Watches.
    {"WatchFromThePast",
     [](Pair& p) {
       const int64_t start = p.in(1);
       p.put("past", "1");
       p.put("past", "2");
       p.remove("past");
       p.watch(KeyRange::single("past"), start);
       p.events();
       p.watch(KeyRange::single("past"), start + 1);
       p.events();
       p.put("past", "3");
       p.events();
     }},
    {"WatchFromTheFuture",
     [](Pair& p) {
       p.watch(KeyRange::single("future"), p.in(3));
       for (const char* value : {"1", "2", "3", "4"}) p.put("future", value);
       p.events();
     }},
    {"WatchOfSeveralRanges",
     [](Pair& p) {
       const int64_t start = p.in(1);
       for (const char* key : {"ra", "rb", "rc"}) p.put(key, "1");
       p.watch({{KeyRange::single("ra"), start}, {KeyRange{"rb", "rd"}, start + 2}, {KeyRange::prefix("s"), 0}});
       p.txn({{}, {PutOp{"ra", "2", 0}, PutOp{"rc", "2", 0}, PutOp{"s1", "2", 0}, PutOp{"t", "2", 0}}, {}});
       p.events();
     }},
    {"Progress",
     [](Pair& p) {
       p.watch(KeyRange::single("q"), 0);
       p.put("other", "1");
       p.progress();
       p.put("q", "1");
       p.events();
       p.progress();
     }},

    // Compaction.
    {"CompactedRevisionsAreGone",
     [](Pair& p) {
       for (const char* value : {"1", "2", "3", "4"}) p.put("old", value);
       const int64_t at = p.in(-1);
       p.compact(at);
       for (const int64_t revision : {at - 1, at, at + 1}) {
         p.get("old", revision);
         p.txn({{}, {RangeOp{KeyRange::single("old"), {.revision = revision}}}, {}});
         p.watch(KeyRange::single("old"), revision);
         p.events();
       }
       p.compact(at);
       p.compact(p.in(1));
     }},
    {"CompactionLeavesAWatchAlone",
     [](Pair& p) {
       p.watch(KeyRange::single("kept"), 0);
       p.put("kept", "1");
       p.events();
       p.put("other", "1");
       p.put("other", "2");
       p.compact(p.in(0));
       p.put("kept", "2");
       p.events();
     }},

    // Last: what a restart keeps.
    {"RestartKeepsKeysAndGivesLeasesTheirFullTime",
     [](Pair& p) {
       const int64_t lease = p.grant(100s);
       p.put("stays", "1", lease);
       p.restart();
       p.timeToLive(lease);
       p.get("stays");
       p.get("old", p.in(-1));
       p.revoke(lease);
       p.get("stays");
     }},
};

TEST(EtcdModel, DoesAsEtcdDoes) {
  Pair pair;
  for (const Script& script : kScripts) {
    SCOPED_TRACE(script.name);
    script.run(pair);
    if (testing::Test::HasFailure()) return;  // all that follows differs too
  }
}

// --- random scripts ---

class RandomScript {
 public:
  RandomScript(Pair& pair, uint64_t seed) : pair_(pair), random_(seed) {}

  void run(int steps) {
    pair_.watch({{KeyRange{"a", "d"}, 0}, {KeyRange{"e", std::string(1, '\0')}, std::max<int64_t>(1, pair_.in(-2))}});
    for (int i = 0; i < steps && !testing::Test::HasFailure(); ++i) step();
    pair_.events();
  }

 private:
  uint64_t below(uint64_t bound) { return random_() % bound; }
  std::string key() { return std::string(1, static_cast<char>('a' + below(8))); }
  int64_t lease() { return leases_.empty() || below(2) == 0 ? 0 : leases_[below(leases_.size())]; }
  int64_t someRevision() { return std::max<int64_t>(0, pair_.in(static_cast<int64_t>(below(24)) - 22)); }

  KeyRange range() {
    switch (below(4)) {
      case 0:
        return {key(), key()};
      case 1:
        return {key(), std::string(1, '\0')};
      default:
        return KeyRange::single(key());
    }
  }
  RangeOptions options() {
    return {.revision = below(3) == 0 ? someRevision() : 0,
            .limit = static_cast<int64_t>(below(4)),
            .keys_only = below(3) == 0,
            .count_only = below(6) == 0,
            .sort_by_create_revision = below(4) == 0,
            .serializable = below(4) == 0};
  }
  // What a key really has half the time.
  Compare compare() {
    const Target target = std::array{Target::kCreateRevision, Target::kModRevision, Target::kLease}[below(3)];
    Compare made{key(), target, static_cast<int64_t>(below(2))};
    const auto found = pair_.model().range(KeyRange::single(made.key), {});
    if (below(2) == 0 || !found || found->kvs.empty()) return made;
    const KeyValue& kv = found->kvs.front();
    made.number = target == Target::kLease         ? kv.lease
                  : target == Target::kModRevision ? kv.mod_revision
                                                   : kv.create_revision;
    return made;
  }
  Op op() {
    switch (below(3)) {
      case 0:
        return PutOp{key(), std::to_string(below(100)), lease()};
      case 1:
        // With an end: see EtcdModel's hasDuplicates().
        return DeleteOp{below(2) == 0 ? KeyRange{key(), key()} : KeyRange::single(key())};
      default:
        return RangeOp{range(), options()};
    }
  }
  std::vector<Op> ops() {
    std::vector<Op> made;
    for (uint64_t i = below(4); i > 0; --i) made.push_back(op());
    return made;
  }

  void step() {
    switch (below(12)) {
      case 0:
        leases_.push_back(pair_.grant(1000s));
        return;
      case 1:
        if (!leases_.empty()) pair_.keepAlive(leases_[below(leases_.size())]);
        return;
      case 2:
        if (!leases_.empty() && below(2) == 0) pair_.revoke(leases_[below(leases_.size())]);
        return;
      case 3:
      case 4:
        pair_.range(range(), options());
        return;
      case 5:
        pair_.events();
        return;
      case 6:
      case 7:
        pair_.put(key(), std::to_string(below(100)), lease());
        return;
      default:
        TxnRequest request;
        for (uint64_t i = below(3); i > 0; --i) request.compares.push_back(compare());
        request.success = ops();
        request.failure = ops();
        pair_.txn(request);
    }
  }

  Pair& pair_;
  std::mt19937_64 random_;
  std::vector<int64_t> leases_;  // those that were revoked too
};

TEST(EtcdModel, DoesAsEtcdDoesInRandomScripts) {
  Pair pair;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    RandomScript(pair, seed).run(60);
    if (testing::Test::HasFailure()) return;
    if (seed % 10 == 0) pair.compact(pair.in(-10));
  }
}

const StoreError kFull{ErrorCode::kNoSpace, "etcdserver: mvcc: database space exceeded"};

// Puts keys until one is refused. True: it is there all the same.
bool writesWhatIsRefused(const etcd::EtcdServer& server, const std::string& name) {
  const std::string value(1000, 'x');
  etcd::BlockingClient client(server);
  StoreResult<int64_t> answer = 0;
  for (int i = 0; answer; ++i) {
    const std::string key = name + std::to_string(i);
    answer = client.put(key, value);
    if (answer) continue;
    EXPECT_EQ(describe(answer.error()), describe(kFull));
    return client.value(key).has_value();
  }
  return false;
}

TEST(EtcdModel, RefusesWhatStoresMoreWhenTheSpaceIsFull) {
  etcd::EtcdServer::Options options;
  options.extra_arguments = {"--quota-backend-bytes=1048576"};
  Pair pair(options);
  etcd::BlockingClient filler(pair.server());
  const int64_t lease = pair.grant(60s);
  const std::string large(200'000, 'x');
  // etcd sees how much it holds when it next writes to disk, every 100 ms.
  const auto isFull = [&, i = 0]() mutable {
    const TxnRequest request{
        .compares = {}, .success = {PutOp{"k" + std::to_string(i++), large, lease}}, .failure = {}};
    const auto answer = filler.txn(request);
    const bool done = filler.value("k" + std::to_string(i - 1)).has_value();
    if (!answer) pair.model().setNoSpace(true, done ? 1 : 0);
    EXPECT_EQ(describe(answer), describe(pair.model().txn(request)));
    return !answer;
  };
  ASSERT_TRUE(eventually(isFull));
  pair.put("a", large);
  pair.txn({{created("k0", 0)}, {PutOp{"k0", large, 0}}, {read("k")}});
  pair.get("k");
  pair.grant(60s);
  pair.keepAlive(lease);
  pair.revoke(lease);
  pair.range(kAll, {.keys_only = true});
}

// etcd looks at its space before it proposes a request, and again when it applies it: those that are between the two when
// the space ends are done, and answered as if they were not.
TEST(EtcdModel, TheLastOnesThatTheSpaceIsTooSmallForAreDoneAndRefused) {
  constexpr int kMostTries = 60;  // one in three shows it, and fewer on a busy machine
  bool seen = false;
  for (int i = 0; i < kMostTries && !seen; ++i) {
    etcd::EtcdServer::Options options;
    options.extra_arguments = {"--quota-backend-bytes=1048576"};
    const etcd::EtcdServer server(options);
    std::vector<std::future<bool>> writers;
    for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"})
      writers.push_back(std::async(std::launch::async, [&server, name] { return writesWhatIsRefused(server, name); }));
    for (std::future<bool>& writer : writers) seen |= writer.get();
  }
  EXPECT_TRUE(seen);
  EtcdModel model;
  model.setNoSpace(true, 1);
  for (const char* key : {"last", "refused"}) {
    EXPECT_EQ(describe(model.txn({.compares = {}, .success = {PutOp{key, "", 0}}, .failure = {}})),
              describe(StoreResult<void>(tl::unexpected(kFull))));
  }
  EXPECT_EQ(model.range(KeyRange::single("last"), {})->count, 1);
  EXPECT_EQ(model.range(KeyRange::single("refused"), {})->count, 0);
}

// --- what a real etcd shows too rarely to be asked ---

TEST(EtcdModel, ALaggingMemberReadsAndWatchesThePast) {
  EtcdModel model;
  for (const char* value : {"1", "2", "3"})
    ASSERT_TRUE(model.txn({.compares = {}, .success = {PutOp{"a", value, 0}}, .failure = {}}));
  const int64_t applied = model.revision() - 1;
  const auto found = model.range(KeyRange::single("a"), {.serializable = true}, applied);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->revision, applied);
  EXPECT_EQ(found->kvs.at(0).value, "2");
  EXPECT_FALSE(model.range(KeyRange::single("a"), {.revision = applied + 1}, applied));

  WatchModel watch(model, {{KeyRange::single("a"), applied}}, applied);
  EXPECT_EQ(watch.createdRevision(), applied);
  EXPECT_EQ(count(*watch.collect(applied)), 1u);
  EXPECT_FALSE(watch.hasNews(applied));
  EXPECT_EQ(watch.progress(applied).revision, applied);
  EXPECT_EQ(count(*watch.collect(applied + 1)), 1u);
}

TEST(EtcdModel, ABatchThatIsCutInARevisionIsResumedInIt) {
  EtcdModel model;
  const int64_t start = model.revision() + 1;
  ASSERT_TRUE(model.txn({{}, {PutOp{"a", "", 0}, PutOp{"b", "", 0}, PutOp{"c", "", 0}}, {}}));
  WatchModel watch(model, {{kAll, start}}, model.revision());
  auto batches = watch.collect(model.revision(), 2);
  ASSERT_EQ(count(*batches), 2u);
  EXPECT_EQ(batches->front().resume_revision, start);
  batches = watch.collect(model.revision(), 2);
  ASSERT_EQ(count(*batches), 1u);
  EXPECT_EQ(batches->front().resume_revision, start + 1);
}

TEST(EtcdModel, ALeaseThatHasEndedIsNotAnsweredUntilItIsRevoked) {
  EtcdModel model;
  const EtcdModel::Time start;
  ASSERT_TRUE(model.leaseGrant(7, 10s, start));
  ASSERT_TRUE(model.txn({{}, {PutOp{"a", "", 7}}, {}}));
  EXPECT_EQ(model.nextExpiry(), start + 10s);
  EXPECT_FALSE(model.leaseKeepAlive(7, start + 10s));
  model.changeLeader(start + 10s);
  EXPECT_TRUE(model.leaseKeepAlive(7, start + 10s)) << "a new leader has given it its time again";
  EXPECT_EQ(model.revokeExpired(start + 20s), 1u);
  EXPECT_FALSE(model.hasLease(7));
  EXPECT_EQ(model.history().back().type, WatchEvent::Type::kDelete);
}

TEST(EtcdModel, ARestoredBackupHasWhatWasSaved) {
  EtcdModel model;
  ASSERT_TRUE(model.leaseGrant(7, 10s, {}));
  ASSERT_TRUE(model.txn({{}, {PutOp{"a", "1", 7}}, {}}));
  const EtcdModel backup = model;
  ASSERT_TRUE(model.txn({{}, {PutOp{"a", "2", 7}}, {}}));
  ASSERT_TRUE(model.leaseRevoke(7));
  const EtcdModel::Time later{100s};
  EtcdModel restored = EtcdModel::restored(backup, 2, later);
  EXPECT_EQ(restored.clusterId(), 2u);
  EXPECT_EQ(restored.revision(), backup.revision());
  EXPECT_EQ(restored.range(KeyRange::single("a"), {})->kvs.at(0).value, "1");
  EXPECT_EQ(restored.revokeExpired(later + 10s), 0u);
  EXPECT_EQ(restored.revokeExpired(later + 11s), 1u);
}

// What is there now is kept in order, so that a page costs its length; the past is looked for key by key.
TEST(EtcdModel, ReadsTheSameOfThePresentAndOfThePast) {
  EtcdModel model;
  std::mt19937 random(1);
  const auto key = [&random] { return fmt::format("k{}", random() % 40); };
  const std::vector<KeyRange> ranges{{"k", "l"}, {"k2", "k3"}, {"k3", std::string(1, '\0')}, {"k5", ""}, {"l", "k"}};
  for (int i = 0; i < 400; ++i) {
    TxnRequest request;
    if (random() % 3 == 0) {
      request.success.emplace_back(DeleteOp{KeyRange::single(key())});
    } else {
      request.success.emplace_back(PutOp{key(), std::to_string(i), 0});
    }
    ASSERT_TRUE(model.txn(request));
    EtcdModel later = model;
    for (int k = 0; k < 40; ++k) {
      TxnRequest change;
      change.success.emplace_back(PutOp{fmt::format("k{}", k), "later", 0});
      ASSERT_TRUE(later.txn(change));
    }
    for (const KeyRange& range : ranges) {
      for (const RangeOptions& options : {RangeOptions{}, RangeOptions{.limit = 3}, RangeOptions{.count_only = true}}) {
        EXPECT_EQ(describe(model.range(range, options)), describe(later.range(range, options, model.revision())));
      }
    }
  }
}

}  // namespace
}  // namespace idetcd::simulation
