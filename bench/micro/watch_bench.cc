// The writer's side: from etcd's keys and values to published records.
//   DecodeKeyAndValue         judging one key and its JSON value
//   ApplyPuts/<names>         watch events that change random names' addresses
//   ApplyDeleteAndPut/<names> a name that goes and comes back
//   LoadSnapshot/<names>      the first load; per name
#include <vector>

#include <benchmark/benchmark.h>

#include "common/names.h"
#include "common/random.h"
#include "naming/record_codec.h"
#include "naming/replica.h"

namespace idetcd::bench {
namespace {

using store::KeyValue;
using store::WatchEvent;

KeyValue keyValue(uint32_t number, uint32_t address, int64_t revision) {
  const naming::NodeRecord record{.ipv4 = IpAddress::v4(addressV4(address)),
                                  .ipv6 = {},
                                  .port = "53",
                                  .id = "0b7f6c0e-6d0e-4f36-9a3c-2d1c9c0f6f11"};
  return {.key = numberedName(number),
          .value = naming::encodeRecord(record),
          .create_revision = 1,
          .mod_revision = revision};
}

// A mirror without its watch.
struct Mirror {
  Mirror() : store(epochs, {.zone = dns::Name::parse(kZone).value(), .addresses = {}, .hash_seed = 1}) {}

  void load(uint32_t names) {
    replica.beginSnapshot(naming::Replica::History::kSame);
    for (uint32_t i = 1; i <= names; ++i) replica.addToSnapshot({keyValue(i, i, 1)});
    replica.endSnapshot(1);
  }

  records::EpochDomain epochs;
  records::RecordStore store;
  naming::OwnKeyObserver own_key;
  naming::Counters counters;
  SystemClock clock;
  naming::Replica replica{store, own_key, counters, clock, {}, {}};
};

void DecodeKeyAndValue(benchmark::State& state) {
  const KeyValue kv = keyValue(123456, 1, 1);
  for (auto _ : state) {
    benchmark::DoNotOptimize(naming::decodeKey(kv.key));
    benchmark::DoNotOptimize(naming::decodeRecord(kv.value));
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(DecodeKeyAndValue);

constexpr size_t kEvents = 1024;

void ApplyPuts(benchmark::State& state) {
  const auto names = static_cast<uint32_t>(state.range(0));
  Mirror mirror;
  mirror.load(names);
  Random random;
  std::vector<WatchEvent> events(kEvents);
  for (WatchEvent& event : events) event.kv = keyValue(1 + random.below(names), random.below(kMaxNames), 2);
  int64_t revision = 1;
  for (auto _ : state) {
    for (WatchEvent& event : events) event.kv.mod_revision = ++revision;
    mirror.replica.apply(events);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kEvents));
}
BENCHMARK(ApplyPuts)->ArgName("names")->Arg(1'000)->Arg(1'000'000);

void ApplyDeleteAndPut(benchmark::State& state) {
  const auto names = static_cast<uint32_t>(state.range(0));
  Mirror mirror;
  mirror.load(names);
  Random random;
  std::vector<WatchEvent> events;
  for (size_t i = 0; i < kEvents / 2; ++i) {
    const uint32_t number = 1 + random.below(names);
    events.push_back({WatchEvent::Type::kDelete, keyValue(number, 1, 0)});
    events.push_back({WatchEvent::Type::kPut, keyValue(number, number, 0)});
  }
  int64_t revision = 1;
  for (auto _ : state) {
    for (WatchEvent& event : events) event.kv.mod_revision = ++revision;
    mirror.replica.apply(events);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kEvents));
}
BENCHMARK(ApplyDeleteAndPut)->ArgName("names")->Arg(1'000)->Arg(1'000'000);

void LoadSnapshot(benchmark::State& state) {
  const auto names = static_cast<uint32_t>(state.range(0));
  std::vector<KeyValue> page;
  for (uint32_t i = 1; i <= names; ++i) page.push_back(keyValue(i, i, 1));
  for (auto _ : state) {
    Mirror mirror;
    mirror.replica.beginSnapshot(naming::Replica::History::kSame);
    mirror.replica.addToSnapshot(page);
    benchmark::DoNotOptimize(mirror.replica.endSnapshot(1));
  }
  state.SetItemsProcessed(state.iterations() * names);
}
BENCHMARK(LoadSnapshot)->ArgName("names")->Arg(1'000)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace idetcd::bench
