// The directive `health`: an endpoint that says that the process lives, and an end that waits for clients to go elsewhere.
#include <set>

#include "base/ip_address.h"
#include "config/option_table.h"
#include "directive/health/self_check.h"
#include "http/endpoints.h"
#include "http/listen_address.h"
#include "resolve/directive.h"

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

const config::Options<HealthSettings>& options() {
  using namespace config;
  static const Options<HealthSettings> kOptions{
      [](DirectiveCursor& cursor, HealthSettings& settings) {
        return http::readListenAddress(cursor, ":8080", settings.address);
      },
      {{"lameduck", "lameduck DURATION, like 5s",
        duration(&HealthSettings::lame_duck, {.wrong = "'{word}' is negative"})}}};
  return kOptions;
}

class HealthDirective final : public resolve::Configured<HealthSettings> {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block&) override {
    settings_ = {};
    return options().read(cursor, settings_);
  }
  // A process that answers at all is healthy: what it cannot do at the moment is what `ready` is for.
  Result<void> prepare(resolve::Process& process, const resolve::Block&) override {
    process_ = &process;
    const auto listening = process.state<http::Endpoints>().add(
        settings_.address, "/health", [](const http::Request&) { return http::Response{.body = "OK"}; });
    if (!listening) return fail("plugin/health: " + listening.error().message);
    listening_ = listening->front();
    return {};
  }
  void start() override {
    process_->state<LameDuck>().add(settings_.lame_duck);
    self_check_ = std::make_unique<SelfCheck>(process_->loop, listening_, process_->metrics.scope(),
                                              process_->log.named("plugin/health"));
  }
  void stop() override {
    self_check_.reset();
    process_->state<LameDuck>().remove(settings_.lame_duck);
  }

 private:
  resolve::Process* process_ = nullptr;
  SocketAddress listening_;
  std::unique_ptr<SelfCheck> self_check_;
};

}  // namespace

extern const resolve::DirectiveType kHealthDirective{.name = "health",
                                                     .syntax = "health [[HOST]:PORT] [{ ... }]",
                                                     .make = resolve::makeDirective<HealthDirective>,
                                                     .defaults = [] { return options().defaults(); }};

}  // namespace idetcd::directive
