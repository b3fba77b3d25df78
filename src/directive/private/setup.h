// The directive `private`: no private addresses from upstreams.
#pragma once

#include "directive/acl/acl.h"
#include "resolve/directive.h"
#include "resolver/resolver_settings.h"

namespace idetcd::directive {

// What is filtered is what `forward` brings: it makes a filter for each loop.
class PrivateDirective final : public resolve::Directive, public resolver::SettingsSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override;
  void fill(resolver::ResolverSettings& to) const override {
    to.withheld = settings_;
    to.address_rules = rules_;
  }

  const resolver::PrivateSettings& settings() const { return settings_; }

 private:
  resolver::PrivateSettings settings_;
  std::shared_ptr<const Acl> rules_;
};

// The rules of RebindingFilter.
Acl makePrivateRules(const resolver::PrivateSettings& settings);

// The addresses of IANA's special-purpose registries that are not of the world (RFC 6890).
std::vector<Acl::Network> defaultPrivateNetworks();

extern const resolve::DirectiveType kPrivateDirective;

}  // namespace idetcd::directive
