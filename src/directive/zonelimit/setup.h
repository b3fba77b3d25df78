// The directive `zonelimit`: how many questions about one zone are on their way at a time.
#pragma once

#include "resolve/directive.h"
#include "resolver/zone_limiter.h"

namespace idetcd::directive {

// What is limited is what `forward` asks: it makes a ZoneLimiter for each loop by these options.
class ZonelimitDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;

  const resolver::ZoneLimiter::Options& options() const { return options_; }

 private:
  resolver::ZoneLimiter::Options options_;
};

extern const resolve::DirectiveType kZonelimitDirective;

}  // namespace idetcd::directive
