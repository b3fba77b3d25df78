// From a received batch to its answers, without the sockets: the three passes of the router.
//   AnswerBatch/<names>/<aaaa percent>/<edns>/<nxdomain percent>
#include <memory>

#include <benchmark/benchmark.h>

#include "common/served_names.h"
#include "micro/prepared_queries.h"
#include "net/udp_socket.h"

namespace idetcd::bench {
namespace {

constexpr size_t kBatch = net::UdpBatch::kCapacity;

size_t answerBatch(const resolve::Router& router, PreparedQueries& queries, size_t first,
                   std::vector<resolve::Job>& jobs, resolve::Request& request) {
  size_t bytes = 0;
  for (size_t i = 0; i < kBatch; ++i) router.begin(jobs[i], queries.receive(first + i), queries.size(first + i));
  for (size_t i = 0; i < kBatch; ++i) router.prefetch(jobs[i]);
  for (size_t i = 0; i < kBatch; ++i) bytes += router.answer(jobs[i], request).size;
  return bytes;
}

void AnswerBatch(benchmark::State& state) {
  ServedNames served(static_cast<uint32_t>(state.range(0)), true);
  PreparedQueries queries({.names = static_cast<uint32_t>(state.range(0)),
                           .aaaa_percent = static_cast<uint32_t>(state.range(1)),
                           .nxdomain_percent = static_cast<uint32_t>(state.range(3)),
                           .edns = state.range(2) != 0});
  std::vector<resolve::Job> jobs(kBatch);
  const SocketAddress local{.ip = IpAddress::v4({127, 0, 0, 1}), .port = 53};
  sockaddr_storage source;
  local.toSockaddr(&source);
  resolve::Request request;
  request.source = reinterpret_cast<const sockaddr*>(&source);
  request.local = &local;
  request.response_limit = dns::kMinUdpPayload;
  records::EpochDomain::Reader reader(served.epochs());
  size_t first = 0;
  for (auto _ : state) {
    const records::ReadSection section(reader);
    benchmark::DoNotOptimize(answerBatch(*served.router(), queries, first, jobs, request));
    first = (first + kBatch) % PreparedQueries::kCount;
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kBatch));
}
BENCHMARK(AnswerBatch)
    ->ArgNames({"names", "aaaa", "edns", "nxdomain"})
    ->Args({1'000, 0, 0, 0})
    ->Args({1'000, 50, 1, 0})
    ->Args({1'000, 0, 0, 100})
    ->Args({1'000'000, 0, 0, 0});

}  // namespace
}  // namespace idetcd::bench
