// The directive `chaos`: what this server says of itself in class CH.
#pragma once

#include "directive/chaos/chaos.h"
#include "directive/nsid/identity.h"
#include "resolve/directive.h"

namespace idetcd::directive {

class ChaosDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override;
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;

  const ChaosTexts& texts() const { return texts_; }

 private:
  ChaosTexts texts_;
  std::shared_ptr<const Identity> identity_;  // null: another directive of the block says which node this is
};

extern const resolve::DirectiveType kChaosDirective;

}  // namespace idetcd::directive
