// Look-ups, 64 at a time, beside a thread that replaces random records at a steady rate, and without it: slices of 100
// ms in turn, a line of JSON for each pair. The tables are those of record_tables.h.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <sched.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "common/arguments.h"
#include "common/pairs.h"
#include "load/process_cpu.h"
#include "micro/table_load.h"

namespace idetcd::bench {
namespace {

constexpr char kUsage[] =
    "usage: beside_writer [--table idetcd|urcu|mutex] [--names 1000000] [--changes 100000] [--pairs 400]\n"
    "                     [--slice-ms 100] [--settle-ms 20] [--core N --writer-core N]\n"
    "--changes: a second, beside the slices of \"server\"; those of \"reference\" have none. The first --settle-ms of "
    "a\n"
    "slice are not counted. --core: where the look-ups run, and the writer. Ends after --pairs, or with SIGTERM.\n";

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

struct Options {
  uint32_t names = 1'000'000;
  int64_t changes_a_second = 100'000;
  uint32_t pairs = 400;
  milliseconds slice{100};
  milliseconds settle{20};
  int core = -1;  // any
  int writer_core = -1;
};

void runOn(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<unsigned>(core), &cores);
  if (core >= 0 && sched_setaffinity(0, sizeof(cores), &cores) != 0) std::perror("sched_setaffinity");
}

// Asleep between beginning and end of the slices that it is wanted for.
template <typename Table>
class Writer {
 public:
  Writer(Table& table, const Options& options) : options_(options), thread_([this, &table] { run(table); }) {}
  ~Writer() {
    set(State::kEnded);
    thread_.join();
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Returns when no change is under way, if `on` is false.
  void turn(bool on) {
    set(on ? State::kOn : State::kOff);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return on || asleep_; });
  }
  uint64_t changes() const { return changes_.load(std::memory_order_relaxed); }

 private:
  enum class State : uint8_t { kOff, kOn, kEnded };

  void set(State state) {
    const std::lock_guard lock(mutex_);
    state_ = state;
    changed_.notify_all();
  }

  void run(Table& table) {
    runOn(options_.writer_core);
    const typename Table::WriterThread thread;
    constexpr milliseconds kTick(1);
    Random random(99);
    auto tick = Clock::now();
    while (true) {
      thread.pause();
      {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_until(lock, tick, [&] { return state_ != State::kOn; })) {
          lock.unlock();
        } else {
          asleep_ = true;
          changed_.notify_all();
          changed_.wait(lock, [&] { return state_ != State::kOff; });
          asleep_ = false;
          if (state_ == State::kEnded) break;
          tick = Clock::now();
        }
      }
      thread.resume();
      for (int64_t i = 0; i < options_.changes_a_second / 1000; ++i) {
        table.put(keyOf(1 + random.below(options_.names)), addressV4(static_cast<uint32_t>(random.next()) | 1));
      }
      changes_.fetch_add(static_cast<uint64_t>(options_.changes_a_second / 1000), std::memory_order_relaxed);
      tick += kTick;
    }
    thread.resume();
  }

  const Options& options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kOff;  // guarded by mutex_
  bool asleep_ = false;        // guarded by mutex_
  std::atomic<uint64_t> changes_{0};
  std::thread thread_;
};

double threadSeconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

// How long this thread has waited for its processor.
uint64_t waitedHere() {
  for (const ThreadTime& time : threadTimes(getpid())) {
    if (time.thread == gettid()) return time.waited;
  }
  return 0;
}

template <typename Table>
class Measurement {
 public:
  explicit Measurement(const Options& options)
      : options_(options),
        table_(options.names),
        keys_((fill(table_, options.names), probes(options.names, true))),
        reader_(table_),
        writer_(table_, options) {}

  void run() {
    runOn(options_.core);
    slice(true);  // not counted
    for (Pairs pairs(options_.pairs); pairs.next();) {
      std::string reference;
      if (pairs.referenceFirst()) reference = slice(false);
      const std::string beside = slice(true);
      if (!pairs.referenceFirst()) reference = slice(false);
      fmt::print("{{\"server\": {}, \"reference\": {}}}\n", beside, reference);
      std::fflush(stdout);
    }
  }

 private:
  std::string slice(bool beside) {
    writer_.turn(beside);
    lookUpUntil(Clock::now() + options_.settle);
    const uint64_t changes = writer_.changes();
    const uint64_t waited = waitedHere();
    const double cpu = threadSeconds();
    const auto start = Clock::now();
    const uint64_t count = lookUpUntil(start + options_.slice - options_.settle);
    const double elapsed = std::chrono::duration<double>(Clock::now() - start).count();
    const double ran = threadSeconds() - cpu;
    // The processor time of others is no part of the table's speed; the wait for the writer's lock is.
    const double time = std::max(elapsed - static_cast<double>(waitedHere() - waited) / 1e9, ran);
    const std::string text = fmt::format(
        "{{\"rate\": {:.0f}, \"answered\": {}, \"cpu_us\": {:.6f}, \"waited\": {:.3f}, \"changes_s\": {:.0f}}}",
        static_cast<double>(count) / time, count, ran * 1e6 / static_cast<double>(std::max<uint64_t>(count, 1)),
        1 - time / elapsed, static_cast<double>(writer_.changes() - changes) / elapsed);
    writer_.turn(false);
    return text;
  }

  uint64_t lookUpUntil(Clock::time_point end) {
    constexpr int kBatchesBetweenLooksAtTheClock = 64;
    uint64_t count = 0;
    while (Clock::now() < end) {
      for (int i = 0; i < kBatchesBetweenLooksAtTheClock; ++i) {
        reader_.enter();
        sum_ = sum_ + reader_.lookUpBatch(&keys_[next_], kBatchSize);
        reader_.leave();
        next_ = (next_ + kBatchSize) % kProbes;
        count += kBatchSize;
      }
    }
    return count;
  }

  const Options& options_;
  Table table_;
  const std::vector<Key> keys_;
  typename Table::Reader reader_;
  Writer<Table> writer_;
  size_t next_ = 0;
  volatile uint64_t sum_ = 0;  // so that the look-ups are not left out
};

}  // namespace
}  // namespace idetcd::bench

int main(int argc, char** argv) {
  using namespace idetcd::bench;
  Arguments arguments(argc, argv, kUsage);
  Options options;
  const std::string table = arguments.text("--table", "idetcd");
  options.names = arguments.number("--names", options.names);
  options.changes_a_second = arguments.number("--changes", options.changes_a_second);
  options.pairs = arguments.number("--pairs", options.pairs);
  options.slice = milliseconds(arguments.number<int64_t>("--slice-ms", 100));
  options.settle = milliseconds(arguments.number<int64_t>("--settle-ms", 20));
  options.core = arguments.number("--core", options.core);
  options.writer_core = arguments.number("--writer-core", options.writer_core);
  arguments.finish();
  if (options.names == 0 || options.names > kMaxNames || options.settle >= options.slice) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  if (table == "idetcd") {
    Measurement<IdetcdTable>(options).run();
  } else if (table == "urcu") {
    Measurement<UrcuTable>(options).run();
  } else if (table == "mutex") {
    Measurement<MutexMap>(options).run();
  } else {
    std::fputs(kUsage, stderr);
    return 2;
  }
  return 0;
}
