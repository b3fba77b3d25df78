// The settings of the directive `idetcd`, checked, as plain values. Any thread.
#pragma once

#include "base/result.h"
#include "config/corefile.h"
#include "config/directive_cursor.h"
#include "directive/etcd/access.h"
#include "dns/name.h"
#include "node/addresses.h"
#include "node/health_checks.h"
#include "peers/peer_group.h"
#include "records/member_data.h"
#include "slots/name_pattern.h"

namespace idetcd::directive {

struct ClusterSettings : EtcdAccess {
  std::optional<peers::Settings> peers;  // found a cluster, in place of endpoints, or beside them: see `move`
  // Both are configured: the cluster moves from the first to the second.
  enum class Move { kNone, kToPeers, kToEndpoints };
  Move move = Move::kNone;
  slots::NamePattern pattern;
  int64_t limit = 10;
  bool exit_when_full = false;
  std::chrono::seconds lease{20};
  std::chrono::seconds hold{0};  // see naming/reservation.h
  std::chrono::seconds reconcile{60};
  std::vector<std::string> watch;  // see naming::watchedRanges()
  int64_t relay = 100;             // a relay for so many nodes of a large cluster; 0: none
  uint32_t ttl_seconds = 5;
  node::AddressOptions address;
  std::vector<dns::Name> fallthrough;
  bool observe = false;
  std::string state_directory;        // empty: systemd's, if it has made one
  std::vector<std::string> on_claim;  // a program and its arguments; may be empty
  std::vector<records::Service> services;
  std::vector<std::string> topology;  // node::readPlace()'s source; may be empty
  std::vector<node::Check> checks;
  node::CheckTimes check_times;
  bool check_releases = false;
  int check_floor_percent = 50;
  bool only = true;  // there is no `idetcd` with another pattern in the Corefile

  // Of the store in which names are claimed first, and of the one to which the cluster moves.
  bool startsAtPeers() const { return peers && move != Move::kToPeers; }
  bool endsAtPeers() const { return peers && move != Move::kToEndpoints; }
  // "peers" or "endpoint"; nullptr: the cluster does not move.
  const char* movesTo() const;

  // Whether a member that runs with the one serves the other too, but for `fallthrough`.
  bool isSameMember(const ClusterSettings& other) const;
  // How a member that runs with these comes to run with `next`, without a restart.
  enum class Step { kNone, kAddSecond, kKeepFirst, kKeepSecond };
  Step stepTo(const ClusterSettings& next) const;
  // The names as which this machine may ask for the hosts of etcd's endpoints, or of `peers`: itself, if it is the machine's resolver.
  // A short name is completed by a search list, of which only the cluster's own zone can be in the way.
  std::vector<dns::Name> endpointNames() const;

 private:
  bool isSameBesidesStores(const ClusterSettings& other) const;
  bool isSameStore(bool at_peers, const ClusterSettings& other) const;
};

// `cursor` stands at the directive's name. Touches nothing but the words.
Result<ClusterSettings> parseClusterSettings(config::DirectiveCursor& cursor);

std::vector<config::OptionDefault> clusterDefaults();

}  // namespace idetcd::directive
