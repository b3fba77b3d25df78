// The directive `errors`: a line for each query that could not be answered.
#include "config/arguments.h"
#include "config/duration.h"
#include "config/option_table.h"
#include "directive/errors/error_log.h"
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

extern const resolve::DirectiveType kErrorsDirective{.name = "errors",
                                                     .syntax = "errors [stdout] [{ ... }]",
                                                     .make = resolve::makeDirective<ErrorsDirective>,
                                                     .once = true};

}  // namespace idetcd::directive
