// The directive `workers`: how many event loops a server block is answered by.
#pragma once

#include <cstddef>

#include "resolve/directive.h"

namespace idetcd::directive {

class WorkersDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;

  size_t workerCount() const override { return count_; }

 private:
  size_t count_ = 1;
};

extern const resolve::DirectiveType kWorkersDirective;

}  // namespace idetcd::directive
