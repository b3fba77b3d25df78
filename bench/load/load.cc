// A load of DNS queries over UDP, cheap enough to saturate a server on another core, that checks every answer.
//
// Closed loop: each of S sockets keeps W queries under way and replaces those that were answered, a batch a system
// call. A query's slot is in its ID, with a generation, so that an answer that comes too late is not taken for another
// one's. The packets lie in their slots and are sent from there.
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <vector>

#include <fmt/format.h>

#include "common/arguments.h"
#include "common/names.h"
#include "load/answer_check.h"
#include "load/histogram.h"
#include "load/process_cpu.h"
#include "load/query_source.h"

namespace idetcd::bench {
namespace {

constexpr char kUsage[] =
    "usage: load --port N [--address 127.0.0.1] [--seconds 2] [--warmup 0.2] [--sockets 8] [--window 64]\n"
    "            [--names 1000] [--select uniform|zipf|sequential] [--aaaa PERCENT] [--nxdomain PERCENT] [--edns]\n"
    "            [--zone tf.local.] [--misses PERCENT] [--queries N] [--pid PID] [--echo] [--seed N] [--json]\n"
    "Names are worker1.<zone> to workerN.<zone>; --misses: so many are random ones below any.<zone>, whose address is\n"
    "that of number 0. --window 1 --sockets 1 measures the latency of one query at a time. --queries ends after so "
    "many\n"
    "answers. --pid: the server, for its processor time. --echo: the answers are the queries. Exit status 3\n"
    "if an answer was wrong.\n";

constexpr size_t kBatch = 64;
constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kLostAfter = kSecond / 4;

struct Options {
  in_addr address{};
  uint16_t port = 0;
  double seconds = 2;
  double warmup = 0.2;
  size_t sockets = 8;
  size_t window = 64;
  uint64_t queries = 0;
  pid_t pid = 0;
  bool echo = false;
  bool json = false;
  QuerySource::Options source;
};

uint64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * kSecond + static_cast<uint64_t>(t.tv_nsec);
}

struct Statistics {
  uint64_t answered = 0;
  uint64_t wrong = 0;
  uint64_t lost = 0;
  uint64_t late = 0;  // of a query given up, or of none
  Histogram latency;

  void clear() {
    answered = wrong = lost = late = 0;
    latency.clear();
  }
};

// Batches of datagrams in and out; what all sockets share.
struct Buffers {
  std::array<std::array<uint8_t, 2048>, kBatch> in;
  std::array<iovec, kBatch> in_vectors{};
  std::array<mmsghdr, kBatch> in_messages{};
  std::array<iovec, kBatch> out_vectors{};
  std::array<mmsghdr, kBatch> out_messages{};

  Buffers() {
    for (size_t i = 0; i < kBatch; ++i) {
      in_vectors[i] = {.iov_base = in[i].data(), .iov_len = in[i].size()};
      in_messages[i].msg_hdr.msg_iov = &in_vectors[i];
      in_messages[i].msg_hdr.msg_iovlen = 1;
      out_messages[i].msg_hdr.msg_iov = &out_vectors[i];
      out_messages[i].msg_hdr.msg_iovlen = 1;
    }
  }
};

class Client {
 public:
  Client(const Options& options, QuerySource& source, Buffers& buffers, Statistics& statistics)
      : options_(options),
        source_(source),
        buffers_(buffers),
        statistics_(statistics),
        slots_(options.window),
        slot_bits_(static_cast<unsigned>(std::bit_width(options.window - 1))) {
    for (size_t i = 0; i < slots_.size(); ++i) free_.push_back(static_cast<uint16_t>(i));
    fd_ = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int size = 4 << 20;
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(options.port);
    to.sin_addr = options.address;
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) std::perror("connect");
  }

  int fd() const { return fd_; }

  void send(uint64_t time) {
    while (!free_.empty()) {
      const size_t count = prepareBatch();
      const int sent = sendmmsg(fd_, buffers_.out_messages.data(), static_cast<unsigned>(count), 0);
      const size_t done = sent > 0 ? static_cast<size_t>(sent) : 0;
      for (size_t i = 0; i < done; ++i) {
        Slot& slot = slots_[free_[free_.size() - 1 - i]];
        slot.outstanding = true;
        slot.sent_at = time;
      }
      free_.resize(free_.size() - done);
      if (done < count) return;
    }
  }

  // Whether anything came. `time` is brought up to when it had come.
  bool receive(uint64_t& time) {
    const int count = recvmmsg(fd_, buffers_.in_messages.data(), kBatch, MSG_DONTWAIT, nullptr);
    time = now();
    for (int i = 0; i < count; ++i) {
      const auto index = static_cast<size_t>(i);
      take({buffers_.in[index].data(), buffers_.in_messages[index].msg_len}, time);
    }
    return count > 0;
  }

  // Gives up what has been under way for too long.
  void expire(uint64_t time) {
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (!slots_[i].outstanding || time - slots_[i].sent_at < kLostAfter) continue;
      ++statistics_.lost;
      release(i);
    }
  }

 private:
  struct Slot {
    std::array<uint8_t, QuerySource::kMaxQuerySize> packet;
    uint16_t size = 0;
    uint16_t id = 0;
    bool outstanding = false;
    Expectation expectation;
    uint64_t sent_at = 0;
  };

  // The next queries, in the slots at the end of free_, which keeps them until they are sent.
  size_t prepareBatch() {
    const size_t count = std::min(kBatch, free_.size());
    for (size_t i = 0; i < count; ++i) {
      const uint16_t index = free_[free_.size() - 1 - i];
      Slot& slot = slots_[index];
      slot.size = static_cast<uint16_t>(source_.next(slot.packet.data(), slot.expectation));
      slot.id = static_cast<uint16_t>(((slot.id >> slot_bits_) + 1) << slot_bits_ | index);
      dns::store16(slot.packet.data(), slot.id);
      buffers_.out_vectors[i] = {.iov_base = slot.packet.data(), .iov_len = slot.size};
    }
    return count;
  }

  void take(std::span<const uint8_t> answer, uint64_t time) {
    const uint16_t id = answer.size() >= dns::kHeaderSize ? dns::load16(answer.data()) : 0;
    const size_t index = id & ((1u << slot_bits_) - 1);
    if (index >= slots_.size() || !slots_[index].outstanding || slots_[index].id != id) {
      ++statistics_.late;
      return;
    }
    const Slot& slot = slots_[index];
    const std::span<const uint8_t> query(slot.packet.data(), slot.size);
    const bool right = options_.echo ? isEcho(query, answer) : isRightAnswer(query, slot.expectation, answer);
    ++statistics_.answered;
    if (!right) ++statistics_.wrong;
    statistics_.latency.add(time - slot.sent_at);
    release(index);
  }

  void release(size_t index) {
    slots_[index].outstanding = false;
    free_.push_back(static_cast<uint16_t>(index));
  }

  const Options& options_;
  QuerySource& source_;
  Buffers& buffers_;
  Statistics& statistics_;
  int fd_ = -1;  // as long as the process
  std::vector<Slot> slots_;
  std::vector<uint16_t> free_;
  const unsigned slot_bits_;
};

class Load {
 public:
  explicit Load(const Options& options) : options_(options), source_(options.source) {
    for (size_t i = 0; i < options.sockets; ++i) {
      clients_.push_back(std::make_unique<Client>(options_, source_, buffers_, statistics_));
      readable_.push_back({.fd = clients_.back()->fd(), .events = POLLIN, .revents = 0});
    }
  }

  struct Result {
    double seconds = 0;
    double server_cpu = 0;  // seconds
    double own_cpu = 0;
  };

  Result run() {
    turns(now() + static_cast<uint64_t>(options_.warmup * kSecond), 0);
    statistics_.clear();
    const uint64_t start = now();
    const uint64_t server_before = cpuTime(options_.pid);
    const uint64_t own_before = cpuTime(getpid());
    const uint64_t end = turns(start + static_cast<uint64_t>(options_.seconds * kSecond), options_.queries);
    return {static_cast<double>(end - start) / kSecond,
            static_cast<double>(cpuTime(options_.pid) - server_before) / kSecond,
            static_cast<double>(cpuTime(getpid()) - own_before) / kSecond};
  }

  const Statistics& statistics() const { return statistics_; }

 private:
  uint64_t turns(uint64_t end, uint64_t queries) {
    uint64_t time = now();
    uint64_t expired_at = time;
    while (time < end && (queries == 0 || statistics_.answered < queries)) {
      bool any = false;
      for (const auto& client : clients_) {
        client->send(time);
        any |= client->receive(time);
      }
      if (!any) {
        poll(readable_.data(), readable_.size(), 20);
        time = now();
      }
      if (time - expired_at < kLostAfter / 4) continue;
      for (const auto& client : clients_) client->expire(time);
      expired_at = time;
    }
    return time;
  }

  const Options options_;
  QuerySource source_;
  Buffers buffers_;
  Statistics statistics_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<pollfd> readable_;
};

void report(const Options& options, const Load::Result& result, const Statistics& statistics) {
  const double answered = static_cast<double>(std::max<uint64_t>(statistics.answered, 1));
  const char* format = options.json
                           ? "{{\"rate\": {:.0f}, \"answered\": {}, \"wrong\": {}, \"lost\": {}, \"late\": {}, "
                             "\"cpu_us\": {:.4f}, \"server_busy\": {:.3f}, \"load_busy\": {:.3f}, "
                             "\"p50_us\": {:.2f}, \"p99_us\": {:.2f}, \"p999_us\": {:.2f}}}\n"
                           : "{:.0f} answers/s ({} answered, {} wrong, {} lost, {} late), server {:.3f} us of CPU each "
                             "({:.2f} of a core, load {:.2f}), p50 {:.1f} us, p99 {:.1f} us, p999 {:.1f} us\n";
  const auto quantile = [&](double q) { return statistics.latency.quantile(q) / 1000; };
  fmt::print(fmt::runtime(format), static_cast<double>(statistics.answered) / result.seconds, statistics.answered,
             statistics.wrong, statistics.lost, statistics.late, result.server_cpu * 1e6 / answered,
             result.server_cpu / result.seconds, result.own_cpu / result.seconds, quantile(0.5), quantile(0.99),
             quantile(0.999));
}

Options parse(int argc, char** argv) {
  Arguments arguments(argc, argv, kUsage);
  Options options;
  const auto address = IpAddress::parse(arguments.text("--address", "127.0.0.1"));
  const auto selection = parseSelection(arguments.text("--select", "uniform"));
  const auto zone = dns::Name::parse(arguments.text("--zone", kZone));
  options.port = arguments.number<uint16_t>("--port", 0);
  options.seconds = arguments.number("--seconds", options.seconds);
  options.warmup = arguments.number("--warmup", options.warmup);
  options.sockets = arguments.number("--sockets", options.sockets);
  options.window = arguments.number("--window", options.window);
  options.queries = arguments.number("--queries", options.queries);
  options.pid = arguments.number("--pid", options.pid);
  options.source.names = arguments.number("--names", options.source.names);
  options.source.aaaa_percent = arguments.number("--aaaa", options.source.aaaa_percent);
  options.source.nxdomain_percent = arguments.number("--nxdomain", options.source.nxdomain_percent);
  options.source.miss_percent = arguments.number("--misses", options.source.miss_percent);
  options.source.seed = arguments.number("--seed", options.source.seed);
  options.source.edns = arguments.flag("--edns");
  options.echo = arguments.flag("--echo");
  options.json = arguments.flag("--json");
  arguments.finish();
  const bool sane = address && address->isV4() && selection && options.port > 0 && options.sockets > 0 &&
                    options.window > 0 && options.window <= 4096 && options.source.names > 0 &&
                    options.source.names <= kMaxNames && zone && zone->size() <= QuerySource::kMaxZoneSize;
  if (!sane) {
    std::fputs(kUsage, stderr);
    std::exit(2);
  }
  std::memcpy(&options.address, address->data(), sizeof(options.address));
  options.source.selection = *selection;
  options.source.zone = *zone;
  return options;
}

}  // namespace
}  // namespace idetcd::bench

int main(int argc, char** argv) {
  using namespace idetcd::bench;
  const Options options = parse(argc, argv);
  auto load = std::make_unique<Load>(options);
  const Load::Result result = load->run();
  report(options, result, load->statistics());
  return load->statistics().wrong == 0 ? 0 : 3;
}
