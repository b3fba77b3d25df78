// `errors`: a line for a query that this server could not answer; equal ones are consolidated. Any thread.
#pragma once

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "dns/query.h"
#include "resolve/handler.h"

namespace re2 {
class RE2;
}

namespace idetcd::directive {

class ErrorLog final : public resolve::FailureObserver {
 public:
  static constexpr size_t kMaxPattern = 10'000;  // bytes, as in CoreDNS

  using Level = Logger::Level;
  // Errors whose reason matches `pattern` (RE2 syntax, as Go's) are counted, and reported once a `period`, at `level`.
  struct Consolidation {
    std::chrono::nanoseconds period;
    std::string pattern;
    Level level = Level::kError;
    bool show_first = false;  // the first one of a period is written at once, and reported only if there are more
  };

  // An error if a pattern is none, or longer than kMaxPattern.
  static Result<std::unique_ptr<ErrorLog>> make(const std::vector<Consolidation>& consolidations, Logger log);
  ~ErrorLog() override;

  void onFailed(const dns::Query& query, dns::Rcode rcode, std::string_view reason) override;
  // Reports the periods that are over. Called about once a second, and at the end with `all`.
  void flush(bool all);

 private:
  struct Consolidated {
    Consolidation what;
    std::unique_ptr<re2::RE2> pattern;
    uint64_t count = 0;  // guarded by mutex_, as is `since`
    BootClock::time_point since{};
  };

  explicit ErrorLog(Logger log);
  void count(Consolidated& consolidated, std::string_view line);
  void report(Consolidated& consolidated);

  Logger log_;
  std::mutex mutex_;
  std::vector<Consolidated> consolidated_;
};

}  // namespace idetcd::directive
