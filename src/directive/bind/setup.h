// The directive `bind`: the addresses that a server block listens on.
#pragma once

#include <string>
#include <vector>

#include "base/ip_address.h"
#include "resolve/directive.h"

namespace idetcd::directive {

class BindDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;

  Result<std::vector<SocketAddress>> listenAddresses() const override;  // as the machine's interfaces are now

  // Addresses and names of interfaces.
  const std::vector<std::string>& listen() const { return listen_; }
  const std::vector<std::string>& except() const { return except_; }

 private:
  std::vector<std::string> listen_;
  std::vector<std::string> except_;
};

extern const resolve::DirectiveType kBindDirective;

}  // namespace idetcd::directive
