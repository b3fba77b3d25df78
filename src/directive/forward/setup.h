// The directive `forward`: asks other servers.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "directive/forward/control_paths.h"
#include "resolve/directive.h"
#include "resolver/forwarder.h"

namespace idetcd::directive {

class ForwardDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override;
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;

  // Warns of a public address at which everybody may ask, once a process.
  void start() override;

  // One for each `forward` of the block, in the file's order.
  const std::vector<resolver::Forwarder::Options>& options() const { return options_; }

  // Names by which this process is to reach its own source of records through this machine's resolver. They count as
  // named by the block, and asked for from this machine they have room before all others. Before addTo().
  void setOwnNames(std::vector<dns::Name> names) { own_names_ = std::move(names); }

 private:
  Result<std::vector<std::unique_ptr<resolver::Forwarder>>> makeForwarders(const resolve::LoopContext& context) const;

  std::vector<resolver::Forwarder::Options> options_;
  std::shared_ptr<BlockReport> report_;
  std::vector<dns::Name> own_names_;
  resolve::Process* process_ = nullptr;
  std::vector<SocketAddress> local_addresses_;
  std::optional<SocketAddress> public_address_;  // where everybody may ask
};

extern const resolve::DirectiveType kForwardDirective;

}  // namespace idetcd::directive
