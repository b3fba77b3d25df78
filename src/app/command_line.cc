#include "app/command_line.h"

#include <charconv>
#include <iterator>

#include "base/result.h"
#include "cli/command.h"
#include "config/corefile.h"

namespace idetcd::app {
namespace {

// The values of the flags, before they become one action.
struct Values {
  Options options;
  bool directives = false;
  bool validate = false;
  bool version = false;
};

// Fails with what is wrong with the value, as Go words it.
using Setter = Result<void> (*)(std::string_view value, Values* values);

struct Flag {
  std::string_view name;
  bool is_boolean;
  std::string_view usage;
  Setter set;
};

Result<bool> parseBoolean(std::string_view text) {
  for (const std::string_view word : {"1", "t", "T", "TRUE", "true", "True"}) {
    if (text == word) return true;
  }
  for (const std::string_view word : {"0", "f", "F", "FALSE", "false", "False"}) {
    if (text == word) return false;
  }
  return fail("parse error");
}

template <bool Values::*Member>
Result<void> setBoolean(std::string_view text, Values* values) {
  return parseBoolean(text).map([&](bool value) { values->*Member = value; });
}

Result<void> setQuiet(std::string_view text, Values* values) {
  return parseBoolean(text).map([&](bool value) { values->options.quiet = value; });
}

Result<void> setPort(std::string_view text, Values* values) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error == std::errc::result_out_of_range) return fail("value out of range");
  if (error != std::errc() || end != text.data() + text.size()) return fail("parse error");
  values->options.port = port;
  return {};
}

Result<void> setConf(std::string_view text, Values* values) {
  values->options.conf = text;
  return {};
}

Result<void> setHandover(std::string_view text, Values* values) {
  values->options.handover = text;
  return {};
}

Result<void> setPidFile(std::string_view text, Values* values) {
  values->options.pid_file = text;
  return {};
}

Result<void> setSandbox(std::string_view text, Values* values) {
  constexpr std::array<std::pair<std::string_view, sandbox::Mode>, 3> kModes{
      {{"on", sandbox::Mode::kOn}, {"log", sandbox::Mode::kLog}, {"off", sandbox::Mode::kOff}}};
  for (const auto& [word, mode] : kModes) {
    if (text != word) continue;
    values->options.sandbox = mode;
    return {};
  }
  return fail("must be on, log or off");
}

// In the order of the usage, which is that of the alphabet, as Go prints it. -h and -help are not flags but requests.
constexpr std::array<Flag, 10> kFlags{{
    {"conf", false, "Corefile to load, or stdin (default \"Corefile\")", setConf},
    {"dns.port", false, "Default port (default \"53\")", setPort},
    {"handover", false, "Path of a Unix socket: take over from the server there, and be there for the next",
     setHandover},
    {"p", false, "Default port (default \"53\")", setPort},
    {"pidfile", false, "Path to write pid file", setPidFile},
    {"plugins", true, "List installed plugins", setBoolean<&Values::directives>},
    {"quiet", true, "Quiet mode (no initialization output)", setQuiet},
    {"sandbox", false, "What the server may do: on, log or off (default \"on\")", setSandbox},
    {"validate", true, "Check the Corefile, start nothing", setBoolean<&Values::validate>},
    {"version", true, "Show version", setBoolean<&Values::version>},
}};

std::string usage(std::string_view program) {
  std::string text = fmt::format("Usage of {}:\n", program);
  for (const Flag& flag : kFlags) {
    fmt::format_to(std::back_inserter(text), "  -{}{}\n    \t{}\n", flag.name, flag.is_boolean ? "" : " string",
                   flag.usage);
    if (flag.name == "dns.port") text += "  -help\n    \tShow this text\n";
  }
  text += "Subcommands, which ask a server that runs (idetcd help says more):\n ";
  for (const cli::Command& command : cli::commands()) text += fmt::format(" {}", command.name);
  text += '\n';
  return text;
}

class Parser {
 public:
  explicit Parser(std::span<const char* const> arguments) {
    if (!arguments.empty()) {
      program_ = arguments.front();
      rest_.assign(arguments.begin() + 1, arguments.end());
    }
  }

  std::variant<Options, Exit> run() {
    while (true) {
      std::optional<Exit> exit;
      if (!takeFlag(&exit)) break;
      if (exit) return *exit;
    }
    if (next_ < rest_.size()) {
      const std::vector<std::string_view> extra(rest_.begin() + static_cast<std::ptrdiff_t>(next_), rest_.end());
      std::vector<std::string_view> names;
      for (const cli::Command& command : cli::commands()) names.push_back(command.name);
      const auto meant = config::nearest(extra.front(), names);
      return Exit{1, "", fmt::format("extra command line arguments: [{}]{}\n", fmt::join(extra, " "),
                                     meant.empty() ? "" : fmt::format("; did you mean `idetcd {}`?", meant))};
    }
    Options& options = values_.options;
    if (values_.validate) options.action = Options::Action::kValidate;
    if (values_.directives) options.action = Options::Action::kListDirectives;
    if (values_.version) options.action = Options::Action::kShowVersion;
    return options;
  }

 private:
  // False where the flags end: at the end, in front of the first argument that is none, or behind "--".
  bool takeFlag(std::optional<Exit>* exit) {
    if (next_ == rest_.size()) return false;
    const std::string_view argument = rest_[next_];
    if (argument.size() < 2 || argument.front() != '-') return false;
    ++next_;
    if (argument == "--") return false;

    const std::string_view word = argument.substr(argument[1] == '-' ? 2 : 1);
    if (word.front() == '-' || word.front() == '=') {
      *exit = bad(fmt::format("bad flag syntax: {}", argument));
      return true;
    }
    const size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    std::optional<std::string_view> value;
    if (equals != std::string_view::npos) value = word.substr(equals + 1);
    *exit = apply(name, value);
    return true;
  }

  std::optional<Exit> apply(std::string_view name, std::optional<std::string_view> value) {
    const auto* flag = std::find_if(kFlags.begin(), kFlags.end(), [&](const Flag& each) { return each.name == name; });
    if (flag == kFlags.end()) {
      if (name == "help" || name == "h") return Exit{0, usage(program_), ""};
      return bad(fmt::format("flag provided but not defined: -{}", name));
    }
    if (!value && flag->is_boolean) value = "true";  // a boolean never takes the next argument
    if (!value) {
      if (next_ == rest_.size()) return bad(fmt::format("flag needs an argument: -{}", name));
      value = rest_[next_++];
    }
    const Result<void> set = flag->set(*value, &values_);
    if (set) return std::nullopt;
    return bad(fmt::format("invalid {}value \"{}\" for {}-{}: {}", flag->is_boolean ? "boolean " : "", *value,
                           flag->is_boolean ? "" : "flag ", name, set.error().message));
  }

  Exit bad(std::string_view message) const { return Exit{2, "", fmt::format("{}\n{}", message, usage(program_))}; }

  std::string_view program_ = "idetcd";
  std::vector<std::string_view> rest_;
  size_t next_ = 0;
  Values values_;
};

}  // namespace

std::variant<Options, Exit> parseCommandLine(std::span<const char* const> arguments) { return Parser(arguments).run(); }

std::string versionText(std::string_view version, bool has_kernel_program) {
  std::string text = fmt::format("idetcd-{}\n", version);
  if (!has_kernel_program) text += "built without xdp: clang, bpftool or libbpf was missing\n";
  return text;
}

}  // namespace idetcd::app
