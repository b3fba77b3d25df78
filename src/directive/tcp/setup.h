// The directive `tcp`: what clients may take up over TCP.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>

#include "resolve/directive.h"

namespace idetcd::directive {

struct TcpSettings {
  std::optional<size_t> max_per_client;
  std::optional<std::chrono::milliseconds> idle;
};

class TcpDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;

  bool limitTcp(resolve::TcpLimits& limits) const override;

 private:
  TcpSettings settings_;
};

extern const resolve::DirectiveType kTcpDirective;

}  // namespace idetcd::directive
