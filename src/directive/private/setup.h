// The directive `private`: no private addresses from upstreams.
#pragma once

#include <memory>
#include <vector>

#include "directive/private/rebinding_filter.h"
#include "resolve/directive.h"

namespace idetcd::directive {

struct PrivateSettings {
  std::vector<dns::Name> zones;        // the server block's where the directive names none
  std::vector<dns::Name> allowed;      // names within these may have any address
  std::vector<Acl::Network> networks;  // whose addresses are withheld; empty: defaultPrivateNetworks()
  bool allow_loopback = false;         // 127.0.0.0/8 and ::1 all the same
  bool operator==(const PrivateSettings&) const = default;
};

// What is filtered is what `forward` brings: it makes a filter for each loop.
class PrivateDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override;

  const PrivateSettings& settings() const { return settings_; }
  // Of RebindingFilter; after prepare().
  const std::shared_ptr<const Acl>& rules() const { return rules_; }

 private:
  PrivateSettings settings_;
  std::shared_ptr<const Acl> rules_;
};

// The rules of RebindingFilter.
Acl makePrivateRules(const PrivateSettings& settings);

// The addresses of IANA's special-purpose registries that are not of the world (RFC 6890).
std::vector<Acl::Network> defaultPrivateNetworks();

extern const resolve::DirectiveType kPrivateDirective;

}  // namespace idetcd::directive
