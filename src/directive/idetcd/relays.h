// How the nodes of a cluster reach each other's relays (naming/relay.h): over etcd's API, with TLS, by certificate and token
// of the relay's card.
#pragma once

#include "base/executor.h"
#include "base/ip_address.h"
#include "base/log.h"
#include "base/metrics.h"
#include "directive/idetcd/settings.h"
#include "etcd/completion_thread.h"
#include "naming/relay.h"

namespace idetcd::directive {

// A relay listens on `addresses`. `thread` outlives what is made by these options. Any thread.
naming::RelayOptions relayOptions(etcd::CompletionThread& thread, const ClusterSettings& settings,
                                  std::vector<IpAddress> addresses, std::shared_ptr<Executor> executor,
                                  const metrics::Scope& metrics, const Logger& log);

}  // namespace idetcd::directive
