// Our record table beside liburcu's lock-free table and a mutexed std::unordered_map (record_tables.h).
//   LookUp<Table>/<names>/<hits>             one name at a time, in random order
//   LookUpBatch<Table>/<names>/<hits>        64 at a time, as a loop does
//   LookUpBesideWriter<Table>/<names>/<changes a second>
//   Insert, Replace, Erase<Table>/<names>    the writer's side
// Needs 3 GB for 10,000,000 names. The table of a size is made once for the benchmarks that follow each other.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "common/names.h"
#include "common/random.h"
#include "micro/record_tables.h"

namespace idetcd::bench {
namespace {

constexpr size_t kProbes = size_t{1} << 20;  // a power of two

Key keyOf(uint32_t number) {
  Key key{};
  key.size = static_cast<uint8_t>(writeNumberedName(number, key.octets.data()));
  return key;
}

// The numbers 1 … names in an order that is no order.
std::vector<uint32_t> shuffled(uint32_t names) {
  std::vector<uint32_t> numbers(names);
  std::iota(numbers.begin(), numbers.end(), 1);
  Random random;
  for (uint32_t i = names; i > 1; --i) std::swap(numbers[i - 1], numbers[random.below(i)]);
  return numbers;
}

// What is asked for: names that are there, or the names of as many numbers further up.
std::vector<Key> probes(uint32_t names, bool hits) {
  std::vector<Key> keys(kProbes);
  Random random(7);
  for (Key& key : keys) key = keyOf(1 + random.below(names) + (hits ? 0 : names));
  return keys;
}

template <typename Table>
void fill(Table& table, uint32_t names) {
  for (const uint32_t number : shuffled(names)) table.put(keyOf(number), addressV4(number));
}

// The last table that was asked for stays until another one is.
template <typename Table>
Table& tableOf(uint32_t names) {
  static std::unique_ptr<Table> table;
  static uint32_t size = 0;
  if (size != names) {
    table.reset();
    table = std::make_unique<Table>(names);
    fill(*table, names);
    size = names;
  }
  return *table;
}

template <typename Table>
void LookUp(benchmark::State& state) {
  const auto names = static_cast<uint32_t>(state.range(0));
  typename Table::Reader reader(tableOf<Table>(names));
  const std::vector<Key> keys = probes(names, state.range(1) != 0);
  size_t next = 0;
  for (auto _ : state) {
    reader.enter();
    benchmark::DoNotOptimize(reader.lookUp(keys[next]));
    reader.leave();
    next = (next + 1) % kProbes;
  }
  state.SetItemsProcessed(state.iterations());
}

template <typename Table>
void lookUpBatches(benchmark::State& state, typename Table::Reader& reader, const std::vector<Key>& keys) {
  size_t next = 0;
  for (auto _ : state) {
    reader.enter();
    benchmark::DoNotOptimize(reader.lookUpBatch(&keys[next], kBatchSize));
    reader.leave();
    next = (next + kBatchSize) % kProbes;
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kBatchSize));
}

template <typename Table>
void LookUpBatch(benchmark::State& state) {
  const auto names = static_cast<uint32_t>(state.range(0));
  typename Table::Reader reader(tableOf<Table>(names));
  lookUpBatches<Table>(state, reader, probes(names, state.range(1) != 0));
}

// Replaces random records at a steady rate until it is destroyed.
template <typename Table>
class Writer {
 public:
  Writer(Table& table, uint32_t names, int64_t changes_a_second)
      : thread_([this, &table, names, changes_a_second] { run(table, names, changes_a_second); }) {}
  ~Writer() {
    stop_.store(true, std::memory_order_relaxed);  // nothing hangs on it but the end
    thread_.join();
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  int64_t changes() const { return changes_.load(std::memory_order_relaxed); }

 private:
  void run(Table& table, uint32_t names, int64_t changes_a_second) {
    const typename Table::WriterThread thread;
    constexpr auto kTick = std::chrono::milliseconds(1);
    Random random(99);
    auto tick = std::chrono::steady_clock::now();
    while (!stop_.load(std::memory_order_relaxed)) {
      for (int64_t i = 0; i < changes_a_second / 1000; ++i) {
        table.put(keyOf(1 + random.below(names)), addressV4(static_cast<uint32_t>(random.next()) | 1));
        changes_.fetch_add(1, std::memory_order_relaxed);
      }
      tick += kTick;
      thread.pause();
      std::this_thread::sleep_until(tick);
      thread.resume();
    }
  }

  std::atomic<bool> stop_{false};
  std::atomic<int64_t> changes_{0};
  std::thread thread_;
};

template <typename Table>
void LookUpBesideWriter(benchmark::State& state) {
  const auto names = static_cast<uint32_t>(state.range(0));
  Table& table = tableOf<Table>(names);
  const std::vector<Key> keys = probes(names, true);
  typename Table::Reader reader(table);
  const Writer<Table> writer(table, names, state.range(1));
  const auto start = std::chrono::steady_clock::now();
  lookUpBatches<Table>(state, reader, keys);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  state.counters["changes/s"] = static_cast<double>(writer.changes()) / elapsed.count();
}

template <typename Table>
void Insert(benchmark::State& state) {
  const auto names = static_cast<uint32_t>(state.range(0));
  const std::vector<uint32_t> numbers = shuffled(names);
  for (auto _ : state) {
    state.PauseTiming();
    auto table = std::make_unique<Table>(0);
    state.ResumeTiming();
    for (const uint32_t number : numbers) table->put(keyOf(number), addressV4(number));
    state.PauseTiming();
    table.reset();
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * names);
}

template <typename Table>
void Replace(benchmark::State& state) {
  const auto names = static_cast<uint32_t>(state.range(0));
  Table& table = tableOf<Table>(names);
  Random random(5);
  for (auto _ : state) table.put(keyOf(1 + random.below(names)), addressV4(7));
  state.SetItemsProcessed(state.iterations());
}

// A name goes and comes back: two changes an iteration.
template <typename Table>
void EraseAndInsert(benchmark::State& state) {
  const auto names = static_cast<uint32_t>(state.range(0));
  Table& table = tableOf<Table>(names);
  Random random(6);
  for (auto _ : state) {
    const uint32_t number = 1 + random.below(names);
    table.erase(keyOf(number));
    table.put(keyOf(number), addressV4(number));
  }
  state.SetItemsProcessed(state.iterations() * 2);
}

template <typename Table>
void registerAll(const std::string& table) {
  const auto add = [&table](const char* name, void (*function)(benchmark::State&)) {
    return benchmark::RegisterBenchmark((std::string(name) + '<' + table + '>').c_str(), function);
  };
  for (const int64_t names : {1'000, 1'000'000, 10'000'000}) {
    for (const int64_t hits : {1, 0}) {
      add("LookUp", &LookUp<Table>)->ArgNames({"names", "hit"})->Args({names, hits});
      add("LookUpBatch", &LookUpBatch<Table>)->ArgNames({"names", "hit"})->Args({names, hits});
    }
  }
  for (const int64_t changes : {0, 100'000}) {
    add("LookUpBesideWriter", &LookUpBesideWriter<Table>)
        ->ArgNames({"names", "changes"})
        ->Args({1'000'000, changes})
        ->UseRealTime();
  }
  for (const int64_t names : {1'000, 1'000'000}) {
    add("Replace", &Replace<Table>)->ArgName("names")->Arg(names);
    add("EraseAndInsert", &EraseAndInsert<Table>)->ArgName("names")->Arg(names);
    add("Insert", &Insert<Table>)->ArgName("names")->Arg(names)->Unit(benchmark::kMillisecond);
  }
}

[[maybe_unused]] const bool kRegistered = [] {
  registerAll<IdetcdTable>("idetcd");
  registerAll<UrcuTable>("urcu");
  registerAll<MutexMap>("mutex");
  return true;
}();

}  // namespace
}  // namespace idetcd::bench
