// How long after etcd has acknowledged a put does the server still give the old answer?
//
// For each put: wait for etcd's answer, then ask the server over UDP from several ports, again and again, until every
// one has got the new address. Where the server has several loops, the kernel spreads those ports over them, so that
// all loops are asked.
#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <future>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "common/arguments.h"
#include "common/names.h"
#include "dns/wire.h"
#include "load/etcd_client.h"
#include "load/histogram.h"

namespace idetcd::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kUsage[] =
    "usage: put_latency --endpoint URL --port N [--puts 500] [--sockets 8] [--pause-us 1000] [--json]\n"
    "Changes the address of putlatency.tf.local.\n";
constexpr char kLabel[] = "putlatency";
constexpr int kAnswerTimeoutMs = 1000;

// One client port of the server's.
class AnswerProbe {
 public:
  explicit AnswerProbe(uint16_t port) : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) std::perror("connect");
    query_[2] = query_[5] = 1;
    query_size_ = dns::kHeaderSize + writeName(kLabel, sizeof(kLabel) - 1, query_ + dns::kHeaderSize);
    query_[query_size_ + 1] = query_[query_size_ + 3] = 1;  // A, IN
    query_size_ += 4;
  }
  ~AnswerProbe() { close(fd_); }
  AnswerProbe(const AnswerProbe&) = delete;
  AnswerProbe& operator=(const AnswerProbe&) = delete;

  // One query and its answer: whether it ends in this address.
  bool sees(std::array<uint8_t, 4> address) {
    dns::store16(query_, ++id_);
    uint8_t answer[512];
    pollfd readable{.fd = fd_, .events = POLLIN, .revents = 0};
    if (send(fd_, query_, query_size_, 0) < 0 || poll(&readable, 1, kAnswerTimeoutMs) != 1) return false;
    const ssize_t size = recv(fd_, answer, sizeof(answer), 0);
    return size > 16 && dns::load16(answer) == id_ && dns::load16(answer + 6) == 1 &&
           std::memcmp(answer + size - 4, address.data(), 4) == 0;
  }

 private:
  int fd_;
  uint16_t id_ = 0;
  uint8_t query_[64] = {};
  size_t query_size_;
};

struct Outcome {
  Histogram latency;
  uint64_t never = 0;  // not within kGiveUp
  bool failed = false;
};

constexpr std::chrono::seconds kGiveUp{5};

// Nanoseconds until all have the new answer; 0 if it never came.
uint64_t timeUntilSeen(std::vector<std::unique_ptr<AnswerProbe>>& probes, std::array<uint8_t, 4> address) {
  const auto start = Clock::now();
  for (const auto& probe : probes) {
    while (!probe->sees(address)) {
      if (Clock::now() - start > kGiveUp) return 0;
    }
  }
  return static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - start).count());
}

// The thread is ours alone: between two puts it may block in the queries.
runtime::Task<void> measure(etcd::Client& client, std::vector<std::unique_ptr<AnswerProbe>>& probes, uint32_t puts,
                            std::chrono::microseconds pause, Outcome& outcome, std::promise<void>& done) {
  for (uint32_t i = 1; i <= puts; ++i) {
    store::TxnRequest put;
    put.success.emplace_back(nodePut(fmt::format("{}.{}", kLabel, kZone), i, false));
    const auto result = co_await client.txn(std::move(put));
    if (!result) {
      fmt::print(stderr, "put_latency: {}\n", result.error().message);
      outcome.failed = true;
      break;
    }
    const uint64_t nanoseconds = timeUntilSeen(probes, addressV4(i));
    if (nanoseconds == 0) ++outcome.never;
    outcome.latency.add(nanoseconds);
    if (!co_await client.thread().sleepFor(pause)) break;
  }
  done.set_value();
}

void report(const Outcome& outcome, bool json) {
  const char* format =
      json ? "{{\"puts\": {}, \"never\": {}, \"p50_ms\": {:.3f}, \"p99_ms\": {:.3f}, \"p99_low_ms\": {:.3f}, "
             "\"p99_high_ms\": {:.3f}, \"max_ms\": {:.3f}}}\n"
           : "{} puts, {} never seen; visible after p50 {:.3f} ms, p99 {:.3f} ms ({:.3f} to {:.3f}), at most {:.3f} "
             "ms\n";
  const auto quantile = [&](double q) { return outcome.latency.quantile(std::clamp(q, 0.0, 1.0)) / 1e6; };
  // 95 %: the rank of the p99 is a binomial variable, and its deviation says which ranks it may have.
  const double deviation =
      1.96 * std::sqrt(0.99 * 0.01 / static_cast<double>(std::max<uint64_t>(outcome.latency.total(), 1)));
  fmt::print(fmt::runtime(format), outcome.latency.total(), outcome.never, quantile(0.5), quantile(0.99),
             quantile(0.99 - deviation), quantile(0.99 + deviation), quantile(1));
}

}  // namespace
}  // namespace idetcd::bench

int main(int argc, char** argv) {
  using namespace idetcd;
  bench::Arguments arguments(argc, argv, bench::kUsage);
  const etcd::Client::Options options = bench::etcdOptions(arguments);
  const auto port = arguments.number<uint16_t>("--port", 53);
  const auto puts = arguments.number<uint32_t>("--puts", 500);
  const auto sockets = arguments.number<size_t>("--sockets", 8);
  const std::chrono::microseconds pause(arguments.number<int64_t>("--pause-us", 1000));
  const bool json = arguments.flag("--json");
  arguments.finish();

  std::vector<std::unique_ptr<bench::AnswerProbe>> probes;
  for (size_t i = 0; i < sockets; ++i) probes.push_back(std::make_unique<bench::AnswerProbe>(port));
  bench::Outcome outcome;
  std::promise<void> done;
  bench::EtcdClient client(options);
  (*client).thread().spawn(bench::measure(*client, probes, puts, pause, outcome, done));
  done.get_future().wait();
  bench::report(outcome, json);
  return outcome.failed || outcome.never > 0 ? 1 : 0;
}
