// The directive `hosts`: names from a hosts file.
#pragma once

#include "directive/hosts/hosts.h"
#include "resolve/directive.h"

namespace idetcd::directive {

class HostsDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override;
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;

  const HostsOptions& options() const { return options_; }

 private:
  HostsOptions options_;
  std::shared_ptr<const HostsSource> source_;
};

extern const resolve::DirectiveType kHostsDirective;

}  // namespace idetcd::directive
