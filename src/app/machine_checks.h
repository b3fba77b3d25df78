// What `idetcd doctor` looks at beside the directives: ports, the resolver of the machine, the server that runs, limits and
// clock. Any thread.
#pragma once

#include "app/plan.h"
#include "base/json.h"
#include "node/resolver_config.h"
#include "resolve/finding.h"

namespace idetcd::app {

// `plan`: null if the Corefile cannot be used. `socket`: of the server that is asked; none: the only one there is.
std::vector<resolve::Check> machineChecks(const std::shared_ptr<const Plan>& plan,
                                          const std::optional<std::string>& socket);

// --- pure parts of them ---

// Whether programs ask this server, which listens on `served`; `own` are the addresses of this machine.
resolve::Findings judgeResolver(const node::ResolverConfig& config, std::span<const SocketAddress> served,
                                std::span<const SocketAddress> own);
// The status of a server, as it answers it; `version` is this program's.
resolve::Findings judgeStatus(const nlohmann::json& status, std::string_view version);
// The limit of open files in the text of /proc/PID/limits; none: it is not in there, or there is no limit.
std::optional<uint64_t> maxOpenFiles(std::string_view limits);

}  // namespace idetcd::app
