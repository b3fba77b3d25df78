// The directive `acl`: which clients may query.
#pragma once

#include <memory>
#include <vector>

#include "directive/acl/acl.h"
#include "resolve/directive.h"

namespace idetcd::directive {

class AclDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override;
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;

 private:
  std::vector<Acl::RuleSet> rule_sets_;
  std::shared_ptr<const Acl> acl_;
};

extern const resolve::DirectiveType kAclDirective;

}  // namespace idetcd::directive
