#include "directive/health/setup.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "config/duration.h"
#include "config/option_table.h"
#include "http/endpoints.h"

namespace idetcd::directive {

namespace {

// Of the configuration that is in use: for how long each of its `health` wishes the process to go on. First loop only.
class LameDuck final : public resolve::ProcessState {
 public:
  explicit LameDuck(resolve::Process& process) : log_(process.log.named("plugin/health")) {}

  void add(std::chrono::milliseconds wish) { wishes_.insert(wish); }
  void remove(std::chrono::milliseconds wish) { wishes_.erase(wishes_.find(wish)); }

  std::chrono::milliseconds prepareEnd() override {
    const std::chrono::milliseconds longest = wishes_.empty() ? std::chrono::milliseconds(0) : *wishes_.rbegin();
    if (longest.count() > 0) log_.info("Going into lameduck mode for {} ms", longest.count());
    return longest;
  }

 private:
  const Logger log_;
  std::multiset<std::chrono::milliseconds> wishes_;
};

class HealthParser {
 public:
  explicit HealthParser(config::DirectiveCursor& cursor) : cursor_(cursor) {}

  // `health [ADDRESS] { lameduck DURATION }`
  Result<HealthSettings> parse() {
    auto address = http::readListenAddress(cursor_, ":8080");
    const auto head = address ? Result<void>() : tl::unexpected(address.error());
    if (address) settings_.address = std::move(*address);
    static constexpr config::OptionTable<HealthParser, 1> kOptions{
        {{"lameduck", "lameduck DURATION, like 5s", &HealthParser::readLameDuck}}};
    const auto read = config::readBlock(cursor_, *this, kOptions, nullptr, head);
    if (!read) return tl::unexpected(read.error());
    return settings_;
  }

 private:
  Result<void> readLameDuck() {
    const auto word = cursor_.oneArg();
    if (!word) return tl::unexpected(word.error());
    const auto duration = config::parseDuration(*word);
    if (!duration) return cursor_.error(duration.error().message);
    if (duration->count() < 0) return cursor_.error(fmt::format("'{}' is negative", *word));
    settings_.lame_duck = std::chrono::ceil<std::chrono::milliseconds>(*duration);
    return {};
  }

  config::DirectiveCursor& cursor_;
  HealthSettings settings_;
};

}  // namespace

Result<void> HealthDirective::read(config::DirectiveCursor& cursor, const resolve::Block&) {
  auto settings = HealthParser(cursor).parse();
  if (!settings) return tl::unexpected(settings.error());
  settings_ = std::move(*settings);
  return {};
}

// A process that answers at all is healthy: what it cannot do at the moment is what `ready` is for.
Result<void> HealthDirective::prepare(resolve::Process& process, const resolve::Block&) {
  process_ = &process;
  const auto listening = process.state<http::Endpoints>().add(
      settings_.address, "/health", [](const http::Request&) { return http::Response{.body = "OK"}; });
  if (!listening) return fail("plugin/health: " + listening.error().message);
  listening_ = listening->front();
  return {};
}

void HealthDirective::start() {
  process_->state<LameDuck>().add(settings_.lame_duck);
  self_check_ = std::make_unique<SelfCheck>(process_->loop, listening_, process_->metrics.scope(),
                                            process_->log.named("plugin/health"));
}

void HealthDirective::stop() {
  self_check_.reset();
  process_->state<LameDuck>().remove(settings_.lame_duck);
}

const resolve::DirectiveType kHealthDirective{
    .name = "health", .syntax = "health [[HOST]:PORT] [{ ... }]", .make = resolve::makeDirective<HealthDirective>};

}  // namespace idetcd::directive
