// The directive `rrl`: limits the rate of responses.
#pragma once

#include "directive/rrl/response_limiter.h"
#include "resolve/directive.h"

namespace idetcd::directive {

class RrlDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;

  const RrlSettings& settings() const { return settings_; }

 private:
  RrlSettings settings_;
};

extern const resolve::DirectiveType kRrlDirective;

}  // namespace idetcd::directive
