// The directive `debug`: debug lines in the log, of the whole process.
#pragma once

#include <memory>

#include "resolve/flag_directive.h"

namespace idetcd::directive {

class DebugDirective final : public resolve::FlagDirective {
 public:
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override;
  void start() override { shown_ = log_.showDebug(); }
  void stop() override { shown_.reset(); }

 private:
  Logger log_;
  std::shared_ptr<const void> shown_;
};

extern const resolve::DirectiveType kDebugDirective;

}  // namespace idetcd::directive
