// The slots of clusters, as /v1/members has them. What an answer lacks is absent. Pure; any thread.
#pragma once

#include "base/json.h"
#include "cli/failure.h"

namespace idetcd::cli {

struct HeldSlot {
  int64_t id = 0;
  std::string name;  // absolute, with the dot
  std::vector<std::string> addresses;
  std::optional<std::string> node;  // none: written by the Go plugin, or by hand
  std::optional<double> age_seconds;
  std::optional<double> age_at_least_seconds;  // where the age is not known
  std::optional<double> lease_left_seconds;
  bool permanent = false;
  bool drained = false;
  bool foreign = false;  // of a node with another pattern
  bool own = false;
  nlohmann::json said;  // as it came

  static HeldSlot of(const nlohmann::json& said);
  // What the table and `release` say beside the fields: "this node, drained".
  std::string state() const;
  std::string age() const;    // "17.2 s", "> 2 min", or "-"
  std::string lease() const;  // "17.2 s", "none", or "-"
};

struct Cluster {
  std::string pattern;
  std::optional<int64_t> limit;
  std::vector<HeldSlot> slots;       // by ID
  std::vector<std::string> servers;  // where this machine's server answers for it: "127.0.0.1:53"

  // The slots of this cluster's nodes that are not drained: which launchers count.
  std::vector<HeldSlot> usable() const;
};

std::vector<Cluster> clustersOf(const nlohmann::json& members);

// The patterns of "clusters", of /v1/members or /v1/status, as one line.
std::string patternsOf(const nlohmann::json& said);
// The failure where none of them is `pattern`.
Failure unknownPattern(const std::string& pattern, const nlohmann::json& said);

// The only one. The failure lists the patterns where there are several.
Reply<Cluster> onlyCluster(const nlohmann::json& members);

}  // namespace idetcd::cli
