// The directive `ready`: an endpoint that says whether this server can answer all that it is configured for.
#include <fmt/ranges.h>

#include "config/option_table.h"
#include "directive/ready/readiness.h"

namespace idetcd::directive {

namespace {

constexpr std::string_view kAddress = ":8181";

const config::Options<ReadySettings>& options() {
  using namespace config;
  using Monitor = Readiness::Monitor;
  static const Options<ReadySettings> kOptions{
      Field<ReadySettings>([](DirectiveCursor& cursor, ReadySettings& settings) {
        return http::readListenAddress(cursor, kAddress, settings.address);
      })
          .orElse(std::string(kAddress.substr(1)))
          .named("PORT"),
      {{"monitor", "monitor until-ready, or monitor continuously",
        choice(&ReadySettings::monitor,
               {{"until-ready", Monitor::kUntilReady}, {"continuously", Monitor::kContinuously}},
               "monitor type '{word}' not supported")}}};
  return kOptions;
}

class ReadyDirective final : public resolve::Configured<ReadySettings> {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block&) override {
    return options().read(cursor, settings_);
  }
  std::vector<SocketAddress> endpoints() const override {
    return http::resolve(settings_.address).value_or(std::vector<SocketAddress>());
  }
  Result<void> prepare(resolve::Process& process, const resolve::Block&) override {
    auto& readiness = process.state<Readiness>();
    const auto listening = process.state<http::Endpoints>().add(
        settings_.address, "/ready", [&readiness](const http::Request&) { return readiness.respond(); });
    return listening ? Result<void>() : fail("plugin/ready: " + listening.error().message);
  }
  // By now all directives of the block have shared what they have.
  Result<void> addTo(resolve::Chain&, const resolve::LoopContext& context) override {
    if (std::exchange(has_asked_, true)) return {};
    auto& readiness = context.process.state<Readiness>();
    for (const auto& [type, directive] : context.block.directives) {
      if (auto missing = directive->readiness())
        readiness.add(std::string(type->name), std::move(missing), settings_.monitor);
    }
    return {};
  }

 private:
  bool has_asked_ = false;  // the other directives of the block
};

}  // namespace

void Readiness::add(std::string name, std::function<std::string()> missing, Monitor monitor) {
  const std::lock_guard lock(mutex_);
  next_.push_back({.name = std::move(name), .missing = std::move(missing), .monitor = monitor});
}

void Readiness::accept() {
  const std::lock_guard lock(mutex_);
  used_ = std::exchange(next_, {});
}

void Readiness::refuse() {
  const std::lock_guard lock(mutex_);
  next_.clear();
}

std::chrono::milliseconds Readiness::prepareEnd() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  return std::chrono::milliseconds(0);
}

http::Response Readiness::respond() {
  const std::lock_guard lock(mutex_);
  if (ending_) return {.status = 503, .body = "Shutting down"};
  std::vector<std::string> all;
  for (Check& check : used_) {
    if (!check.missing) continue;
    const std::string what = check.missing();
    if (!what.empty()) {
      all.push_back(fmt::format("{}: {}", check.name, what));
    } else if (check.monitor == Monitor::kUntilReady) {
      check.missing = nullptr;
    }
  }
  if (!all.empty() && all != last_said_) log_.info("Not ready: {}", fmt::join(all, "; "));
  last_said_ = all;
  if (all.empty()) return {.body = "OK"};
  return {.status = 503, .body = fmt::format("{}\n", fmt::join(all, "\n"))};
}

extern const resolve::DirectiveType kReadyDirective{.name = "ready",
                                                    .syntax = "ready [[HOST]:PORT] [{ ... }]",
                                                    .make = resolve::makeDirective<ReadyDirective>,
                                                    .once = true,
                                                    .defaults = [] { return options().defaults(); }};

}  // namespace idetcd::directive
