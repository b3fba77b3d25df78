// What subcommands print. One thread.
#pragma once

#include "base/result.h"

namespace idetcd::cli {

// How a subcommand has ended.
struct CommandResult {
  int code = 0;
  std::string out;
  std::string err;  // without the name of the subcommand in front; lines
};

// All of it, at once. Where nobody reads SIGPIPE ends the process, as the caller has set it; else an error.
Result<void> print(int fd, std::string_view text);

}  // namespace idetcd::cli
