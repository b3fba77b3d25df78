// The directive `tcp`: what clients may take up over TCP.
#pragma once

#include <optional>

#include "resolve/directive.h"

namespace idetcd::plugin {

class TcpDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;

  std::optional<resolve::TcpLimits> tcpLimits() const override { return limits_; }

 private:
  resolve::TcpLimits limits_;
};

extern const resolve::DirectiveType kTcpDirective;

}  // namespace idetcd::plugin
