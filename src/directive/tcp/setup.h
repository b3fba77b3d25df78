// The directive `tcp`: what clients may take up over TCP.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>

#include "resolve/directive.h"

namespace idetcd::directive {

class TcpDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;

  bool limitTcp(resolve::TcpLimits& limits) const override;

 private:
  std::optional<size_t> max_per_client_;
  std::optional<std::chrono::milliseconds> idle_;
};

extern const resolve::DirectiveType kTcpDirective;

}  // namespace idetcd::directive
