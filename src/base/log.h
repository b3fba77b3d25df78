// Logging as CoreDNS prints it: `[INFO] plugin/NAME: message` on stdout, fatal lines on stderr. Any thread. A stream that
// leads to the systemd journal ($JOURNAL_STREAM, systemd.exec(5)) gets the priority in front of a line: sd-daemon(3).
//
// Writing is asynchronous: a line goes into a bounded queue that one writer thread drains, so that a slow disk or a
// full pipe never stalls a query. When the queue is full the oldest line is dropped and counted; it is never waited
// for. Debug lines are written while somebody wants them (showDebug()).
#pragma once

#include "base/std.h"

namespace idetcd {

class LogSink;

// Fatal lines, on stderr: `text` has one or more. Control characters become spaces.
void printError(std::string_view text);

// A cheap, copyable handle: a sink and the prefix of one component. REQUIRES: nothing; a default-made Logger is silent.
class Logger {
 public:
  enum class Level : uint8_t { kDebug, kInfo, kWarning, kError };

  Logger() = default;

  // Starts the writer thread; it ends with the last handle.
  static Logger toStdout();
  // The same sink under a prefix, for example "plugin/idetcd".
  Logger named(std::string_view prefix) const;

  template <typename... Args>
  void debug(fmt::format_string<Args...> format, Args&&... args) const {
    if (!showsDebug()) return;  // before anything is formatted
    write(Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) const {
    write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void warning(fmt::format_string<Args...> format, Args&&... args) const {
    write(Level::kWarning, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) const {
    write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
  }

  // A line of a level that is known at run time.
  void write(Level level, std::string_view message) const;

  // Debug lines are written, whatever the prefix, for as long as one of what this returns lives.
  [[nodiscard]] std::shared_ptr<const void> showDebug() const;
  bool showsDebug() const;

  // A line as it is, without level and prefix (the start-up banner).
  void plain(std::string_view line) const;
  // Waits until everything written so far is out, for at most `budget`: the other end may have no reader. False: it is
  // not, and destroying the last handle would wait for the reader. For the end of a process.
  bool flush(std::chrono::milliseconds budget) const;
  uint64_t droppedLines() const;

 private:
  std::shared_ptr<LogSink> sink_;
  std::string prefix_;
};

}  // namespace idetcd
