// The directive `cache`: keeps answers of upstream servers.
#pragma once

#include "resolve/directive.h"
#include "resolver/resolver_settings.h"

namespace idetcd::directive {

// What is forwarded is cached: `forward` makes a Cache for each loop by these settings.
class CacheDirective final : public resolve::Directive, public resolver::SettingsSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override;
  std::vector<WrittenDirectory> writtenDirectories() const override;
  void fill(resolver::ResolverSettings& to) const override { to.cache = settings_; }

  const resolver::CacheSettings& settings() const { return settings_; }

 private:
  resolver::CacheSettings settings_;
};

extern const resolve::DirectiveType kCacheDirective;

}  // namespace idetcd::directive
