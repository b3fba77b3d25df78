// The directive `local`: names of this machine are answered here.
#include "config/option_table.h"
#include "directive/local/local.h"
#include "resolve/directive.h"

namespace idetcd::directive {

namespace {

const config::Options<LocalSettings>& options() {
  static const config::Options<LocalSettings> kOptions{
      {"localhost_prefix", "localhost_prefix on|off",
       config::choice(&LocalSettings::prefix, {{"on", true}, {"off", false}}, "'{word}' is neither on nor off")}};
  return kOptions;
}

class LocalDirective final : public resolve::Configured<LocalSettings> {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block&) override {
    return options().read(cursor, settings_);
  }
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override {
    chain.add(std::make_unique<Local>(settings_.prefix, context.process.log.named("plugin/local"),
                                      context.process.metrics.scope()));
    return {};
  }
};

}  // namespace

extern const resolve::DirectiveType kLocalDirective{.name = "local",
                                                    .syntax = "local [{ localhost_prefix on|off }]",
                                                    .make = resolve::makeDirective<LocalDirective>,
                                                    .defaults = [] { return options().defaults(); }};

}  // namespace idetcd::directive
