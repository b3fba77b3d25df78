#include "app/doctor.h"

#include <filesystem>
#include <future>
#include <sstream>

#include "app/corefile_source.h"
#include "app/machine_checks.h"
#include "base/executor.h"
#include "base/json.h"
#include "directive/order.h"

namespace idetcd::app {
namespace {

using resolve::Check;
using resolve::Finding;
using resolve::Findings;
using resolve::Severity;

constexpr std::chrono::milliseconds kCorefileTime{1000};  // to be read, with the files that it names
constexpr std::chrono::milliseconds kCheckTime{4000};     // of all checks together, which go on side by side
constexpr size_t kMostChecks = 64;                        // at once
constexpr const char* kUsual = "Corefile";  // in the working directory
constexpr const char* kInstalled = "/etc/idetcd/Corefile";

struct Results {
  std::mutex mutex;
  std::vector<std::optional<Findings>> of_checks;  // guarded by it
};

std::string usualCorefile() {
  std::error_code error;
  if (std::filesystem::exists(kUsual, error) || !std::filesystem::exists(kInstalled, error)) return {};
  return kInstalled;
}

// None: it takes longer than kCorefileTime.
std::optional<CorefileSource::Reading> readCorefile(const std::string& path, Executor& executor) {
  Options options;
  options.conf = path;
  const auto promise = std::make_shared<std::promise<CorefileSource::Reading>>();
  auto reading = promise->get_future();
  executor.submit(
      [promise, source = CorefileSource(options)] { promise->set_value(source.read(NamedFiles::kRead)); });
  if (reading.wait_for(kCorefileTime) != std::future_status::ready) return std::nullopt;
  return reading.get();
}

// What `-validate` says of it. `is_default`: there is no file.
Findings judgeCorefile(const std::optional<CorefileSource::Reading>& reading, bool is_default) {
  if (!reading) {
    return {{Severity::kError, fmt::format("it cannot be read within {} ms, or a file that it names", kCorefileTime.count()),
             "look at the file systems and pipes that it names"}};
  }
  Findings findings;
  if (!reading->plan) {
    std::istringstream lines(reading->plan.error().message);
    for (std::string line; std::getline(lines, line);)
      findings.push_back({Severity::kError, line, reading->was_read ? "correct that line" : "--conf FILE says which it is"});
    return findings;
  }
  for (const std::string& warning : reading->plan->warnings) findings.push_back({Severity::kWarning, warning, {}});
  if (is_default) {
    findings.push_back({Severity::kNote,
                        fmt::format("there is none here, and no {}: a server without one answers `whoami` alone", kInstalled),
                        "--conf FILE says which it is"});
  } else {
    findings.push_back({Severity::kOk, fmt::format("{} is valid", reading->name), {}});
  }
  return findings;
}

std::vector<Check> checksOf(const std::shared_ptr<const Plan>& plan, const std::optional<std::string>& socket) {
  std::vector<Check> checks = machineChecks(plan, socket);
  if (!plan) return checks;
  for (const resolve::DirectiveType* type : directive::directives()) {
    if (type->checks == nullptr) continue;
    for (Check& check : type->checks(plan->blocks)) checks.push_back(std::move(check));
  }
  return checks;
}

std::string_view textOf(Severity severity) {
  constexpr std::array<std::string_view, 4> kTexts{"ok", "note", "warning", "error"};
  return kTexts[static_cast<size_t>(severity)];
}

// Collects the findings of all checks.
class Report {
 public:
  void add(const std::string& subject, const Findings& findings) {
    for (const Finding& finding : findings) {
      nlohmann::json one{{"check", subject}, {"state", textOf(finding.severity)}, {"finding", finding.text}};
      if (!finding.fix.empty()) one["fix"] = finding.fix;
      findings_.push_back(std::move(one));
      if (finding.severity == Severity::kWarning) ++warnings_;
      if (finding.severity == Severity::kError) ++errors_;
    }
  }
  std::string text(const std::string& corefile) const {
    return toText(nlohmann::json{
        {"corefile", corefile}, {"findings", findings_}, {"errors", errors_}, {"warnings", warnings_}});
  }

 private:
  nlohmann::json findings_ = nlohmann::json::array();
  int errors_ = 0;
  int warnings_ = 0;
};

}  // namespace

Examined examine(std::string corefile, const std::optional<std::string>& socket) {
  if (corefile.empty()) corefile = usualCorefile();
  Executor executor(kMostChecks);
  auto reading = readCorefile(corefile, executor);
  Report report;
  const bool is_default = corefile.empty() && reading && reading->name != kUsual;
  report.add("Corefile", judgeCorefile(reading, is_default));
  std::shared_ptr<const Plan> plan;
  if (reading && reading->plan) plan = std::make_shared<const Plan>(std::move(*reading->plan));
  const std::vector<Check> checks = checksOf(plan, socket);
  const auto results = std::make_shared<Results>();
  results->of_checks.resize(checks.size());
  for (size_t i = 0; i < checks.size(); ++i) {
    executor.submit([results, i, run = checks[i].run] {
      Findings found = run();
      const std::lock_guard lock(results->mutex);
      results->of_checks[i] = std::move(found);
    });
  }
  const bool at_rest = executor.finish(kCheckTime);
  const std::lock_guard lock(results->mutex);
  for (size_t i = 0; i < checks.size(); ++i) {
    const auto& found = results->of_checks[i];
    report.add(checks[i].subject, found ? *found
                                        : Findings{{Severity::kError, "it is not known in time: something waits",
                                                    "look at file systems and at the load of this machine"}});
  }
  return {.json = report.text(reading ? reading->name : corefile), .at_rest = at_rest};
}

}  // namespace idetcd::app
