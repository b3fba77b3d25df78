// tools/simulate: runs seeds of the simulated world (world.h, founding_world.h, membership_world.h), in as many processes as there are processors.
//
// What it prints to stdout depends on its arguments alone, so that two runs can be compared byte by byte: a line for
// each seed in their order, and, after the first that violates something, what happened. How long it took goes to
// stderr. A state is one that a process has left after a turn. Exit status: 0, 1 after a violation, 2 for arguments
// that are wrong, 3 if the output cannot be written.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "base/result.h"
#include "simulation/founding_world.h"
#include "simulation/membership_world.h"
#include "simulation/world.h"

namespace idetcd::simulation {
namespace {

constexpr const char* kUsage =
    "usage: simulate [--founding | --membership] [--seed N | --seeds N [--from N]] [--nodes N] [--jobs N]\n"
    "                [--defects] [--cost [--rate N]] [--relay N] [--quiet] [--trace]\n"
    "  --founding    machines that found a cluster, instead of nodes with an etcd\n"
    "  --membership  machines that run the etcd of their cluster\n"
    "  --seed N      that one seed; default: 1 to 100\n"
    "  --seeds N     so many, from the one of --from (default 1) on\n"
    "  --nodes N     so many nodes in each, instead of what the seed decides; 10,000 at most; 200 machines;\n"
    "                with --founding so many are expected\n"
    "  --jobs N      processes; default: one for each processor\n"
    "  --defects     etcd has known defects of its versions, too: src/naming/README.md lists them\n"
    "  --cost        no faults: all nodes start at once; what that and rest cost etcd; default: one seed\n"
    "  --rate N      with --cost, etcd takes so many requests a second; default: 10,000\n"
    "  --relay N     one of N nodes serves the names to others, once there are twice as many; default: as the seed\n"
    "                says, with --cost none\n"
    "  --quiet       no line for a seed that holds\n"
    "  --trace       the timeline of a seed that holds, too\n";
// A process that computes for so long on one seed has gone astray, unless there are many nodes: the time grows with their
// square.
constexpr time_t kMaxSecondsPerSeed = 300;
constexpr time_t kMaxSecondsOfMany = 4 * 3600;
constexpr size_t kManyNodes = 500;
constexpr uint64_t kMostNodes = 10'000;
constexpr uint64_t kMostMachines = 200;
constexpr uint64_t kMostJobs = 1000;
constexpr uint64_t kMostRate = 1'000'000;

struct Arguments {
  uint64_t first = 1;
  uint64_t count = 100;
  size_t nodes = 0;
  size_t jobs = static_cast<size_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  RunResult (*run)(const RunOptions&) = simulate;
  bool quiet = false;
  bool trace = false;
  bool defects = false;
  bool cost = false;
  uint64_t rate = RunOptions().rate;
  uint64_t relay = 0;
  bool help = false;
};

// The number that is given to an option.
Result<uint64_t> parseNumber(std::string_view option, std::string_view text, uint64_t least, uint64_t most) {
  uint64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec == std::errc() && read.ptr == text.data() + text.size() && number >= least && number <= most)
    return number;
  const std::string bound =
      most == UINT64_MAX ? fmt::format("from {} on", least) : fmt::format("{} to {}", least, most);
  return fail(fmt::format("{} takes a number, {}, and not '{}'", option, bound, text));
}

Result<void> parseOption(Arguments& parsed, std::string_view option, std::string_view text) {
  struct Option {
    std::string_view name;
    uint64_t least;
    uint64_t most;
    std::function<void(uint64_t)> set;
  };
  const Option options[]{
      {"--seed", 0, UINT64_MAX, [&](uint64_t number) { parsed.first = number, parsed.count = 1; }},
      {"--seeds", 1, UINT64_MAX, [&](uint64_t number) { parsed.count = number; }},
      {"--from", 0, UINT64_MAX, [&](uint64_t number) { parsed.first = number; }},
      {"--nodes", 1, kMostNodes, [&](uint64_t number) { parsed.nodes = number; }},
      {"--relay", 1, 1000, [&](uint64_t number) { parsed.relay = number; }},
      {"--jobs", 1, kMostJobs, [&](uint64_t number) { parsed.jobs = number; }},
      {"--rate", 1, kMostRate, [&](uint64_t number) { parsed.rate = number; }},
  };
  for (const Option& known : options) {
    if (known.name != option) continue;
    const Result<uint64_t> number = parseNumber(option, text, known.least, known.most);
    if (!number) return tl::unexpected(number.error());
    known.set(*number);
    return {};
  }
  return fail(fmt::format("there is no option '{}'", option));
}

Result<Arguments> parse(const std::vector<std::string_view>& words) {
  Arguments parsed;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--founding") {
      parsed.run = simulateFounding;
    } else if (words[i] == "--membership") {
      parsed.run = simulateMembership;
    } else if (words[i] == "--quiet") {
      parsed.quiet = true;
    } else if (words[i] == "--trace") {
      parsed.trace = true;
    } else if (words[i] == "--defects") {
      parsed.defects = true;
    } else if (words[i] == "--cost") {
      parsed.cost = true;
    } else if (words[i] == "--help") {
      parsed.help = true;
    } else {
      const std::string_view text = i + 1 < words.size() ? words[i + 1] : std::string_view();
      if (auto option = parseOption(parsed, words[i], text); !option) return tl::unexpected(option.error());
      ++i;
    }
  }
  const auto has = [&](std::string_view option) {
    return std::find(words.begin(), words.end(), option) != words.end();
  };
  if (has("--seed") && (has("--seeds") || has("--from"))) return fail("--seed goes with neither --seeds nor --from");
  if (has("--founding") && has("--membership")) return fail("--founding and --membership are two worlds");
  if (parsed.cost && parsed.run != simulate) return fail("--cost is of nodes with an etcd");
  if (parsed.defects && (parsed.cost || parsed.run != simulate)) return fail("--defects are of an etcd with faults");
  if (has("--rate") && !parsed.cost) return fail("--rate goes with --cost");
  if (parsed.relay > 0 && parsed.run != simulate) return fail("--relay is of nodes with an etcd");
  if (parsed.cost && !has("--seeds")) parsed.count = 1;
  if (parsed.run != simulate && parsed.nodes > kMostMachines)
    return fail(fmt::format("there are {} machines at most", kMostMachines));
  if (parsed.count - 1 > UINT64_MAX - parsed.first)
    return fail(fmt::format("there are no {} seeds from {} on", parsed.count, parsed.first));
  return parsed;
}

// One seed, as a worker reports it.
struct Report {
  bool holds = false;
  uint64_t nodes = 0;
  uint64_t states = 0;
  std::string text;
};

Report runSeed(const Arguments& arguments, uint64_t seed) {
  RunOptions options{.seed = seed,
                     .nodes = arguments.nodes,
                     .trace = arguments.trace,
                     .defects = arguments.defects,
                     .cost = arguments.cost,
                     .rate = arguments.rate,
                     .relay = static_cast<int64_t>(arguments.relay)};
  RunResult result = arguments.run(options);
  if (result.violation && !options.trace) {  // once more, for people
    options.trace = true;
    result = arguments.run(options);
  }
  std::string text =
      fmt::format("seed {}: {}; {} events, {} states, {} faults, {:.0f} s: {}\n", seed, result.scenario, result.events,
                  result.states, result.faults, std::chrono::duration<double>(result.time).count(),
                  result.violation ? "VIOLATED" : "holds");
  text += result.cost;
  if (result.violation) text += fmt::format("{}: {}\n", result.violation->property, result.violation->text);
  if (options.trace) text += "what happened last:\n" + result.timeline;
  return {!result.violation, result.nodes, result.states, std::move(text)};
}

class Worker {
 public:
  // Runs the seeds first + number, first + number + jobs, …
  Worker(const Arguments& arguments, size_t number) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    (void)std::fflush(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      for (uint64_t i = number; i < arguments.count; i += arguments.jobs) {
        const bool is_long = arguments.cost || arguments.nodes > kManyNodes;
        const itimerval most{.it_interval = {}, .it_value = {is_long ? kMaxSecondsOfMany : kMaxSecondsPerSeed, 0}};
        (void)::setitimer(ITIMER_VIRTUAL, &most, nullptr);  // its signal ends the process
        send(ends[1], runSeed(arguments, arguments.first + i));
      }
      ::_exit(0);
    }
    ::close(ends[1]);
    fd_ = ends[0];
  }
  ~Worker() {
    ::close(fd_);
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // The next report, when it is there. None: the worker has ended.
  std::optional<Report> next() {
    Head head;
    if (!read(reinterpret_cast<char*>(&head), sizeof head)) return std::nullopt;
    Report report{head.holds, head.nodes, head.states, std::string(head.size, '\0')};
    return read(report.text.data(), head.size) ? std::optional(report) : std::nullopt;
  }

 private:
  struct Head {  // of a report, on the pipe
    bool holds = false;
    uint64_t nodes = 0;
    uint64_t states = 0;
    uint64_t size = 0;  // of the text
  };

  static void send(int fd, const Report& report) {
    const Head head{report.holds, report.nodes, report.states, report.text.size()};
    std::string message(reinterpret_cast<const char*>(&head), sizeof head);
    message += report.text;
    for (size_t done = 0; done < message.size();) {
      const ssize_t written = ::write(fd, message.data() + done, message.size() - done);
      if (written <= 0) ::_exit(3);
      done += static_cast<size_t>(written);
    }
  }
  bool read(char* to, size_t size) {
    for (size_t done = 0; done < size;) {
      const ssize_t found = ::read(fd_, to + done, size - done);
      if (found <= 0) return false;
      done += static_cast<size_t>(found);
    }
    return true;
  }

  pid_t pid_ = -1;
  int fd_ = -1;
};

int run(const Arguments& arguments) {
  const auto started = std::chrono::steady_clock::now();
  std::vector<std::unique_ptr<Worker>> workers;
  const size_t jobs = std::min<size_t>(arguments.jobs, arguments.count);
  Arguments shared = arguments;
  shared.jobs = jobs;
  for (size_t i = 0; i < jobs; ++i) workers.push_back(std::make_unique<Worker>(shared, i));
  uint64_t nodes = 0;
  uint64_t states = 0;
  for (uint64_t i = 0; i < arguments.count; ++i) {
    const std::optional<Report> report = workers[i % jobs]->next();
    if (!report) {
      fmt::print("seed {}: the process that ran it died: VIOLATED\n", arguments.first + i);
      return 1;
    }
    if (!report->holds || !arguments.quiet) fmt::print("{}", report->text);
    if (!report->holds) return 1;
    nodes += report->nodes;
    states += report->states;
  }
  fmt::print("{} seeds hold: {} nodes, {} states\n", arguments.count, nodes, states);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - started;
  fmt::print(stderr, "{:.1f} s, {} processes\n", took.count(), jobs);
  return 0;
}

}  // namespace
}  // namespace idetcd::simulation

int main(int argc, char** argv) {
  const auto arguments = idetcd::simulation::parse({argv + 1, argv + argc});
  if (!arguments) {
    fmt::print(stderr, "simulate: {}\n{}", arguments.error().message, idetcd::simulation::kUsage);
    return 2;
  }
  if (arguments->help) fmt::print("{}", idetcd::simulation::kUsage);
  const int status = arguments->help ? 0 : idetcd::simulation::run(*arguments);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  fmt::print(stderr, "simulate: the output cannot be written\n");
  return 3;
}
