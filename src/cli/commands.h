// What each subcommand does: it asks the node, and says with which output and exit code it ends. See README.md.
#pragma once

#include "base/json.h"
#include "cli/command.h"

namespace idetcd::cli {

// node_commands.cc: what this node is
CommandResult status(const Call& call);
CommandResult whoami(const Call& call);
std::string statusText(const nlohmann::json& said);

// members_command.cc: the cluster
CommandResult members(const Call& call);
CommandResult wait(const Call& call);
CommandResult tfConfig(const Call& call);
CommandResult printHostfile(const Call& call);
CommandResult torchrunEnvironment(const Call& call);
std::string membersText(const nlohmann::json& said);

// operator_commands.cc: what changes something
CommandResult drain(const Call& call);
CommandResult undrain(const Call& call);
CommandResult flushCache(const Call& call);

// release_command.cc
CommandResult release(const Call& call);

// top_command.cc
CommandResult top(const Call& call);
std::string topText(const nlohmann::json& said);

// xdp_command.cc: what the kernel answers
CommandResult xdp(const Call& call);
std::string xdpText(const nlohmann::json& said);

// exec_command.cc
CommandResult execute(const Call& call);

// completion.cc
CommandResult completion(const Call& call);
std::string bashCompletion();

}  // namespace idetcd::cli
