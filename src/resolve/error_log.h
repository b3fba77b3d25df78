// `errors`: a line for a query that this server could not answer, alike ones consolidated. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "dns/query.h"

namespace re2 {
class RE2;
}

namespace idetcd::resolve {

class ErrorLog {
 public:
  // Errors that match `pattern` (RE2 syntax, as Go's) are counted, and reported once a `period`.
  struct Consolidation {
    std::chrono::nanoseconds period;
    std::string pattern;
  };

  // An error if a pattern is none.
  static Result<std::unique_ptr<ErrorLog>> make(const std::vector<Consolidation>& consolidations, Logger log);
  ~ErrorLog();

  void write(const dns::Query& query, dns::Rcode rcode, std::string_view reason);
  // Reports the periods that are over. Called about once a second, and at the end with `all`.
  void flush(bool all);

 private:
  struct Counter {
    std::chrono::nanoseconds period;
    std::unique_ptr<re2::RE2> pattern;
    uint64_t count = 0;  // guarded by mutex_, as is `since`
    BootClock::time_point since;
  };

  explicit ErrorLog(Logger log);
  void report(Counter& counter);

  Logger log_;
  std::mutex mutex_;
  std::vector<Counter> counters_;
};

}  // namespace idetcd::resolve
