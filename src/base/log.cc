#include "base/log.h"

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace idetcd {
namespace {

// The variable alone proves nothing: children inherit it, and their output may go elsewhere.
bool isJournal(int fd) {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat info {};
  return stream != nullptr && fstat(fd, &info) == 0 && fmt::format("{}:{}", info.st_dev, info.st_ino) == stream;
}

void hideControls(std::string& line) {
  std::ranges::replace_if(line, [](unsigned char c) { return c < 0x20; }, ' ');
}

}  // namespace

void printError(std::string_view text) {
  const std::string_view priority = isJournal(STDERR_FILENO) ? "<3>" : "";
  while (!text.empty()) {
    std::string line(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    hideControls(line);
    std::fprintf(stderr, "%s\n", (std::string(priority) + line).c_str());
  }
}

class LogSink {
 public:
  LogSink() : writer_([this] { writeLines(); }) {}
  // Drains the queue, however long that takes.
  ~LogSink() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    writer_.join();
  }

  void write(std::string line) {
    line += '\n';
    {
      const std::lock_guard lock(mutex_);
      if (lines_.size() == kQueueLines) {
        lines_.pop_front();
        dropped_.fetch_add(1, std::memory_order_relaxed);
      }
      lines_.push_back(std::move(line));
    }
    changed_.notify_all();
  }

  bool flush(std::chrono::milliseconds budget) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, budget, [this] { return lines_.empty() && !writing_; });
  }

  void wantDebug(int change) { debug_wanted_.fetch_add(change, std::memory_order_relaxed); }
  // Relaxed: a line more or less, at the moment at which somebody changes their mind, does not matter.
  bool isDebugWanted() const { return debug_wanted_.load(std::memory_order_relaxed) > 0; }

  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  bool wantsPriority() const { return wants_priority_; }

 private:
  static constexpr size_t kQueueLines = 8192;

  void writeLines() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !lines_.empty() || ending_; });
      if (lines_.empty()) return;
      const std::string line = std::move(lines_.front());
      lines_.pop_front();
      writing_ = true;
      lock.unlock();
      std::fwrite(line.data(), 1, line.size(), stdout);
      std::fflush(stdout);
      lock.lock();
      writing_ = false;
      if (lines_.empty()) changed_.notify_all();  // flush()
    }
  }

  const bool wants_priority_ = isJournal(STDOUT_FILENO);
  std::mutex mutex_;  // guards what is neither const nor atomic
  std::condition_variable changed_;
  std::deque<std::string> lines_;
  bool writing_ = false;  // a line that is in `lines_` no more
  bool ending_ = false;
  std::atomic<uint64_t> dropped_{0};
  std::atomic<int> debug_wanted_{0};
  std::thread writer_;  // the last member: it uses all others
};

Logger Logger::toStdout() {
  Logger logger;
  logger.sink_ = std::make_shared<LogSink>();
  return logger;
}

Logger Logger::named(std::string_view prefix) const {
  Logger logger = *this;
  logger.prefix_ = prefix;
  return logger;
}

void Logger::write(Level level, std::string_view message) const {
  if (!sink_ || (level == Level::kDebug && !showsDebug())) return;
  struct Rank {
    std::string_view name, priority;  // of syslog(3)
  };
  constexpr Rank kRanks[] = {{"DEBUG", "<7>"}, {"INFO", "<6>"}, {"WARNING", "<4>"}, {"ERROR", "<3>"}};
  const auto [name, priority] = kRanks[static_cast<size_t>(level)];
  // One line a message: what came from outside (a key, an error text) must not forge a second one.
  std::string line =
      prefix_.empty() ? fmt::format("[{}] {}", name, message) : fmt::format("[{}] {}: {}", name, prefix_, message);
  hideControls(line);
  if (sink_->wantsPriority()) line.insert(0, priority);
  sink_->write(std::move(line));
}

std::shared_ptr<const void> Logger::showDebug() const {
  if (!sink_) return nullptr;
  sink_->wantDebug(1);
  return {sink_.get(), [sink = sink_](const void*) { sink->wantDebug(-1); }};
}

bool Logger::showsDebug() const { return sink_ && sink_->isDebugWanted(); }

void Logger::plain(std::string_view line) const {
  if (sink_) sink_->write(std::string(line));
}

bool Logger::flush(std::chrono::milliseconds budget) const { return !sink_ || sink_->flush(budget); }

uint64_t Logger::droppedLines() const { return sink_ ? sink_->dropped() : 0; }

}  // namespace idetcd
