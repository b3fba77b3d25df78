// The directive `loop`: ends the process if its queries come back to it.
#pragma once

#include "resolve/directive.h"
#include "resolver/loop_probe.h"
#include "resolver/resolver_settings.h"

namespace idetcd::directive {

class LoopDirective final : public resolve::Directive, public resolver::SettingsSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block&) override { return cursor.finish(); }
  // The probe is made with the first loop's chain, and asks through it.
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;
  void start() override;
  void stop() override;
  void fill(resolver::ResolverSettings& to) const override { to.detects_loops = true; }

 private:
  std::shared_ptr<resolver::LoopProbe> probe_;
};

extern const resolve::DirectiveType kLoopDirective;

}  // namespace idetcd::directive
