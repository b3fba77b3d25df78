// What each subcommand does: it asks the node, and says with which output and exit code it ends. See README.md.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace idetcd::cli {

// node_commands.cc: what this node is
Outcome status(const Call& call);
Outcome whoami(const Call& call);
std::string statusText(const nlohmann::json& said);

// members_command.cc: the cluster
Outcome members(const Call& call);
Outcome wait(const Call& call);
Outcome tfConfig(const Call& call);
Outcome printHostfile(const Call& call);
Outcome torchrunEnvironment(const Call& call);
std::string membersText(const nlohmann::json& said);

// operator_commands.cc: what changes something
Outcome drain(const Call& call);
Outcome undrain(const Call& call);
Outcome flushCache(const Call& call);

// release_command.cc
Outcome release(const Call& call);

// top_command.cc
Outcome top(const Call& call);
std::string topText(const nlohmann::json& said);

// xdp_command.cc: what the kernel answers
Outcome xdp(const Call& call);
std::string xdpText(const nlohmann::json& said);

// exec_command.cc
Outcome execute(const Call& call);

// completion.cc
Outcome completion(const Call& call);
std::string bashCompletion();

}  // namespace idetcd::cli
