// The directive `whoami`: answers with the address of the client.
#pragma once

#include "resolve/flag_directive.h"

namespace idetcd::directive {

class WhoamiDirective final : public resolve::FlagDirective {
 public:
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;
};

extern const resolve::DirectiveType kWhoamiDirective;

}  // namespace idetcd::directive
