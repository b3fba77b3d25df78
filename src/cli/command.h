// The subcommands: `idetcd status`, `idetcd members`, ... They ask the server on this machine; two do their work by the
// Corefile, also before there is a server. One thread.
#pragma once

#include "base/result.h"
#include "cli/arguments.h"
#include "cli/local_node.h"

namespace idetcd::cli {

// Work on what a Corefile says, which needs no server that runs.
struct CorefileRequest {
  std::string corefile;   // its path, or "stdin"; empty: that of a server without `-conf`
  std::string directive;  // of that Corefile; empty: all of it, and the machine, are looked at, for `doctor`
  std::string what = {};
  std::string user = {};                   // empty: none
  std::optional<std::string> socket = {};  // of the server that `doctor` asks; none: the only one there is
};
// The answer is an object, as JSON; the error may be of several lines.
using CorefileWorker = std::function<Result<std::string>(const CorefileRequest&)>;

// The parameters of a run of a subcommand.
struct Call {
  const Arguments& arguments;
  const LocalNode& node;
  const CorefileWorker& corefile;

  bool wantsJson() const { return arguments.has("json"); }
};

struct Command {
  std::string_view name;
  std::string_view words;    // of its usage: "NAME", "-- COMMAND [ARGUMENT...]"
  std::string_view summary;  // lower case, without a full stop
  Grammar grammar;           // what all take (--socket, --json, --help) is added
  CommandResult (*run)(const Call& call);
};

std::span<const Command> commands();
// Null: there is none of that name.
const Command* findCommand(std::string_view name);
bool isCommand(std::string_view name);

// The text of `idetcd help`, and of `idetcd NAME --help`.
std::string overview();
std::string usage(const Command& command);

// `arguments`: main()'s, a subcommand in second place. Signals are still the process's own. Returns the exit code.
int run(std::span<const char* const> arguments, const CorefileWorker& corefile);

// The outcome of a failure.
CommandResult outcomeOf(const Failure& failure);

// The subcommands ask the node, and say with which output and exit code they end. See README.md.

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
std::string membersText(const nlohmann::json& said, bool by_place = false);

// operator_commands.cc: what changes something
CommandResult drain(const Call& call);
CommandResult undrain(const Call& call);
CommandResult flushCache(const Call& call);
CommandResult release(const Call& call);

// peers_command.cc: machines that have founded their cluster
CommandResult peers(const Call& call);
std::string peersText(const nlohmann::json& said);

// top_command.cc
CommandResult top(const Call& call);
std::string topText(const nlohmann::json& said);

// xdp_command.cc: what the kernel answers
CommandResult xdp(const Call& call);
std::string xdpText(const nlohmann::json& said);

// doctor_command.cc: the machine and the Corefile, with or without a server
CommandResult doctor(const Call& call);
std::string doctorText(const nlohmann::json& said);

// exec_command.cc
CommandResult execute(const Call& call);

// command.cc
CommandResult completion(const Call& call);
std::string bashCompletion();

}  // namespace idetcd::cli
