// The directive `any`: a short answer to queries for every type.
#pragma once

#include "resolve/flag_directive.h"

namespace idetcd::directive {

class AnyDirective final : public resolve::FlagDirective {
 public:
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;
};

extern const resolve::DirectiveType kAnyDirective;

}  // namespace idetcd::directive
