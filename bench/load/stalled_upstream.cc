// What clients of a server see while thousands of its questions wait for an upstream that never answers: how long a
// name of the cluster takes, one query at a time, first with nothing else under way and then beside the stalled ones,
// and what those who asked for the stalled names are told, and when.
//
// The questions are kept at the same number: whichever is answered is replaced by a new one. They are sent and received
// between two measured queries, never while one is under way, so that only what the server does is measured.
#include <array>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <netinet/in.h>
#include <sys/socket.h>
#include <vector>

#include <fmt/format.h>

#include "common/arguments.h"
#include "common/names.h"
#include "common/random.h"
#include "load/answer_check.h"
#include "load/histogram.h"
#include "load/query_source.h"

namespace idetcd::bench {
namespace {

constexpr char kUsage[] =
    "usage: stalled_upstream --port N [--in-flight 10000] [--seconds 6] [--names 1000] [--zone example.net.] [--json]\n"
    "The server must answer worker1 ... workerN.tf.local. and forward the names of --zone to an upstream that is "
    "silent.\n"
    "--seconds: how long it is measured, idle and again when all are in flight.\n";

constexpr uint64_t kSecond = 1'000'000'000;
constexpr size_t kMaxSockets = 64;
constexpr uint64_t kAnswerWithin = 5 * kSecond;

uint64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * kSecond + static_cast<uint64_t>(t.tv_nsec);
}

int connectTo(uint16_t port, bool blocking) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | (blocking ? 0 : SOCK_NONBLOCK), 0);
  const int size = 4 << 20;
  setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
  const timeval patience{.tv_sec = 1, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) std::perror("connect");
  return fd;
}

bool hasEde(std::span<const uint8_t> answer) {
  // The OPT is the only record: root, type 41, class, TTL, RDLENGTH, then options; EDE is option 15.
  static constexpr uint8_t kEde[] = {0, 15, 0, 2};
  for (size_t i = dns::kHeaderSize; i + sizeof(kEde) <= answer.size(); ++i) {
    if (std::memcmp(answer.data() + i, kEde, sizeof(kEde)) == 0) return true;
  }
  return false;
}

// The stalled questions: each has a number, which is its socket and its ID.
class Stalled {
 public:
  Stalled(uint16_t port, size_t count, const dns::Name& zone) : source_(options(zone)), slots_(count) {
    for (size_t i = 0; i < std::min(kMaxSockets, count); ++i) sockets_.push_back(connectTo(port, false));
  }

  // Sends one question that is not under way, if there is one.
  void sendOne() {
    if (sent_ == slots_.size() && free_.empty()) return;
    size_t index = sent_;
    if (sent_ < slots_.size()) {
      ++sent_;
    } else {
      index = free_.back();
      free_.pop_back();
    }
    std::array<uint8_t, QuerySource::kMaxQuerySize> packet;
    Expectation expectation;
    const size_t size = source_.next(packet.data(), expectation);
    dns::store16(packet.data(), static_cast<uint16_t>(index));
    slots_[index] = {.sent_at = now(), .outstanding = true};
    if (::send(sockets_[index % sockets_.size()], packet.data(), size, 0) < 0) std::perror("send");
    ++asked_;
    ++in_flight_;
  }

  // Takes what one socket has received.
  void receive() {
    std::array<uint8_t, 2048> buffer;
    const int fd = sockets_[turn_++ % sockets_.size()];
    for (int i = 0; i < 4; ++i) {
      const ssize_t size = recv(fd, buffer.data(), buffer.size(), 0);
      if (size < static_cast<ssize_t>(dns::kHeaderSize)) return;
      take({buffer.data(), static_cast<size_t>(size)});
    }
  }

  void expectNoMore() { replace_ = false; }
  size_t inFlight() const { return in_flight_; }
  bool isFull() const { return sent_ == slots_.size(); }

  uint64_t asked_ = 0;
  uint64_t answered_ = 0;
  uint64_t failed_rightly_ = 0;  // SERVFAIL with an EDE in time
  uint64_t slowest_ = 0;

 private:
  struct Slot {
    uint64_t sent_at = 0;
    bool outstanding = false;
  };

  static QuerySource::Options options(const dns::Name& zone) {
    QuerySource::Options options;
    options.miss_percent = 100;
    options.edns = true;
    options.zone = zone;
    return options;
  }

  void take(std::span<const uint8_t> answer) {
    const size_t index = dns::load16(answer.data());
    if (index >= slots_.size() || !slots_[index].outstanding) return;
    const uint64_t time = now() - slots_[index].sent_at;
    slots_[index].outstanding = false;
    if (replace_) free_.push_back(index);
    --in_flight_;
    ++answered_;
    slowest_ = std::max(slowest_, time);
    const uint16_t rcode = dns::load16(answer.data() + 2) & dns::kRcodeMask;
    if (rcode == dns::code(dns::Rcode::kServFail) && hasEde(answer) && time <= kAnswerWithin) ++failed_rightly_;
  }

  QuerySource source_;
  std::vector<int> sockets_;  // as long as the process
  std::vector<Slot> slots_;
  std::vector<size_t> free_;
  size_t sent_ = 0;
  size_t in_flight_ = 0;
  size_t turn_ = 0;
  bool replace_ = true;
};

// One query at a time for names of the cluster.
class Probe {
 public:
  Probe(uint16_t port, uint32_t names) : fd_(connectTo(port, true)), source_({.names = names}) {}

  void ask() {
    std::array<uint8_t, QuerySource::kMaxQuerySize> packet;
    std::array<uint8_t, 2048> answer;
    Expectation expectation;
    const size_t size = source_.next(packet.data(), expectation);
    dns::store16(packet.data(), ++id_);
    const uint64_t start = now();
    if (::send(fd_, packet.data(), size, 0) < 0) std::perror("send");
    ssize_t received = 0;
    do {
      received = recv(fd_, answer.data(), answer.size(), 0);
    } while (received >= 2 && dns::load16(answer.data()) != id_);
    latency.add(now() - start);
    const bool right = received > 0 && isRightAnswer({packet.data(), size}, expectation,
                                                     {answer.data(), static_cast<size_t>(received)});
    if (!right) ++wrong;
  }

  Histogram latency;
  uint64_t wrong = 0;

 private:
  int fd_;  // as long as the process
  QuerySource source_;
  uint16_t id_ = 0;
};

struct Quantiles {
  double p50_us;
  double p99_us;
  double p999_us;
};

Quantiles quantilesOf(const Histogram& latency) {
  return {latency.quantile(0.5) / 1000, latency.quantile(0.99) / 1000, latency.quantile(0.999) / 1000};
}

int measure(uint16_t port, size_t in_flight, double seconds, uint32_t names, const dns::Name& zone, bool json) {
  const auto time = static_cast<uint64_t>(seconds * kSecond);
  Probe probe(port, names);
  Stalled stalled(port, in_flight, zone);
  for (int i = 0; i < 1000; ++i) probe.ask();
  probe.latency.clear();
  for (const uint64_t end = now() + time; now() < end;) probe.ask();
  const Quantiles idle = quantilesOf(probe.latency);

  while (!stalled.isFull()) {  // about as fast as the server takes them
    stalled.sendOne();
    stalled.receive();
    probe.ask();
  }
  probe.latency.clear();
  size_t least = stalled.inFlight();
  for (const uint64_t end = now() + time; now() < end;) {
    stalled.receive();
    stalled.sendOne();
    probe.ask();
    least = std::min(least, stalled.inFlight());
  }
  const Quantiles busy = quantilesOf(probe.latency);
  stalled.expectNoMore();
  for (const uint64_t end = now() + kAnswerWithin + kSecond; stalled.inFlight() > 0 && now() < end;) {
    stalled.receive();
    probe.ask();
  }

  const char* format =
      json
          ? "{{\"idle_p50_us\": {:.2f}, \"idle_p99_us\": {:.2f}, \"idle_p999_us\": {:.2f}, \"p50_us\": {:.2f}, "
            "\"p99_us\": {:.2f}, \"p999_us\": {:.2f}, \"in_flight\": {}, \"asked\": {}, \"answered\": {}, "
            "\"servfail_with_ede\": {}, \"slowest_s\": {:.3f}, \"wrong\": {}}}\n"
          : "idle: p50 {:.1f} us, p99 {:.1f} us, p999 {:.1f} us; beside: p50 {:.1f} us, p99 {:.1f} us, p999 {:.1f} us; "
            "never less than {} in flight; {} asked, {} answered, {} of them SERVFAIL with EDE within 5 s, the slowest "
            "after {:.3f} s; {} wrong answers for the cluster\n";
  fmt::print(fmt::runtime(format), idle.p50_us, idle.p99_us, idle.p999_us, busy.p50_us, busy.p99_us, busy.p999_us,
             least, stalled.asked_, stalled.answered_, stalled.failed_rightly_,
             static_cast<double>(stalled.slowest_) / kSecond, probe.wrong);
  return probe.wrong == 0 ? 0 : 3;
}

}  // namespace
}  // namespace idetcd::bench

int main(int argc, char** argv) {
  using namespace idetcd;
  bench::Arguments arguments(argc, argv, bench::kUsage);
  const auto port = arguments.number<uint16_t>("--port", 0);
  const auto in_flight = arguments.number<size_t>("--in-flight", 10000);
  const auto seconds = arguments.number<double>("--seconds", 6);
  const auto names = arguments.number<uint32_t>("--names", 1000);
  const auto zone = dns::Name::parse(arguments.text("--zone", "example.net."));
  const bool json = arguments.flag("--json");
  arguments.finish();
  if (port == 0 || !zone || in_flight == 0 || in_flight > 65536 || names == 0 || names > bench::kMaxNames) {
    std::fputs(bench::kUsage, stderr);
    return 2;
  }
  return bench::measure(port, in_flight, seconds, names, *zone, json);
}
