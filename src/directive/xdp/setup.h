// The directive `xdp`: the cluster's names are answered in the kernel, where packets come in.
#pragma once

#include "kernel/program.h"
#include "directive/xdp/settings.h"
#include "resolve/directive.h"

namespace idetcd::directive {

class XdpDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  void checkTogether(std::span<Directive* const> all) override;
  Result<void> check(const resolve::Block& block) const override;
  Result<void> beforeConfinement() override;
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override;
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;

  const XdpSettings& settings() const { return settings_; }

 private:
  XdpSettings settings_;
  bool is_first_ = true;  // of the Corefile's
  bool differs_ = false;  // from the first
  std::optional<Result<kernel::Attachment>> taken_;
  std::vector<std::string> losing_;  // interfaces that lose answers as they are
};

extern const resolve::DirectiveType kXdpDirective;

}  // namespace idetcd::directive
