#include "base/log.h"

#include <atomic>
#include <thread>

#include <spdlog/async.h>
#include <spdlog/async_logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "base/clock.h"

namespace idetcd {

namespace {

// Counts what has been written: the queue is empty already while its last line waits for a full pipe.
class CountingSink : public spdlog::sinks::sink {
 public:
  void log(const spdlog::details::log_msg& message) override {
    out_.log(message);
    written_.fetch_add(1, std::memory_order_release);
  }
  void flush() override { out_.flush(); }
  void set_pattern(const std::string& pattern) override { out_.set_pattern(pattern); }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
    out_.set_formatter(std::move(formatter));
  }

  uint64_t written() const { return written_.load(std::memory_order_acquire); }

 private:
  spdlog::sinks::stdout_sink_mt out_;
  std::atomic<uint64_t> written_{0};
};

}  // namespace

class LogSink {
 public:
  LogSink()
      : out_(std::make_shared<CountingSink>()),
        pool_(std::make_shared<spdlog::details::thread_pool>(kQueueLines, 1)),
        logger_(std::make_shared<spdlog::async_logger>("idetcd", out_, pool_,
                                                       spdlog::async_overflow_policy::overrun_oldest)) {
    logger_->set_pattern("%v");
    logger_->flush_on(spdlog::level::trace);
  }

  void write(std::string_view line) {
    queued_.fetch_add(1, std::memory_order_relaxed);
    logger_->log(spdlog::level::info, spdlog::string_view_t(line.data(), line.size()));
  }

  // The pool's destructor drains the queue and joins the writer, however long that takes.
  bool flush(std::chrono::milliseconds budget) {
    const auto deadline = BootClock::now() + budget;
    while (out_->written() + dropped() < queued_.load(std::memory_order_relaxed)) {
      if (BootClock::now() >= deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  void wantDebug(int change) { debug_wanted_.fetch_add(change, std::memory_order_relaxed); }
  // Relaxed: a line more or less, at the moment at which somebody changes their mind, does not matter.
  bool isDebugWanted() const { return debug_wanted_.load(std::memory_order_relaxed) > 0; }

  uint64_t dropped() const { return pool_->overrun_counter(); }

 private:
  static constexpr size_t kQueueLines = 8192;

  std::shared_ptr<CountingSink> out_;
  std::shared_ptr<spdlog::details::thread_pool> pool_;
  std::shared_ptr<spdlog::async_logger> logger_;
  std::atomic<uint64_t> queued_{0};
  std::atomic<int> debug_wanted_{0};
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
  if (!sink_) return;
  constexpr std::string_view kNames[] = {"DEBUG", "INFO", "WARNING", "ERROR"};
  const std::string_view name = kNames[static_cast<size_t>(level)];
  // One line a message: what came from outside (a key, an error text) must not forge a second one.
  std::string line =
      prefix_.empty() ? fmt::format("[{}] {}", name, message) : fmt::format("[{}] {}: {}", name, prefix_, message);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  sink_->write(line);
}

std::shared_ptr<const void> Logger::showDebug() const {
  if (!sink_) return nullptr;
  sink_->wantDebug(1);
  return {sink_.get(), [sink = sink_](const void*) { sink->wantDebug(-1); }};
}

bool Logger::showsDebug() const { return sink_ && sink_->isDebugWanted(); }

void Logger::plain(std::string_view line) const {
  if (sink_) sink_->write(line);
}

bool Logger::flush(std::chrono::milliseconds budget) const { return !sink_ || sink_->flush(budget); }

uint64_t Logger::droppedLines() const { return sink_ ? sink_->dropped() : 0; }

}  // namespace idetcd
