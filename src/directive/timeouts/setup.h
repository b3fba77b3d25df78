// The directive `timeouts`: how long a connection over TCP may be of no use.
#pragma once

#include <chrono>
#include <optional>

#include "resolve/directive.h"

namespace idetcd::directive {

struct Timeouts {
  std::optional<std::chrono::milliseconds> read;   // until the first query is there
  std::optional<std::chrono::milliseconds> write;  // without a byte read by the client
  std::optional<std::chrono::milliseconds> idle;   // between queries
};

class TimeoutsDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  bool limitTcp(resolve::TcpLimits& limits) const override;

 private:
  Timeouts timeouts_;
};

extern const resolve::DirectiveType kTimeoutsDirective;

}  // namespace idetcd::directive
