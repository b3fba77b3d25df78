// The directive `log`: a line for each query.
#pragma once

#include "directive/log/query_log.h"
#include "resolve/directive.h"

namespace idetcd::directive {

class LogDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override;
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;

  const std::vector<QueryLog::Rule>& rules() const { return rules_; }

 private:
  std::vector<QueryLog::Rule> rules_;
  std::shared_ptr<const QueryLog> log_;
};

extern const resolve::DirectiveType kLogDirective;

}  // namespace idetcd::directive
