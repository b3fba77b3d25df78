// The directive `forward`: asks other servers.
#pragma once

#include "directive/forward/control_paths.h"
#include "resolve/directive.h"
#include "resolver/forwarder.h"
#include "resolver/resolver_settings.h"

namespace idetcd::directive {

class ForwardDirective final : public resolve::Directive, public resolver::SettingsSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override;
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;
  void fill(resolver::ResolverSettings& to) const override { to.forwards = options_; }

  // Warns of a public address at which everybody may ask, once a process.
  void start() override;

  // One for each `forward` of the block, in the file's order.
  const std::vector<resolver::Forwarder::Options>& options() const { return options_; }

 private:
  std::vector<resolver::Forwarder::Options> options_;
  std::shared_ptr<BlockReport> report_;
  resolve::Process* process_ = nullptr;
  std::vector<SocketAddress> local_addresses_;
  std::optional<SocketAddress> public_address_;  // where everybody may ask
};

extern const resolve::DirectiveType kForwardDirective;

}  // namespace idetcd::directive
