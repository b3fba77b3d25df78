// A machine's view of the cluster that it has founded or joined, as JSON, for `idetcd peers`. Any thread.
#pragma once

#include "base/json.h"
#include "peers/peer_group.h"

namespace idetcd::directive {

// Asks the voters: blocks for some seconds.
nlohmann::json describePeers(const peers::PeerGroup& group);
// For what it waits, until it is a member: "no cluster yet: 37 of 101 machines seen, 12 s". Empty: it is one.
std::string waitsFor(const peers::PeerGroup& group);

}  // namespace idetcd::directive
