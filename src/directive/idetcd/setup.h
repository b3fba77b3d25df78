// The directive `idetcd`: the names of a cluster, and this node's own among them.
#pragma once

#include "directive/idetcd/cluster_report.h"
#include "directive/idetcd/cluster_reverse.h"
#include "directive/idetcd/clusters.h"
#include "directive/idetcd/settings.h"
#include "directive/nsid/identity.h"
#include "resolve/cluster_zone.h"
#include "resolve/directive.h"
#include "resolver/resolver_settings.h"

namespace idetcd::directive {

class IdetcdDirective final : public resolve::Directive, public resolver::SettingsSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  void checkTogether(std::span<Directive* const> all) override;
  std::vector<WrittenDirectory> writtenDirectories() const override;
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override;
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;
  std::function<std::string()> readiness() const override;
  void fill(resolver::ResolverSettings& to) const override { to.own_names = settings_.endpointNames(); }

  const ClusterSettings& settings() const { return settings_; }

 private:
  std::shared_ptr<const Identity> makeIdentity(Cluster& cluster, const resolve::Block& block) const;

  ClusterSettings settings_;
  std::shared_ptr<const resolve::ClusterZone> zone_;
  std::shared_ptr<const Identity> identity_;
  std::shared_ptr<const ClusterReverse> reverse_;
  std::shared_ptr<const ClusterReport> report_;
};

extern const resolve::DirectiveType kIdetcdDirective;

}  // namespace idetcd::directive
