#include "base/log.h"

#include <spdlog/async.h>
#include <spdlog/async_logger.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace idetcd {

class LogSink {
 public:
  LogSink()
      : pool_(std::make_shared<spdlog::details::thread_pool>(kQueueLines, 1)),
        logger_(std::make_shared<spdlog::async_logger>("idetcd", std::make_shared<spdlog::sinks::stdout_sink_mt>(),
                                                       pool_, spdlog::async_overflow_policy::overrun_oldest)) {
    logger_->set_pattern("%v");
    logger_->flush_on(spdlog::level::trace);
  }

  void write(std::string_view line) {
    logger_->log(spdlog::level::info, spdlog::string_view_t(line.data(), line.size()));
  }

  // The pool's destructor drains the queue and joins the writer; flush() therefore only has to be called where the
  // process goes on or where _exit(2) follows.
  void flush() {
    logger_->flush();
    while (pool_->queue_size() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  uint64_t dropped() const { return pool_->overrun_counter(); }

 private:
  static constexpr size_t kQueueLines = 8192;

  std::shared_ptr<spdlog::details::thread_pool> pool_;
  std::shared_ptr<spdlog::async_logger> logger_;
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

void Logger::plain(std::string_view line) const {
  if (sink_) sink_->write(line);
}

void Logger::flush() const {
  if (sink_) sink_->flush();
}

uint64_t Logger::droppedLines() const { return sink_ ? sink_->dropped() : 0; }

}  // namespace idetcd
