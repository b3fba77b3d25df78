#include "directive/errors/error_log.h"

#include <re2/re2.h>

#include "dns/types.h"

namespace idetcd::directive {

ErrorLog::ErrorLog(Logger log) : log_(std::move(log)) {}
ErrorLog::~ErrorLog() { flush(true); }

Result<std::unique_ptr<ErrorLog>> ErrorLog::make(const std::vector<Consolidation>& consolidations, Logger log) {
  std::unique_ptr<ErrorLog> errors(new ErrorLog(std::move(log)));
  for (const Consolidation& consolidation : consolidations) {
    if (consolidation.pattern.size() > kMaxPattern)
      return fail(fmt::format("a regular expression of more than {} bytes", kMaxPattern));
    auto pattern = std::make_unique<re2::RE2>(consolidation.pattern, re2::RE2::Quiet);
    if (!pattern->ok())
      return fail(fmt::format("bad regular expression '{}': {}", consolidation.pattern, pattern->error()));
    errors->consolidated_.push_back({.what = consolidation, .pattern = std::move(pattern)});
  }
  return errors;
}

void ErrorLog::onFailed(const dns::Query& query, dns::Rcode rcode, std::string_view reason) {
  const std::string line = fmt::format("{} {} {}: {}", dns::code(rcode), dns::nameToString(query.qname),
                                       dns::kTypeNames.toString(query.qtype), reason);
  for (Consolidated& consolidated : consolidated_) {
    if (re2::RE2::PartialMatch(reason, *consolidated.pattern)) return count(consolidated, line);
  }
  write(Level::kError, line);
}

void ErrorLog::count(Consolidated& consolidated, std::string_view line) {
  const std::lock_guard lock(mutex_);
  if (consolidated.count++ > 0) return;
  consolidated.since = BootClock::now();
  if (consolidated.what.show_first) write(consolidated.what.level, line);
}

void ErrorLog::flush(bool all) {
  const auto now = BootClock::now();
  const std::lock_guard lock(mutex_);
  for (Consolidated& consolidated : consolidated_) {
    if (consolidated.count > 0 && (all || now - consolidated.since >= consolidated.what.period)) report(consolidated);
  }
}

void ErrorLog::report(Consolidated& consolidated) {
  const Consolidation& what = consolidated.what;
  const uint64_t count = std::exchange(consolidated.count, 0);
  if (what.show_first && count == 1) return;
  write(what.level, fmt::format("{} errors like '{}' occurred in last {}s", count, what.pattern,
                                std::chrono::duration<double>(what.period).count()));
}

void ErrorLog::write(Level level, std::string_view line) const {
  switch (level) {
    case Level::kDebug:
      return log_.debug("{}", line);
    case Level::kInfo:
      return log_.info("{}", line);
    case Level::kWarning:
      return log_.warning("{}", line);
    case Level::kError:
      return log_.error("{}", line);
  }
}

}  // namespace idetcd::directive
