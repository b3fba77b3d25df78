// The directive `minimal`: answers carry what was asked for and no more.
#pragma once

#include "resolve/flag_directive.h"
#include "resolver/resolver_settings.h"

namespace idetcd::directive {

class MinimalDirective final : public resolve::FlagDirective, public resolver::SettingsSource {
 public:
  void fill(resolver::ResolverSettings& to) const override { to.minimal = true; }
};

extern const resolve::DirectiveType kMinimalDirective;

}  // namespace idetcd::directive
