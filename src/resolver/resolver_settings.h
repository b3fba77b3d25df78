// How one server block resolves foreign names: values, which its directives fill in, each its own. What is made of them
// is the resolver's; a directive learns nothing of the others.
#pragma once

#include "dns/name.h"
#include "resolve/directive.h"
#include "resolver/cache.h"
#include "resolver/forwarder.h"
#include "resolver/zone_limiter.h"

namespace idetcd::resolver {

// `cache`: what is forwarded is cached.
struct CacheSettings {
  Cache::Options options;
  std::vector<dns::Name> zones{dns::Name{}};    // whose names are cached
  bool verify_stale = false;                    // the upstream is asked before a stale answer is served
  std::chrono::milliseconds verify_time{1800};  // and waited for so long (RFC 8767 §5: the client response timer)
  std::chrono::seconds stale_ttl{30};           // of stale answers (RFC 8767 §4)
  std::string directory{};                      // where the caches are kept over a restart; empty: they are not
};

// `private`: what is withheld of that.
struct PrivateSettings {
  std::vector<dns::Name> zones;     // the server block's where the directive names none
  std::vector<dns::Name> allowed;   // names within these may have any address
  std::vector<IpNetwork> networks;  // whose addresses are withheld; empty: those of no use in the world
  bool allow_loopback = false;      // 127.0.0.0/8 and ::1 all the same
};

struct ResolverSettings {
  std::vector<Forwarder::Options> forwards;            // one for each `forward`, in the file's order
  std::optional<CacheSettings> cache;                  // nothing: answers are not cached
  std::optional<PrivateSettings> withheld;             // nothing: any address may come from upstreams
  std::shared_ptr<const resolve::Gate> address_rules;  // of RebindingFilter, by `withheld`; after prepare()
  std::optional<ZoneLimiter::Options> zone_limit;
  bool minimal = false;
  bool detects_loops = false;
  bool limits_clients = false;                   // by address, or by rate
  bool cookies = true;                           // are sent to upstreams
  size_t udp_payload = dns::kDefaultUdpPayload;  // is offered to them at most
  std::chrono::milliseconds cancel_time{0};   // a client gets SERVFAIL after so long; 0: when the upstreams have failed
  bool loadbalance = false;                   // the addresses of answers are rotated,
  std::vector<IpNetwork> preferred_networks;  // and those within these come first
  std::vector<std::string> listen;            // addresses and interfaces; empty: on every address
  // Names by which this process is to reach its own source of records through this machine's resolver. They count as
  // named by the block, and asked for from this machine they have room before all others.
  std::vector<dns::Name> own_names;
};

// A directive that has a say in it.
class SettingsSource {
 public:
  virtual ~SettingsSource() = default;
  virtual void fill(ResolverSettings& settings) const = 0;
};

// The settings by all directives of this block.
inline ResolverSettings settingsOf(const resolve::Block& block) {
  ResolverSettings settings;
  for (const auto& [type, directive] : block.directives) {
    if (const auto* source = dynamic_cast<const SettingsSource*>(directive.get())) source->fill(settings);
  }
  return settings;
}

}  // namespace idetcd::resolver
