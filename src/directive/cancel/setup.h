// The directive `cancel`: how long a query may take. What makes queries wait (`forward`) asks for it.
#pragma once

#include <chrono>

#include "resolve/directive.h"
#include "resolver/resolver_settings.h"

namespace idetcd::directive {

class CancelDirective final : public resolve::Directive, public resolver::SettingsSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  void fill(resolver::ResolverSettings& to) const override { to.cancel_time = timeout_; }

  // Above 0.
  std::chrono::milliseconds timeout() const { return timeout_; }

 private:
  std::chrono::milliseconds timeout_{5001};
};

extern const resolve::DirectiveType kCancelDirective;

}  // namespace idetcd::directive
