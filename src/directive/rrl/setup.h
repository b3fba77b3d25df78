// The directive `rrl`: limits the rate of responses.
#pragma once

#include "directive/rrl/response_limiter.h"
#include "resolve/directive.h"
#include "resolver/resolver_settings.h"

namespace idetcd::directive {

class RrlDirective final : public resolve::Directive, public resolver::SettingsSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;
  void fill(resolver::ResolverSettings& to) const override { to.limits_clients = true; }

  const RrlSettings& settings() const { return settings_; }

 private:
  RrlSettings settings_;
};

extern const resolve::DirectiveType kRrlDirective;

}  // namespace idetcd::directive
