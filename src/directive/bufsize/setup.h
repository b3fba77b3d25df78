// The directive `bufsize`: how large a UDP response may be.
#pragma once

#include <algorithm>
#include <cstddef>

#include "resolve/directive.h"
#include "resolver/resolver_settings.h"

namespace idetcd::directive {

class BufsizeDirective final : public resolve::Directive, public resolver::SettingsSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;
  void fill(resolver::ResolverSettings& to) const override { to.udp_payload = std::min(to.udp_payload, bytes_); }

  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = dns::kDefaultUdpPayload;
};

extern const resolve::DirectiveType kBufsizeDirective;

}  // namespace idetcd::directive
