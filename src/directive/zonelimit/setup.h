// The directive `zonelimit`: how many questions about one zone are on their way at a time.
#pragma once

#include "resolve/directive.h"
#include "upstream/zone_limiter.h"

namespace idetcd::directive {

// What is limited is what `forward` asks: it makes a ZoneLimiter for each loop by these options.
class ZonelimitDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;

  const upstream::ZoneLimiter::Options& options() const { return options_; }

 private:
  upstream::ZoneLimiter::Options options_;
};

extern const resolve::DirectiveType kZonelimitDirective;

}  // namespace idetcd::directive
