// The directive `ready`: an endpoint that says whether this server can answer all that it is configured for.
#include "config/option_table.h"
#include "directive/ready/readiness.h"
#include "http/endpoints.h"
#include "http/listen_address.h"
#include "resolve/directive.h"

namespace idetcd::directive {

namespace {

const config::Options<ReadySettings>& options() {
  using namespace config;
  using Monitor = Readiness::Monitor;
  static const Options<ReadySettings> kOptions{
      [](DirectiveCursor& cursor, ReadySettings& settings) {
        return http::readListenAddress(cursor, ":8181", settings.address);
      },
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

extern const resolve::DirectiveType kReadyDirective{.name = "ready",
                                                    .syntax = "ready [[HOST]:PORT] [{ ... }]",
                                                    .make = resolve::makeDirective<ReadyDirective>,
                                                    .once = true,
                                                    .defaults = [] { return options().defaults(); }};

}  // namespace idetcd::directive
