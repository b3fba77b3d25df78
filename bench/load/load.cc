// A load of DNS queries, cheap enough to saturate a server on another core, that checks every answer. It measures one
// server, or compares two that run beside each other: slices of 100 ms, in turn, a line of JSON for each pair.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <thread>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "common/arguments.h"
#include "common/names.h"
#include "common/pairs.h"
#include "load/lane.h"
#include "load/process_cpu.h"

namespace idetcd::bench {
namespace {

constexpr char kUsage[] =
    "usage: load --port N [--address 127.0.0.1] [--seconds 2] [--warmup 0.2] [--sockets 8] [--window 64] [--tcp]\n"
    "            [--names 1000] [--select uniform|zipf|sequential] [--aaaa PERCENT] [--nxdomain PERCENT] [--edns] [--srv]\n"
    "            [--zone tf.local.] [--misses PERCENT] [--queries N] [--pid PID] [--echo] [--network FILE] [--seed N]\n"
    "            [--json]\n"
    "            [--reference PORT [--reference-address ADDRESS] [--reference-pid PID] [--reference-echo]\n"
    "             [--reference-network FILE] [--reference-names N] [--pairs 400] [--slice-ms 100] [--settle-ms 20]\n"
    "             [--threads 1]]\n"
    "Names are worker1.<zone> to workerN.<zone>; --misses: so many are random ones below any.<zone>, whose address is\n"
    "that of number 0. --srv: SRV is asked for, and a name is its own target. --window 1 --sockets 1 measures the latency of one query at a time. --queries ends after so\n"
    "many answers. --pid: the server, for its processor time. --echo: the answers are the queries. --network: the\n"
    "network namespace to ask from, as /proc/PID/ns/net.\n"
    "--reference: the server of this port and that of --port in turn, in slices of --slice-ms, of which the first\n"
    "--settle-ms are not counted; until --pairs or SIGTERM. What is not said of it is as for --port. --threads: so many\n"
    "loads at once, each with its sockets.\n"
    "Exit status 3 if an answer was wrong.\n";

struct Options {
  double seconds = 2;
  double warmup = 0.2;
  uint64_t queries = 0;
  bool json = false;
  Lane::Options lane;
  Target reference;
  uint32_t reference_names = 0;
  uint32_t pairs = 400;
  uint64_t slice = kSecond / 10;
  uint64_t settle = kSecond / 50;
  size_t threads = 1;
};

// --- one server ---

struct Result {
  double seconds = 0;
  double server_cpu = 0;  // seconds
  double own_cpu = 0;
};

Result measureOne(const Options& options, Lane& lane) {
  lane.run(now() + static_cast<uint64_t>(options.warmup * kSecond));
  lane.statistics().clear();
  const uint64_t start = now();
  const pid_t pid = options.lane.target.pid;
  const uint64_t server_before = cpuTime(pid);
  const uint64_t own_before = cpuTime(getpid());
  const uint64_t end = lane.run(start + static_cast<uint64_t>(options.seconds * kSecond), options.queries);
  return {static_cast<double>(end - start) / kSecond, static_cast<double>(cpuTime(pid) - server_before) / kSecond,
          static_cast<double>(cpuTime(getpid()) - own_before) / kSecond};
}

void report(const Options& options, const Result& result, const Statistics& statistics) {
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

int runOne(const Options& options) {
  Lane lane(options.lane);
  const Result result = measureOne(options, lane);
  report(options, result, lane.statistics());
  return lane.statistics().wrong == 0 ? 0 : 3;
}

// --- two servers in turn ---

// Of one server: the counted part of its slice. The server sleeps before and after it, with no query under way, so that
// the kernel has booked all that it has used.
struct Slice {
  // Answers a second of the time in which others did not use the processors: undisturbed().
  double rate = 0;
  double wall_rate = 0;  // a second of the clock
  double waited = 0;     // the rest of the time, as a share
  uint64_t answered = 0;
  uint64_t wrong = 0;  // this and `lost` are of the whole slice
  uint64_t lost = 0;
  double cpu_us = 0;    // a query
  double busy = 0;      // processor time of the server, as a share of the undisturbed time
  double aside = 0;     // processor time of the other server, which has nothing to do, as a share of the slice
  double own_busy = 0;  // of the load, as a share of the undisturbed time
  Histogram latency;
};

uint64_t ownCpuTime() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<uint64_t>(t.tv_sec) * kSecond + static_cast<uint64_t>(t.tv_nsec);
}

class Server {
 public:
  Server(const Options& options, const Target& target, uint32_t names) : options_(options), pid_(target.pid) {
    for (size_t i = 0; i < options.threads; ++i) {
      Lane::Options lane = options.lane;
      lane.target = target;
      lane.source.names = names;
      lane.source.seed = options.lane.source.seed + i;
      lanes_.push_back(std::make_unique<Lane>(lane));
    }
  }

  Slice measure(const Server& other) {
    for (const auto& lane : lanes_) lane->statistics().clear();
    runAll(options_.settle);
    Statistics settled;
    for (const auto& lane : lanes_) {
      Statistics& statistics = lane->statistics();
      settled.wrong += statistics.wrong;
      settled.lost += statistics.lost;
      statistics.clear();
    }
    const auto before = threadTimes(pid_);
    const auto other_before = threadTimes(other.pid_);
    const auto own_before = threadTimes(getpid());
    const uint64_t own_ran_before = ownCpuTime();
    const uint64_t start = now();
    runAll(options_.slice - options_.settle);
    const uint64_t end = now();
    const uint64_t own_ran = ownCpuTime() - own_ran_before;
    const ProcessTime used = timeBetween(before, threadTimes(pid_));
    const ProcessTime aside = timeBetween(other_before, threadTimes(other.pid_));
    ProcessTime own = timeBetween(own_before, threadTimes(getpid()));
    own.ran = own.busiest_ran = own_ran;
    return summarize(static_cast<double>(end - start), settled, used, aside, own);
  }

 private:
  void runAll(uint64_t duration) {
    const uint64_t end = now() + duration;
    const auto run = [end](Lane& lane) {
      lane.run(end);
      lane.drain();
    };
    std::vector<std::thread> others;
    for (size_t i = 1; i < lanes_.size(); ++i) others.emplace_back([&, i] { run(*lanes_[i]); });
    run(*lanes_[0]);
    for (std::thread& thread : others) thread.join();
  }

  Slice summarize(double length, const Statistics& settled, const ProcessTime& used, const ProcessTime& aside,
                  const ProcessTime& own) const {
    Slice slice;
    slice.wrong = settled.wrong;
    slice.lost = settled.lost;
    for (const auto& lane : lanes_) {
      const Statistics& statistics = lane->statistics();
      slice.answered += statistics.answered;
      slice.wrong += statistics.wrong;
      slice.lost += statistics.lost;
      slice.latency.add(statistics.latency);
    }
    const double time = lanes_.size() == 1 ? undisturbed(length, used, own) : length;
    slice.rate = static_cast<double>(slice.answered) * kSecond / time;
    slice.wall_rate = static_cast<double>(slice.answered) * kSecond / length;
    slice.waited = 1 - time / length;
    slice.cpu_us = static_cast<double>(used.ran) / 1000 / static_cast<double>(std::max<uint64_t>(slice.answered, 1));
    slice.busy = static_cast<double>(used.ran) / time;
    slice.aside = static_cast<double>(aside.ran) / length;
    slice.own_busy = static_cast<double>(own.ran) / time;
    return slice;
  }

  // How long the slice would have taken if no other program had used the two processors; which of two servers waits
  // longer for its own is chance, and no part of what it is. Without the waiting of both, that is; but when one of them
  // waits, the other still works off what is under way, so that this takes off too much where others use most of the
  // time. Then it is what the one that had more to do has run: it is never less than that.
  static double undisturbed(double length, const ProcessTime& server, const ProcessTime& load) {
    const auto ran = static_cast<double>(std::max(server.busiest_ran, load.busiest_ran));
    return std::clamp(length - static_cast<double>(server.waited + load.waited), std::min(std::max(ran, 1.0), length),
                      length);
  }

  const Options& options_;
  const pid_t pid_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

std::string asJson(const Slice& slice) {
  const auto quantile = [&](double q) { return slice.latency.quantile(q) / 1000; };
  return fmt::format(
      "{{\"rate\": {:.0f}, \"wall_rate\": {:.0f}, \"answered\": {}, \"wrong\": {}, \"lost\": {}, \"cpu_us\": {:.4f}, "
      "\"busy\": {:.3f}, "
      "\"waited\": {:.3f}, \"aside\": {:.4f}, \"load_busy\": {:.3f}, \"p50_us\": {:.3f}, \"p99_us\": {:.3f}, "
      "\"p999_us\": {:.3f}}}",
      slice.rate, slice.wall_rate, slice.answered, slice.wrong, slice.lost, slice.cpu_us, slice.busy, slice.waited,
      slice.aside, slice.own_busy, quantile(0.5), quantile(0.99), quantile(0.999));
}

int runPairs(const Options& options) {
  Server server(options, options.lane.target, options.lane.source.names);
  Server reference(options, options.reference, options.reference_names);
  server.measure(reference);  // not counted
  reference.measure(server);
  uint64_t wrong = 0;
  for (Pairs pairs(options.pairs); pairs.next();) {
    Slice of_reference;
    if (pairs.referenceFirst()) of_reference = reference.measure(server);
    const Slice of_server = server.measure(reference);
    if (!pairs.referenceFirst()) of_reference = reference.measure(server);
    wrong += of_server.wrong + of_reference.wrong;
    fmt::print("{{\"server\": {}, \"reference\": {}}}\n", asJson(of_server), asJson(of_reference));
    std::fflush(stdout);
  }
  return wrong == 0 ? 0 : 3;
}

// --- the command line ---

[[noreturn]] void usage() {
  std::fputs(kUsage, stderr);
  std::exit(2);
}

void parseSource(Arguments& arguments, QuerySource::Options& source) {
  const auto selection = parseSelection(arguments.text("--select", "uniform"));
  const auto zone = dns::Name::parse(arguments.text("--zone", kZone));
  source.names = arguments.number("--names", source.names);
  source.aaaa_percent = arguments.number("--aaaa", source.aaaa_percent);
  source.nxdomain_percent = arguments.number("--nxdomain", source.nxdomain_percent);
  source.miss_percent = arguments.number("--misses", source.miss_percent);
  source.seed = arguments.number("--seed", source.seed);
  source.edns = arguments.flag("--edns");
  if (arguments.flag("--srv")) source.type = dns::RrType::kSrv;
  if (!selection || !zone || zone->size() > QuerySource::kMaxZoneSize || source.names == 0 ||
      source.names > kMaxNames) {
    usage();
  }
  source.selection = *selection;
  source.zone = *zone;
}

Options parse(int argc, char** argv) {
  Arguments arguments(argc, argv, kUsage);
  Options options;
  Lane::Options& lane = options.lane;
  const std::string address_text = arguments.text("--address", "127.0.0.1");
  const auto address = IpAddress::parse(address_text);
  lane.target.port = arguments.number<uint16_t>("--port", 0);
  lane.target.pid = arguments.number("--pid", lane.target.pid);
  lane.target.echo = arguments.flag("--echo");
  lane.target.network = arguments.text("--network", "");
  lane.sockets = arguments.number("--sockets", lane.sockets);
  lane.window = arguments.number("--window", lane.window);
  lane.tcp = arguments.flag("--tcp");
  parseSource(arguments, lane.source);
  options.reference.port = arguments.number<uint16_t>("--reference", 0);
  options.reference.pid = arguments.number("--reference-pid", options.reference.pid);
  const auto reference_address = IpAddress::parse(arguments.text("--reference-address", address_text));
  options.reference.echo = arguments.flag("--reference-echo");
  options.reference.network = arguments.text("--reference-network", lane.target.network);
  options.reference_names = arguments.number("--reference-names", lane.source.names);
  options.pairs = arguments.number("--pairs", options.pairs);
  options.slice = arguments.number<uint64_t>("--slice-ms", 100) * (kSecond / 1000);
  options.settle = arguments.number<uint64_t>("--settle-ms", 20) * (kSecond / 1000);
  options.threads = arguments.number("--threads", options.threads);
  options.seconds = arguments.number("--seconds", options.seconds);
  options.warmup = arguments.number("--warmup", options.warmup);
  options.queries = arguments.number("--queries", options.queries);
  options.json = arguments.flag("--json");
  arguments.finish();
  const bool knows_where = address && address->isV4() && reference_address && reference_address->isV4();
  if (!knows_where || lane.target.port == 0 || lane.sockets == 0 || lane.window == 0 ||
      lane.window > 4096 || options.threads == 0 || options.settle >= options.slice || options.reference_names == 0 ||
      options.reference_names > kMaxNames || (lane.tcp && !lane.target.network.empty())) {
    usage();
  }
  std::memcpy(&lane.target.address, address->data(), sizeof(lane.target.address));
  std::memcpy(&options.reference.address, reference_address->data(), sizeof(options.reference.address));
  return options;
}

}  // namespace
}  // namespace idetcd::bench

int main(int argc, char** argv) {
  using namespace idetcd::bench;
  const Options options = parse(argc, argv);
  return options.reference.port == 0 ? runOne(options) : runPairs(options);
}
