// The command line, as Go's flag package reads CoreDNS's: `-flag value`, `-flag=value` and `--flag`, booleans `-flag`
// and
// `-flag=false`, the last of two wins, `--` ends the flags. Pure; any thread.
#pragma once

#include <variant>

#include "sandbox/confinement.h"

namespace idetcd::app {

// LeakSanitizer looks for leaks by tracing the process, which nobody can do in the sandbox.
#ifdef IDETCD_SANITIZED
inline constexpr sandbox::Mode kDefaultSandbox = sandbox::Mode::kOff;
#else
inline constexpr sandbox::Mode kDefaultSandbox = sandbox::Mode::kOn;
#endif

struct Options {
  enum class Action : uint8_t { kServe, kValidate, kListDirectives, kShowVersion };

  Action action = Action::kServe;
  std::string conf;    // path of the Corefile, or "stdin"; empty: "Corefile" in the working directory, if there is one
  uint16_t port = 53;  // of server blocks that name none
  std::string pid_file;  // empty: none
  std::string handover;  // where a successor takes the sockets from; empty: nowhere
  bool quiet = false;
  sandbox::Mode sandbox = kDefaultSandbox;
};

// The action instead of serving. Each text ends with a newline, unless it is empty.
struct Exit {
  int code = 0;
  std::string out;
  std::string err;
};

// `arguments` are those of main(), the program's name first. -help: 0; what no flag takes: 1; a bad flag or value: 2.
std::variant<Options, Exit> parseCommandLine(std::span<const char* const> arguments);

// The text of -version: a second line if the binary lacks the program that answers in the kernel.
std::string versionText(std::string_view version, bool has_kernel_program);

}  // namespace idetcd::app
