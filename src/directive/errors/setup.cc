// The directive `errors`: a line for each query that could not be answered.
#include <re2/re2.h>

#include "config/duration.h"
#include "config/option_table.h"
#include "directive/errors/error_log.h"
#include "dns/types.h"
#include "net/event_loop.h"
#include "resolve/directive.h"

namespace idetcd::directive {

namespace {

std::optional<ErrorLog::Level> parseLevel(std::string_view word) {
  using Level = ErrorLog::Level;
  static constexpr std::array<std::pair<std::string_view, Level>, 4> kLevels{
      {{"debug", Level::kDebug}, {"info", Level::kInfo}, {"warning", Level::kWarning}, {"error", Level::kError}}};
  const auto found = std::find_if(kLevels.begin(), kLevels.end(), [word](const auto& l) { return l.first == word; });
  return found != kLevels.end() ? std::optional(found->second) : std::nullopt;
}

using Consolidations = std::vector<ErrorLog::Consolidation>;

Result<void> readFile(config::DirectiveCursor& cursor, Consolidations&) {
  const auto file = cursor.args(0, 1);
  if (!file) return tl::unexpected(file.error());
  if (file->empty() || file->front() == "stdout") return {};
  return cursor.error(fmt::format("a log file other than stdout is not supported: '{}'", file->front()));
}

// `consolidate DURATION REGEX [LEVEL] [show_first]`
Result<void> readConsolidate(config::DirectiveCursor& cursor, Consolidations& consolidations) {
  auto arguments = cursor.args(2, 4);
  if (!arguments) return tl::unexpected(arguments.error());
  const auto period = config::parseDuration((*arguments)[0]);
  if (!period) return cursor.error(period.error().message);
  if (period->count() <= 0) return cursor.error(fmt::format("invalid duration: '{}'", (*arguments)[0]));
  ErrorLog::Consolidation consolidation{.period = *period, .pattern = (*arguments)[1]};
  if (arguments->size() > 2 && arguments->back() == "show_first") {
    consolidation.show_first = true;
    arguments->pop_back();
  }
  if (arguments->size() > 3) return cursor.error(fmt::format("not 'show_first': '{}'", arguments->back()));
  if (arguments->size() == 3) {
    const auto level = parseLevel(arguments->back());
    if (!level) return cursor.error(fmt::format("unknown level '{}'", arguments->back()));
    consolidation.level = *level;
  }
  // Made once here, to refuse a bad pattern with its line.
  if (const auto made = ErrorLog::make({consolidation}, {}); !made) return cursor.error(made.error().message);
  consolidations.push_back(std::move(consolidation));
  return {};
}

class ErrorsDirective final : public resolve::Configured<std::vector<ErrorLog::Consolidation>> {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block&) override {
    static const config::Options<Consolidations> kOptions{
        readFile,
        {{"consolidate", "consolidate DURATION REGEX [warning|error|info|debug] [show_first]", readConsolidate},
         {"stacktrace", "stacktrace", config::ignored<Consolidations>()}}};  // for panics, which there are not
    return kOptions.read(cursor, settings_);
  }
  Result<void> prepare(resolve::Process& process, const resolve::Block&) override {
    auto made = ErrorLog::make(settings_, process.log.named("plugin/errors"));
    if (!made) return tl::unexpected(made.error());
    log_ = std::move(*made);
    loop_ = &process.loop;
    return {};
  }
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext&) override {
    chain.parts.errors = log_;
    return {};
  }
  void start() override {
    constexpr std::chrono::seconds kInterval(1);
    report_ = std::make_unique<net::Timer>(*loop_, [log = log_] { log->flush(false); });
    report_->start(kInterval, kInterval);
  }

 private:
  std::shared_ptr<ErrorLog> log_;
  net::EventLoop* loop_ = nullptr;      // the first one
  std::unique_ptr<net::Timer> report_;  // once it is in use
};

}  // namespace

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
  log_.write(Level::kError, line);
}

void ErrorLog::count(Consolidated& consolidated, std::string_view line) {
  const std::lock_guard lock(mutex_);
  if (consolidated.count++ > 0) return;
  consolidated.since = BootClock::now();
  if (consolidated.what.show_first) log_.write(consolidated.what.level, line);
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
  log_.write(what.level, fmt::format("{} errors like '{}' occurred in last {}s", count, what.pattern,
                                     std::chrono::duration<double>(what.period).count()));
}

extern const resolve::DirectiveType kErrorsDirective{.name = "errors",
                                                     .syntax = "errors [stdout] [{ ... }]",
                                                     .make = resolve::makeDirective<ErrorsDirective>,
                                                     .once = true};

}  // namespace idetcd::directive
