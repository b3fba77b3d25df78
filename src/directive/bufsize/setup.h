// The directive `bufsize`: how large a UDP response may be.
#pragma once

#include <cstddef>

#include "resolve/directive.h"

namespace idetcd::directive {

class BufsizeDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;

  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = dns::kDefaultUdpPayload;
};

extern const resolve::DirectiveType kBufsizeDirective;

}  // namespace idetcd::directive
