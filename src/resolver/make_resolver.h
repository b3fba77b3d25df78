// Makes what resolves the foreign names of one server block on one loop, by what its directives say. Thread as
// resolve::Directive::addTo().
#pragma once

#include "base/result.h"
#include "resolve/chain.h"
#include "resolve/directive.h"
#include "resolver/forwarding_resolver.h"
#include "resolver/resolver_settings.h"

namespace idetcd::resolver {

struct MadeResolver {
  std::unique_ptr<ForwardingResolver> resolver;
  std::string name;  // of the block, for operators: KeptCaches::nameOf()
};

// The error is one line, "plugin/NAME: …". REQUIRES: each of `settings.forwards` has its files, and the resolver becomes
// the next handler of `chain`.
Result<MadeResolver> makeResolver(const ResolverSettings& settings, const resolve::Chain& chain,
                                  const resolve::LoopContext& context);

}  // namespace idetcd::resolver
