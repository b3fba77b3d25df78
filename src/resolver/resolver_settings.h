// What the directives of one server block say of foreign names.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/ip_network.h"
#include "dns/name.h"
#include "resolver/cache.h"

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
  bool operator==(const resolver::PrivateSettings&) const = default;
};

}  // namespace idetcd::resolver
