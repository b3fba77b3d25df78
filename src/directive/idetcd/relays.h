// How the nodes of a cluster reach each other's relays (naming/relay.h): over etcd's API, with TLS, by certificate and token
// of the relay's card.
#pragma once

#include "base/log.h"
#include "base/metrics.h"
#include "directive/idetcd/settings.h"
#include "etcd/completion_thread.h"
#include "naming/relay.h"
#include "resolve/directive.h"

namespace idetcd::directive {

// `thread` outlives what is made by these options. Any thread.
naming::RelayOptions relayOptions(etcd::CompletionThread& thread, const ClusterSettings& settings,
                                  const resolve::Process& process, const metrics::Scope& metrics, const Logger& log);

}  // namespace idetcd::directive
