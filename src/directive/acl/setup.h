// The directive `acl`: which clients may query.
#pragma once

#include "directive/acl/acl.h"
#include "resolve/directive.h"
#include "resolver/resolver_settings.h"

namespace idetcd::directive {

class AclDirective final : public resolve::Directive, public resolver::SettingsSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override;
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;
  void fill(resolver::ResolverSettings& to) const override { to.limits_clients = true; }

 private:
  std::vector<Acl::RuleSet> rule_sets_;
  std::shared_ptr<const Acl> acl_;
};

extern const resolve::DirectiveType kAclDirective;

}  // namespace idetcd::directive
