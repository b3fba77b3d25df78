// The directive `loadbalance`: the order of an answer's addresses.
#pragma once

#include <vector>

#include "base/ip_network.h"
#include "resolve/directive.h"
#include "resolver/resolver_settings.h"

namespace idetcd::directive {

class LoadbalanceDirective final : public resolve::Directive, public resolver::SettingsSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  void fill(resolver::ResolverSettings& to) const override {
    to.loadbalance = true;
    to.preferred_networks = preferred_;
  }

  // Addresses within the first of these come first, and so on.
  const std::vector<IpNetwork>& preferred() const { return preferred_; }

 private:
  std::vector<IpNetwork> preferred_;
};

extern const resolve::DirectiveType kLoadbalanceDirective;

}  // namespace idetcd::directive
