#include "resolve/error_log.h"

#include <re2/re2.h>

#include <fmt/format.h>

#include "dns/text.h"

namespace idetcd::resolve {

ErrorLog::ErrorLog(Logger log) : log_(std::move(log)) {}
ErrorLog::~ErrorLog() { flush(true); }

Result<std::unique_ptr<ErrorLog>> ErrorLog::make(const std::vector<Consolidation>& consolidations, Logger log) {
  std::unique_ptr<ErrorLog> errors(new ErrorLog(std::move(log)));
  for (const Consolidation& consolidation : consolidations) {
    auto pattern = std::make_unique<re2::RE2>(consolidation.pattern, re2::RE2::Quiet);
    if (!pattern->ok())
      return fail(fmt::format("bad regular expression '{}': {}", consolidation.pattern, pattern->error()));
    errors->counters_.push_back(
        {.period = consolidation.period, .pattern = std::move(pattern), .count = 0, .since = {}});
  }
  return errors;
}

void ErrorLog::write(const dns::Query& query, dns::Rcode rcode, std::string_view reason) {
  const std::string line = fmt::format("{} {} {}: {}", dns::code(rcode), dns::nameToString(query.qname),
                                       dns::typeToString(query.qtype), reason);
  for (Counter& counter : counters_) {
    if (!re2::RE2::PartialMatch(line, *counter.pattern)) continue;
    const std::lock_guard lock(mutex_);
    if (counter.count++ == 0) counter.since = BootClock::now();
    return;
  }
  log_.error("{}", line);
}

void ErrorLog::flush(bool all) {
  const auto now = BootClock::now();
  const std::lock_guard lock(mutex_);
  for (Counter& counter : counters_) {
    if (counter.count > 0 && (all || now - counter.since >= counter.period)) report(counter);
  }
}

void ErrorLog::report(Counter& counter) {
  log_.error("{} errors like '{}' occurred in last {}s", counter.count, counter.pattern->pattern(),
             std::chrono::duration<double>(counter.period).count());
  counter.count = 0;
}

}  // namespace idetcd::resolve
