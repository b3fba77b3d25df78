// The directive `cache`: keeps answers of upstream servers.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "dns/name.h"
#include "directive/cache/cache.h"
#include "resolve/directive.h"

namespace idetcd::directive {

struct CacheSettings {
  Cache::Options options;
  std::vector<dns::Name> zones{dns::Name{}};  // whose names are cached
  bool verify_stale = false;                  // the upstream is asked before a stale answer is served
  std::chrono::milliseconds verify_time{1800};  // and waited for so long (RFC 8767 §5: the client response timer)
  std::chrono::seconds stale_ttl{30};           // of stale answers (RFC 8767 §4)
  std::string directory{};  // where the caches are kept over a restart; empty: they are not
};

// What is forwarded is cached: `forward` makes a Cache for each loop by these settings.
class CacheDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override;
  std::vector<std::string> writtenDirectories() const override;

  const CacheSettings& settings() const { return settings_; }

 private:
  CacheSettings settings_;
};

extern const resolve::DirectiveType kCacheDirective;

}  // namespace idetcd::directive
