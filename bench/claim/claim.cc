// N nodes that start at the same moment claim their names from one etcd: how many requests each needs, how long it
// takes until all have a name, and whether the names are the first N, each once.
//
// The claimers are those of the server (naming/claim.h) with its time-outs, leases and limits, in one process and over
// a few shared connections: what is measured is etcd's work and the protocol, not N processes on one machine. They have
// no mirror, so no time goes to N watches.
#include "naming/claim.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "common/arguments.h"
#include "etcd/client.h"
#include "etcd/completion_thread.h"
#include "naming/record_codec.h"
#include "node/uuid.h"
#include "support/etcd_server.h"

namespace idetcd::bench {
namespace {

constexpr char kUsage[] =
    "usage: claim_bench [--nodes N] [--endpoint URL] [--members 1] [--connections 16] [--lease 20]\n"
    "                   [--most-requests 0]\n"
    "Without --nodes: 100, then 1,000, then 5,000 of them. Without --endpoint it starts an etcd of so many members.\n"
    "Ends with 1 if two nodes took one name, a name below N was left out, or the nodes needed more requests on "
    "average\n"
    "than --most-requests (0: any number).\n";
constexpr char kPattern[] = "worker{{.ID}}.tf.local.";

using Clock = std::chrono::steady_clock;
constexpr std::chrono::nanoseconds kShort = std::chrono::milliseconds(1);
constexpr std::chrono::nanoseconds kLong = std::chrono::milliseconds(500);

// One node, as far as the claim is concerned.
struct Claimer {
  Claimer(etcd::CompletionThread& thread, etcd::Client& client, int64_t nodes, std::chrono::seconds lease)
      : lifetime(thread),
        trouble({}),
        round_trip(lease, {}),
        context{thread, client, lifetime, trouble, counters, random, jitter, round_trip, {}},
        claim(context, options(nodes, lease), own_key) {}

  naming::Claim::Options options(int64_t nodes, std::chrono::seconds lease) {
    return {
        .pattern = slots::NamePattern::parse(kPattern, nodes).value(),
        .lease = lease,
        .record = {.ipv4 = IpAddress::v4({192, 0, 2, 1}), .ipv6 = {}, .port = "53", .id = node::randomUuid(random)}};
  }

  KernelRandom random;
  naming::Counters counters;
  naming::Jitter jitter{random};
  naming::Lifetime lifetime;
  naming::ErrorLogThrottle trouble;
  naming::RoundTrip round_trip;
  naming::Context context;
  naming::OwnKeyObserver own_key;
  naming::Claim claim;
  Clock::time_point done;
};

struct Result {
  int64_t nodes = 0;
  double requests_per_node = 0;
  uint64_t most_requests = 0;
  double median_s = 0;
  double all_s = 0;
  uint64_t retries = 0;    // slots that another node had taken first
  int64_t collisions = 0;  // names that two nodes hold
  int64_t holes = 0;       // of 1..N
  uint64_t lost = 0;       // leases that ended under their owner
};

class Run {
 public:
  Run(const std::vector<std::string>& endpoints, int64_t nodes, int connections, std::chrono::seconds lease) {
    etcd::Client::Options options;
    options.endpoints = endpoints;
    for (int i = 0; i < connections; ++i)
      clients_.push_back(std::make_unique<etcd::Client>(thread_, options, Logger{}));
    for (int64_t i = 0; i < nodes; ++i) {
      etcd::Client& client = *clients_[static_cast<size_t>(i) % clients_.size()];
      claimers_.push_back(std::make_unique<Claimer>(thread_, client, nodes, lease));
    }
  }

  Result measure() {
    left_ = keepers_ = claimers_.size();
    const Clock::time_point begin = Clock::now();
    for (const auto& claimer : claimers_) thread_.spawn(claimOne(*claimer));
    all_done_.get_future().wait();
    keepers_done_.get_future().wait();
    Result result = evaluate(begin);
    std::promise<void> released;
    thread_.spawn(releaseAll(released));
    released.get_future().wait();
    thread_.stop();
    return result;
  }

 private:
  runtime::Task<void> claimOne(Claimer& claimer) {
    co_await claimer.claim.run(0, naming::Claim::WhenFull::kGiveUp);
    claimer.done = Clock::now();
    if (--left_ == 0) all_done_.set_value();
    co_await keepAlive(claimer);
  }

  // As the server does: three times within the lease.
  runtime::Task<void> keepAlive(Claimer& claimer) {
    while (left_ > 0) {
      const std::chrono::nanoseconds ttl = claimer.claim.lease().ttl;
      const std::chrono::nanoseconds delay = claimer.claim.lease().sent_at + ttl / 3 - BootClock::now();
      const bool go_on = co_await thread_.sleepFor(std::clamp<std::chrono::nanoseconds>(delay, kShort, kLong));
      if (!go_on) break;
      if (delay > kLong) continue;  // looks again whether all is over
      const auto renewed = co_await claimer.context.store.leaseKeepAlive(claimer.claim.lease().id, ttl / 5);
      if (renewed) claimer.claim.renewed(*renewed);
      if (!renewed && renewed.error().code == ErrorCode::kLeaseNotFound) ++leases_lost_;
    }
    if (--keepers_ == 0) keepers_done_.set_value();
  }

  runtime::Task<void> releaseAll(std::promise<void>& released) {
    for (const auto& claimer : claimers_) co_await claimer->claim.release();
    released.set_value();
  }

  Result evaluate(Clock::time_point begin) const {
    Result result{.nodes = static_cast<int64_t>(claimers_.size())};
    std::vector<double> seconds;
    std::set<int64_t> ids;
    uint64_t requests = 0;
    for (const auto& claimer : claimers_) {
      seconds.push_back(std::chrono::duration<double>(claimer->done - begin).count());
      requests += claimer->counters.claim_requests.value();
      result.most_requests = std::max(result.most_requests, claimer->counters.claim_requests.value());
      result.retries += claimer->counters.claim_collisions.value();
      if (!ids.insert(claimer->claim.slot().id).second) ++result.collisions;
    }
    for (int64_t id = 1; id <= result.nodes; ++id) result.holes += ids.contains(id) ? 0 : 1;
    std::sort(seconds.begin(), seconds.end());
    result.requests_per_node = static_cast<double>(requests) / static_cast<double>(result.nodes);
    result.median_s = seconds[seconds.size() / 2];
    result.all_s = seconds.back();
    result.lost = leases_lost_;
    return result;
  }

  const std::unique_ptr<etcd::CompletionThread> owned_thread_ = etcd::CompletionThread::make().value();
  etcd::CompletionThread& thread_ = *owned_thread_;
  std::vector<std::unique_ptr<etcd::Client>> clients_;
  std::vector<std::unique_ptr<Claimer>> claimers_;
  // Completion thread only.
  size_t left_ = 0;     // without a name
  size_t keepers_ = 0;  // at work
  uint64_t leases_lost_ = 0;
  std::promise<void> all_done_;
  std::promise<void> keepers_done_;
};

}  // namespace
}  // namespace idetcd::bench

int main(int argc, char** argv) {
  using namespace idetcd;
  bench::Arguments arguments(argc, argv, bench::kUsage);
  const auto only = arguments.number<int64_t>("--nodes", 0);
  const std::string endpoint = arguments.text("--endpoint", "");
  const auto members = arguments.number<size_t>("--members", 1);
  const auto connections = arguments.number<int>("--connections", 16);
  const std::chrono::seconds lease(arguments.number<int64_t>("--lease", 20));
  const auto most_requests = arguments.number<int64_t>("--most-requests", 0);
  arguments.finish();
  if (only < 0 || most_requests < 0 || members < 1 || connections < 1 || lease.count() < 1) {
    std::fputs(bench::kUsage, stderr);
    return 2;
  }

  fmt::print("{} processors, {} etcd member{}, {} connections, lease {} s\n", std::thread::hardware_concurrency(),
             members, members == 1 ? "" : "s", connections, lease.count());
  fmt::print("{:>6} {:>14} {:>5} {:>9} {:>8} {:>8} {:>11} {:>6} {:>11}\n", "nodes", "requests/node", "most", "median s",
             "all s", "retries", "collisions", "holes", "lost leases");
  bool good = true;
  const std::vector<int64_t> sizes = only > 0 ? std::vector<int64_t>{only} : std::vector<int64_t>{100, 1000, 5000};
  for (const int64_t nodes : sizes) {
    std::unique_ptr<test_support::EtcdCluster> cluster;
    if (endpoint.empty()) cluster = std::make_unique<test_support::EtcdCluster>(members);
    const std::vector<std::string> endpoints = cluster ? cluster->endpoints() : std::vector<std::string>{endpoint};
    const bench::Result result = bench::Run(endpoints, nodes, connections, lease).measure();
    fmt::print("{:>6} {:>14.2f} {:>5} {:>9.2f} {:>8.2f} {:>8} {:>11} {:>6} {:>11}\n", result.nodes,
               result.requests_per_node, result.most_requests, result.median_s, result.all_s, result.retries,
               result.collisions, result.holes, result.lost);
    std::fflush(stdout);
    good = good && result.collisions == 0 && result.holes == 0;
    good = good && (most_requests == 0 || result.requests_per_node <= static_cast<double>(most_requests));
  }
  return good ? 0 : 1;
}
