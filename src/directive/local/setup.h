// The directive `local`: names of this machine are answered here.
#pragma once

#include "resolve/directive.h"

namespace idetcd::directive {

struct LocalSettings {
  bool prefix = true;  // whether localhost.<any name> is local too
};

class LocalDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;

  const LocalSettings& settings() const { return settings_; }

 private:
  LocalSettings settings_;
};

extern const resolve::DirectiveType kLocalDirective;

}  // namespace idetcd::directive
