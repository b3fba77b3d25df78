// From the bytes of a query to its folded, hashed name, and the parse as a whole.
//   NameFoldAndHash/<bytes>   the name alone
//   ParseQuery/<edns>          the whole query
#include <algorithm>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "common/names.h"
#include "dns/query.h"
#include "load/query_source.h"
#include "micro/prepared_queries.h"

namespace idetcd::bench {
namespace {

// A wire name of `size` bytes with labels of at most 63, in mixed case.
std::vector<uint8_t> longName(size_t size) {
  std::vector<uint8_t> name;
  while (name.size() + 1 < size) {
    const size_t label = std::min<size_t>(dns::kMaxLabelLength, size - name.size() - 2);
    name.push_back(static_cast<uint8_t>(label));
    for (size_t i = 0; i < label; ++i) name.push_back(i % 2 == 0 ? 'A' : 'z');
  }
  name.push_back(0);
  return name;
}

void NameFoldAndHash(benchmark::State& state) {
  std::vector<uint8_t> name = longName(static_cast<size_t>(state.range(0)));
  const size_t size = name.size();
  name.resize(size + dns::kReadSlack);
  uint8_t folded[dns::kMaxNameLength + 1 + dns::kReadSlack];
  for (auto _ : state) {
    dns::foldCase(name.data(), size, folded);
    benchmark::DoNotOptimize(hashBytes(folded, size, 1));
  }
}
BENCHMARK(NameFoldAndHash)->Arg(8)->Arg(20)->Arg(64)->Arg(255);

void ParseQuery(benchmark::State& state) {
  PreparedQueries queries({.names = 1000, .edns = state.range(0) != 0});
  dns::Query query;
  size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(dns::parseQuery(queries.query(i), queries.size(i), 1, query));
    i = (i + 1) % PreparedQueries::kCount;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(ParseQuery)->ArgName("edns")->Arg(0)->Arg(1);

}  // namespace
}  // namespace idetcd::bench
