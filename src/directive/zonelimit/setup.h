// The directive `zonelimit`: how many questions about one zone are on their way at a time.
#pragma once

#include "resolve/directive.h"
#include "resolver/resolver_settings.h"
#include "resolver/zone_limiter.h"

namespace idetcd::directive {

// What is limited is what `forward` asks: it makes a ZoneLimiter for each loop by these options.
class ZonelimitDirective final : public resolve::Directive, public resolver::SettingsSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  void fill(resolver::ResolverSettings& to) const override { to.zone_limit = options_; }

  const resolver::ZoneLimiter::Options& options() const { return options_; }

 private:
  resolver::ZoneLimiter::Options options_;
};

extern const resolve::DirectiveType kZonelimitDirective;

}  // namespace idetcd::directive
