// A key of etcd and its value as SkyDNS has them: what a service's name has in DNS.
//
//   key      /skydns/test/example/web/a     a.web.example.test., below the path /skydns
//   value    {"host": "192.0.2.1" | "name", "port", "priority", "weight", "text", "mail", "ttl", "targetstrip", "group"}
//
// Immutable, but for a lease's TTL; any thread.
#pragma once

#include "base/ip_address.h"
#include "base/result.h"
#include "dns/name.h"

namespace idetcd::skydns {

inline constexpr uint32_t kDefaultTtl = 300;  // seconds

// How long clients may keep what is under a lease. Written by the follower.
struct LeaseTtl {
  std::atomic<uint32_t> seconds;
};

struct Service {
  std::string key;                         // below the path: "/test/example/web/a"
  std::optional<IpAddress> address{};      // a host that is an address; an IPv4-mapped one is the IPv4 address
  std::string target{};                    // any other host: a name in wire form, lower case; empty: there is no host
  std::string text{};
  std::string group{};
  int32_t port = 0;                        // one that is no port has no SRV record
  uint16_t priority = 10;
  uint16_t weight = 100;
  bool mail = false;
  uint8_t target_strip = 0;                // labels that the names of targets are without
  uint32_t ttl_seconds = 0;                // 0: not said
  std::shared_ptr<const LeaseTtl> lease{};  // null: there is none

  // Of memory, about.
  size_t bytes() const { return sizeof(Service) + key.size() + target.size() + text.size() + group.size(); }
  bool hasHost() const { return address || !target.empty(); }
  // The lesser of its own and its lease's, in seconds.
  uint32_t ttl() const;
};

// The error says what is wrong with the value. `key`: as Service's.
Result<Service> parseService(std::string key, std::string_view value);

// The key of a name; none: no key can have it. REQUIRES: valid, uncompressed, lower case.
std::optional<std::string> keyOf(std::span<const uint8_t> name);
// The name of a key; none: it is no name.
std::optional<dns::Name> nameOf(std::string_view key);

}  // namespace idetcd::skydns
