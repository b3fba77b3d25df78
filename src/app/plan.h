// What a Corefile asks for, checked and as plain values: the options of every component of every server block. Making a
// plan touches nothing: no socket, no etcd, no interface. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cluster/name_pattern.h"
#include "cluster/node_address.h"
#include "config/corefile.h"
#include "etcd/client.h"
#include "resolve/acl.h"
#include "resolve/cache.h"
#include "resolve/error_log.h"
#include "resolve/forward.h"
#include "resolve/hosts.h"
#include "resolve/query_log.h"

namespace idetcd::app {

// `idetcd`
struct ClusterPlan {
  std::vector<std::string> endpoints{"http://localhost:2379"};
  std::optional<etcd::TlsFiles> tls;
  std::optional<etcd::Credentials> credentials;
  cluster::NamePattern pattern;
  int64_t limit = 10;
  bool exit_when_full = false;
  std::chrono::seconds lease{20};
  std::chrono::seconds reconcile{60};
  std::vector<std::string> watch;  // see cluster::watchedRanges()
  uint32_t ttl_seconds = 5;
  cluster::AddressOptions address;
  std::vector<dns::Name> fallthrough;
  bool observe = false;
  std::string state_directory;        // empty: systemd's, if it has made one
  std::vector<std::string> on_claim;  // a program and its arguments; may be empty
  bool only = true;                   // there is no `idetcd` with another pattern in the Corefile

  // Whether a member that runs with the one serves the other too, but for `fallthrough`.
  bool isSameMember(const ClusterPlan& other) const;
  etcd::Client::Options etcdOptions() const;
};

// `cache`
struct CachePlan {
  resolve::Cache::Options options;
  std::vector<dns::Name> zones{dns::Name{}};
  bool verify_stale = false;
};

// `bind`: addresses and names of interfaces; empty: every address.
struct BindPlan {
  std::vector<std::string> listen;
  std::vector<std::string> except;
};

struct BlockPlan {
  std::vector<config::ServerKey> keys;
  BindPlan bind;
  size_t workers = 1;
  std::vector<resolve::QueryLog::Rule> log;  // empty: no query is logged
  bool errors = false;
  std::vector<resolve::ErrorLog::Consolidation> consolidate;
  std::optional<ClusterPlan> cluster;
  std::optional<CachePlan> cache;
  std::vector<resolve::Acl::RuleSet> acl;
  std::optional<resolve::HostsOptions> hosts;
  std::vector<resolve::Forwarder::Options> forward;  // in the file's order
  size_t bufsize = dns::kDefaultUdpPayload;
  std::optional<std::string> nsid;  // `nsid [DATA]`
  bool any = false;
  bool loop = false;
  bool minimal = false;
  bool loadbalance = false;
  bool whoami = false;
};

struct Plan {
  std::vector<BlockPlan> blocks;
  std::vector<std::string> warnings;
};

// The directives that this server has, in the order in which their handlers run.
const std::vector<std::string>& directiveNames();

// Whether the files that the Corefile names are read too, as `-validate` does.
enum class NamedFiles : bool { kNotRead, kRead };

// `text` of the file `name`. The error holds all that is wrong, one a line, each complete: "Corefile:3 - Error during
// parsing: …", with what to write instead.
Result<Plan> makePlan(std::string_view name, std::string_view text, uint16_t default_port,
                      NamedFiles files = NamedFiles::kNotRead);

}  // namespace idetcd::app
