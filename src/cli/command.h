// The subcommands: `idetcd status`, `idetcd members`, ... They ask the server on this machine; one does its work by the
// Corefile, before there is a server. One thread.
#pragma once

#include "base/result.h"
#include "cli/arguments.h"
#include "cli/failure.h"
#include "cli/local_node.h"
#include "cli/output.h"

namespace idetcd::cli {

// Work on what a Corefile says, which needs no server that runs.
struct CorefileRequest {
  std::string corefile;   // its path, or "stdin"; empty: that of a server without `-conf`
  std::string directive;  // of that Corefile
  std::string what;
  std::string user;  // empty: none
};
// The answer is an object, as JSON; the error may be of several lines.
using CorefileWorker = std::function<Result<std::string>(const CorefileRequest&)>;

// What a subcommand is run with.
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

}  // namespace idetcd::cli
