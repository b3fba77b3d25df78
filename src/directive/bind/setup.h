// The directive `bind`: the addresses that a server block listens on.
#pragma once

#include "base/ip_address.h"
#include "resolve/directive.h"
#include "resolver/resolver_settings.h"

namespace idetcd::directive {

// Addresses and names of interfaces.
struct BindSettings {
  std::vector<std::string> listen;
  std::vector<std::string> except;
};

class BindDirective final : public resolve::Directive, public resolver::SettingsSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  void fill(resolver::ResolverSettings& to) const override { to.listen = listen(); }

  Result<std::vector<SocketAddress>> listenAddresses() const override;  // as the machine's interfaces are now

  const std::vector<std::string>& listen() const { return settings_.listen; }
  const std::vector<std::string>& except() const { return settings_.except; }

 private:
  BindSettings settings_;
};

extern const resolve::DirectiveType kBindDirective;

}  // namespace idetcd::directive
