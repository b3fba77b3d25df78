// Measures a server while thousands of its questions wait for an upstream that never answers: how long a
// name of the cluster takes, one query at a time, beside the stalled ones, and from a second server of the same kind
// that has nothing else to do; and which answers the clients of the stalled names get, and when.
//
// The two are asked in turn, in slices of 100 ms. While the second one has its slice, the first one is stopped
// (SIGSTOP): the questions that end meanwhile, hundreds a slice, would take time on the core that both share. So the
// first one has to do the work of two slices in each of its own.
//
// The questions are kept at the same number: whichever is answered is replaced by a new one. They are sent and received
// between two measured queries, never while one is under way, so that only what the server does is measured.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <vector>

#include <fmt/format.h>

#include "common/arguments.h"
#include "common/names.h"
#include "common/pairs.h"
#include "load/answer_check.h"
#include "load/histogram.h"
#include "load/query_source.h"
#include "load/window.h"

namespace idetcd::bench {
namespace {

constexpr char kUsage[] =
    "usage: stalled_upstream --port N --pid PID --reference PORT [--in-flight 10000] [--names 1000]\n"
    "                        [--zone example.net.] [--pairs 400] [--slice-ms 100] [--settle-ms 20]\n"
    "Both servers must answer worker1 ... workerN.tf.local.; that of --port must forward the names of --zone to an\n"
    "upstream that is silent. The first --settle-ms of a slice are not counted. Ends after --pairs, or with SIGTERM, "
    "with\n"
    "a last line about the stalled questions.\n";

constexpr size_t kMaxSockets = 64;
constexpr uint64_t kAnswerWithin = 5 * kSecond;  // and a slice, while the server may be stopped

int connectTo(uint16_t port, bool blocking) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | (blocking ? 0 : SOCK_NONBLOCK), 0);
  const int size = 4 << 20;
  setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
  const timeval timeout{.tv_sec = 1, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
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
  // `answer_within`: when a question must have been answered, in nanoseconds.
  Stalled(uint16_t port, size_t count, const dns::Name& zone, uint64_t answer_within)
      : source_(options(zone)), answer_within_(answer_within), slots_(count) {
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
    free_.push_back(index);
    --in_flight_;
    ++answered_;
    slowest_ = std::max(slowest_, time);
    const uint16_t rcode = dns::load16(answer.data() + 2) & dns::kRcodeMask;
    if (rcode == dns::code(dns::Rcode::kServFail) && hasEde(answer) && time <= answer_within_) ++failed_rightly_;
  }

  QuerySource source_;
  const uint64_t answer_within_;
  std::vector<int> sockets_;  // as long as the process
  std::vector<Slot> slots_;
  std::vector<size_t> free_;
  size_t sent_ = 0;
  size_t in_flight_ = 0;
  size_t turn_ = 0;
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
  uint64_t wrong_before = 0;  // before the slice

 private:
  int fd_;  // as long as the process
  QuerySource source_;
  uint16_t id_ = 0;
};

struct Options {
  uint16_t port = 0;
  pid_t pid = 0;
  uint16_t reference = 0;
  size_t in_flight = 10000;
  uint32_t names = 1000;
  dns::Name zone;
  uint32_t pairs = 400;
  uint64_t slice = kSecond / 10;
  uint64_t settle = kSecond / 50;
};

// The server with the stalled questions. It runs while it is asked, and in the end.
class Stopped {
 public:
  explicit Stopped(pid_t pid) : pid_(pid) { kill(pid_, SIGSTOP); }
  ~Stopped() { kill(pid_, SIGCONT); }
  Stopped(const Stopped&) = delete;
  Stopped& operator=(const Stopped&) = delete;

 private:
  const pid_t pid_;
};

class Measurement {
 public:
  explicit Measurement(const Options& options)
      : options_(options),
        beside_(options.port, options.names),
        idle_(options.reference, options.names),
        stalled_(options.port, options.in_flight, options.zone, kAnswerWithin + options.slice),
        least_(options.in_flight) {}

  void run() {
    fill();
    for (Pairs pairs(options_.pairs); pairs.next();) {
      std::string reference;
      if (pairs.referenceFirst()) reference = idleSlice();
      const std::string server = stalledSlice();
      if (!pairs.referenceFirst()) reference = idleSlice();
      fmt::print("{{\"server\": {}, \"reference\": {}}}\n", server, reference);
      std::fflush(stdout);
    }
    // Every question is answered, late or not at all.
    for (const uint64_t end = now() + kAnswerWithin + kSecond; stalled_.inFlight() > 0 && now() < end;) {
      stalled_.receive();
      beside_.ask();
    }
    fmt::print(
        "{{\"in_flight\": {}, \"asked\": {}, \"answered\": {}, \"servfail_with_ede\": {}, \"slowest_s\": {:.3f}}}\n",
        least_, stalled_.asked_, stalled_.answered_, stalled_.failed_rightly_,
        static_cast<double>(stalled_.slowest_) / kSecond);
  }

  uint64_t wrong() const { return beside_.wrong + idle_.wrong; }

 private:
  // Spread over the time that a question lives: what is sent together ends together.
  void fill() {
    const uint64_t start = now();
    for (size_t sent = 0; !stalled_.isFull();) {
      if (now() - start > sent * kFillTime / options_.in_flight) {
        stalled_.sendOne();
        ++sent;
      }
      stalled_.receive();
      beside_.ask();
    }
  }

  std::string stalledSlice() {
    const uint64_t start = now();
    while (now() < start + options_.settle) stalledTurn();
    clear(beside_);
    while (now() < start + options_.slice) {
      stalledTurn();
      least_ = std::min(least_, stalled_.inFlight());
    }
    return asJson(beside_);
  }
  void stalledTurn() {
    stalled_.receive();
    stalled_.sendOne();
    beside_.ask();
  }

  std::string idleSlice() {
    const Stopped stopped(options_.pid);
    const uint64_t start = now();
    while (now() < start + options_.settle) idle_.ask();
    clear(idle_);
    while (now() < start + options_.slice) {
      stalled_.receive();  // as in the other's slice, though there is hardly any
      idle_.ask();
    }
    return asJson(idle_);
  }

  static void clear(Probe& probe) {
    probe.latency.clear();
    probe.wrong_before = probe.wrong;
  }
  static std::string asJson(const Probe& probe) {
    const auto quantile = [&](double q) { return probe.latency.quantile(q) / 1000; };
    return fmt::format(
        "{{\"answered\": {}, \"wrong\": {}, \"p50_us\": {:.3f}, \"p99_us\": {:.3f}, \"p999_us\": {:.3f}}}",
        probe.latency.total(), probe.wrong - probe.wrong_before, quantile(0.5), quantile(0.99), quantile(0.999));
  }

  static constexpr uint64_t kFillTime = 4 * kSecond;

  const Options& options_;
  Probe beside_;
  Probe idle_;
  Stalled stalled_;
  size_t least_;  // in flight
};

}  // namespace
}  // namespace idetcd::bench

int main(int argc, char** argv) {
  using namespace idetcd;
  bench::Arguments arguments(argc, argv, bench::kUsage);
  bench::Options options;
  options.port = arguments.number<uint16_t>("--port", 0);
  options.pid = arguments.number<pid_t>("--pid", 0);
  options.reference = arguments.number<uint16_t>("--reference", 0);
  options.in_flight = arguments.number("--in-flight", options.in_flight);
  options.names = arguments.number("--names", options.names);
  options.pairs = arguments.number("--pairs", options.pairs);
  options.slice = arguments.number<uint64_t>("--slice-ms", 100) * (bench::kSecond / 1000);
  options.settle = arguments.number<uint64_t>("--settle-ms", 20) * (bench::kSecond / 1000);
  const auto zone = dns::Name::parse(arguments.text("--zone", "example.net."));
  arguments.finish();
  if (options.port == 0 || options.pid <= 0 || options.reference == 0 || !zone || options.in_flight == 0 ||
      options.in_flight > 65536 || options.names == 0 || options.names > bench::kMaxNames ||
      options.settle >= options.slice) {
    std::fputs(bench::kUsage, stderr);
    return 2;
  }
  options.zone = *zone;
  bench::Measurement measurement(options);
  measurement.run();
  return measurement.wrong() == 0 ? 0 : 3;
}
