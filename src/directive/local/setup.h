// The directive `local`: names of this machine are answered here.
#pragma once

#include "resolve/directive.h"

namespace idetcd::directive {

class LocalDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;

  bool prefix() const { return prefix_; }  // whether localhost.<any name> is local too

 private:
  bool prefix_ = true;
};

extern const resolve::DirectiveType kLocalDirective;

}  // namespace idetcd::directive
