// The directive `dns64`: IPv6 addresses for hosts that have IPv4 addresses only.
#pragma once

#include "resolve/directive.h"
#include "resolver/nat64_prefix.h"

namespace idetcd::directive {

struct Dns64Settings {
  resolver::Nat64Prefix prefix;
  bool translate_all = false;
  bool allow_ipv4 = false;
};

class Dns64Directive final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;

  const Dns64Settings& settings() const { return settings_; }

 private:
  Dns64Settings settings_;
};

extern const resolve::DirectiveType kDns64Directive;

}  // namespace idetcd::directive
