// For app/plan*.cc only: the readers of single directives, and what they share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/plan.h"
#include "config/directive_cursor.h"

namespace idetcd::app {

using config::DirectiveCursor;
using Strings = std::vector<std::string>;

// The whole text as a decimal number.
std::optional<int64_t> parseInteger(std::string_view text);

// Zones as arguments: names, or networks that stand for their reverse zones.
Result<std::vector<dns::Name>> parseZones(const DirectiveCursor& cursor, const Strings& arguments);

Result<ClusterPlan> parseCluster(const config::Directive& directive);
Result<CachePlan> parseCache(const config::Directive& directive);
Result<resolve::Forwarder::Options> parseForward(const config::Directive& directive);
Result<resolve::HostsOptions> parseHosts(const config::Directive& directive,
                                         const std::vector<config::ServerKey>& keys);
Result<resolve::Acl::RuleSet> parseAcl(const config::Directive& directive, const std::vector<config::ServerKey>& keys);

}  // namespace idetcd::app
