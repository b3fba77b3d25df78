// The directive `reload`: a Corefile that has changed is taken over without a signal.
#pragma once

#include "directive/reload/corefile_watch.h"
#include "resolve/directive.h"

namespace idetcd::directive {

class ReloadDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override;
  void start() override;
  void stop() override;

  const ReloadSettings& settings() const { return settings_; }

 private:
  ReloadSettings settings_;
  CorefileWatch* watch_ = nullptr;  // of the process
};

extern const resolve::DirectiveType kReloadDirective;

}  // namespace idetcd::directive
