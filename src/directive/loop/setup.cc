// The directive `loop`: ends the process if its queries come back to it.
#include "resolve/directive.h"
#include "resolver/loop_probe.h"
#include "resolver/resolver_settings.h"

namespace idetcd::directive {

namespace {

class LoopDirective final : public resolve::Directive, public resolver::SettingsSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block&) override { return cursor.finish(); }
  // The probe is made with the first loop's chain, and asks through it.
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override {
    if (!probe_) {
      probe_ = std::make_shared<resolver::LoopProbe>(
          context.loop, resolver::LoopProbe::Options{.zone = context.block.keys.front().zone},
          [&chain](const dns::Query& query, const std::function<void(bool)>& done) {
            if (chain.parts.internal_queries != nullptr) chain.parts.internal_queries->ask(query, done);
          },
          [&process = context.process](const std::string& line) { process.fatal("plugin/loop: " + line); });
    }
    chain.add(
        resolve::makeHandler([probe = probe_](const dns::Query& query, const resolve::Request& request, uint16_t) {
          probe->see(query, request);
          return resolve::QueryOutcome::next();
        }));
    return {};
  }
  void start() override {
    if (probe_) probe_->start();
  }
  // It may live on a little, but says nothing of the servers that are in use from now on.
  void stop() override {
    if (probe_) probe_->stop();
  }
  void fill(resolver::ResolverSettings& to) const override { to.detects_loops = true; }

 private:
  std::shared_ptr<resolver::LoopProbe> probe_;
};

}  // namespace

extern const resolve::DirectiveType kLoopDirective{
    .name = "loop", .syntax = "loop", .make = resolve::makeDirective<LoopDirective>, .once = true};

}  // namespace idetcd::directive
