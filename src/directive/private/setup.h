// The directive `private`: no private addresses from upstreams.
#pragma once

#include "directive/acl/acl.h"
#include "resolver/resolver_settings.h"

namespace idetcd::directive {

// The rules of RebindingFilter.
Acl makePrivateRules(const resolver::PrivateSettings& settings);

// The addresses of IANA's special-purpose registries that are not of the world (RFC 6890).
std::vector<Acl::Network> defaultPrivateNetworks();

}  // namespace idetcd::directive
