// The slots of clusters, as /v1/members has them. What an answer lacks is absent. Pure; any thread.
#pragma once

#include "base/json.h"
#include "cli/text.h"

namespace idetcd::cli {

// The member's name and addresses in a further network.
struct HeldNetwork {
  std::string network;
  std::string name;
  std::vector<std::string> addresses;
};

struct HeldSlot {
  int64_t id = 0;
  std::string name;  // absolute, with the dot
  std::vector<std::string> addresses;
  std::vector<HeldNetwork> networks;
  std::optional<std::string> node;  // none: written by the Go plugin, or by hand
  std::string place;                // in the network: "zone/rack/switch"; empty: not said
  std::optional<double> age_seconds;
  std::optional<double> age_at_least_seconds;  // where the age is not known
  std::optional<double> lease_left_seconds;
  bool permanent = false;
  bool drained = false;  // or sick
  bool sick = false;     // and not drained; known of this node only
  bool foreign = false;   // of a node with another pattern
  bool reserved = false;  // nobody holds it: it waits for its node
  bool own = false;
  nlohmann::json said;  // as it came

  static HeldSlot of(const nlohmann::json& said);
  // "192.0.2.1 2001:db8::1, fabric 10.0.0.1", or "-"
  std::string addressText() const;
  bool isUsable() const { return !drained && !foreign && !addresses.empty(); }
  // The remark of the table and of `release` beside the fields: "this node, drained".
  std::string state() const;
  std::string age() const;    // "17.2 s", "> 2 min", or "-"
  std::string lease() const;  // "17.2 s", "none", or "-"
};

struct Cluster {
  std::string pattern;
  std::optional<int64_t> limit;
  std::optional<int64_t> generation = {};  // of the slots
  std::vector<HeldSlot> slots;       // by ID
  std::vector<HeldSlot> reserved;    // by ID
  std::vector<std::string> servers;  // where this machine's server answers for it: "127.0.0.1:53"

  // By place, part by part, then by ID; those without a place come last.
  void orderByPlace();
  // The slots of this cluster's nodes whose names have addresses: neither drained nor without a valid record. Launchers
  // count these.
  std::vector<HeldSlot> usable() const;
};

std::vector<Cluster> clustersOf(const nlohmann::json& members);

// The patterns of "clusters", of /v1/members or /v1/status, as one line.
std::string patternsOf(const nlohmann::json& said);
// The failure where none of them is `pattern`.
Failure unknownPattern(const std::string& pattern, const nlohmann::json& said);

// The only one. The failure lists the patterns where there are several.
Reply<Cluster> onlyCluster(const nlohmann::json& members);

// The input of launchers of distributed programs: TensorFlow, MPI, PyTorch. An index, or rank, is the position among the
// names that are held, so that ranks are dense although IDs are not. Names are without the dot at their end. Pure.

// How the members are called instead: by their names in `network`, if there is one, and by their addresses there, if
// those are wanted: the first, which is the IPv4 one where there are both. The failure may pass: a member has none.
struct Calling {
  std::optional<std::string> network;
  bool by_address = false;
};
Reply<std::vector<HeldSlot>> called(std::vector<HeldSlot> slots, const Calling& calling);

// The position of this node. The failure may pass: it has no name yet, or is drained.
Reply<size_t> ownIndex(const std::vector<HeldSlot>& slots);

// {"cluster": {ROLE: ["name:port", ...]}, "task": {"type": ROLE, "index": i}}
nlohmann::json tensorflowConfig(const std::vector<HeldSlot>& slots, size_t own, const std::string& role, uint64_t port);

// "name slots=N" a line; without `count` just the name.
std::string hostfile(const std::vector<HeldSlot>& slots, std::optional<uint64_t> count);
nlohmann::json hostfileAsJson(const std::vector<HeldSlot>& slots, std::optional<uint64_t> count);

// RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. REQUIRES: own < slots.size().
std::vector<std::pair<std::string, std::string>> torchrunVariables(const std::vector<HeldSlot>& slots, size_t own,
                                                                   uint64_t port);

// "NAME=VALUE" a line, as a POSIX shell and systemd's EnvironmentFile= take it.
std::string asEnvironment(const std::vector<std::pair<std::string, std::string>>& variables);

}  // namespace idetcd::cli
