// Our record table beside liburcu's lock-free table and a mutexed std::unordered_map (record_tables.h).
//   LookUp<Table>/<names>/<hits>             one name at a time, in random order
//   LookUpBatch<Table>/<names>/<hits>        64 at a time, as a loop does
//   Insert, Replace, Erase<Table>/<names>    the writer's side
// Needs 3 GB for 10,000,000 names. The table of a size is made once for the benchmarks that follow each other.
// Look-ups beside a writer: beside_writer.cc.
#include <memory>
#include <vector>

#include <benchmark/benchmark.h>

#include "micro/table_load.h"

namespace idetcd::bench {
namespace {

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
