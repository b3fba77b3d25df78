// The directive `errors`: a line for each query that could not be answered.
#pragma once

#include "net/event_loop.h"
#include "directive/errors/error_log.h"
#include "resolve/directive.h"

namespace idetcd::directive {

class ErrorsDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override;
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;
  void start() override;

  const std::vector<ErrorLog::Consolidation>& consolidations() const { return consolidations_; }

 private:
  std::vector<ErrorLog::Consolidation> consolidations_;
  std::shared_ptr<ErrorLog> log_;
  net::EventLoop* loop_ = nullptr;      // the first one
  std::unique_ptr<net::Timer> report_;  // once it is in use
};

extern const resolve::DirectiveType kErrorsDirective;

}  // namespace idetcd::directive
