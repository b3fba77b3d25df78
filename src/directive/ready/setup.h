// The directive `ready`: an endpoint that says whether this server can answer all that it is configured for.
#pragma once

#include "http/listen_address.h"
#include "directive/ready/readiness.h"
#include "resolve/directive.h"

namespace idetcd::directive {

struct ReadySettings {
  http::ListenAddress address;
  Readiness::Monitor monitor = Readiness::Monitor::kUntilReady;
};

class ReadyDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override;
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;

  const ReadySettings& settings() const { return settings_; }

 private:
  ReadySettings settings_;
  bool has_asked_ = false;  // the other directives of the block
};

extern const resolve::DirectiveType kReadyDirective;

}  // namespace idetcd::directive
