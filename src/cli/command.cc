#include "cli/command.h"

#include <unistd.h>

#include "base/text.h"
#include "cli/text.h"
#include "control/local_socket.h"

namespace idetcd::cli {

namespace {

using Kind = Option::Kind;

constexpr Option kSocket{"socket", Kind::kText, "PATH", "the server's Unix socket; default: the only one there is"};
constexpr Option kJson{"json", Kind::kFlag, "", "print JSON, on one line"};
constexpr Option kHelp{"help", Kind::kFlag, "", "print this text"};
constexpr Option kPattern{"pattern", Kind::kText, "PATTERN", "the cluster, where the server has several"};
constexpr Option kTimeout{"timeout", Kind::kDuration, "DURATION",
                          "how long to wait at most, such as 30s or 5m; default: for ever"};
constexpr Option kTimeoutNow{"timeout", Kind::kDuration, "DURATION",
                             "how long to wait for them at most; default: 0, not at all"};
constexpr Option kMembersExactly{"members", Kind::kCount, "N",
                                 "how many names have to be held, exactly; default: any number"};
constexpr Option kOrder{"order", Kind::kText, "ORDER", "number, or topology: by place, then by number; default: number"};
constexpr Option kNetwork{"network", Kind::kText, "NETWORK", "the members' names in this network; default: their own names"};
constexpr Option kAddresses{"addresses", Kind::kFlag, "", "addresses instead of names: IPv4 where there are both"};
constexpr Option kPort{"port", Kind::kPort, "PORT", "the port that is printed (required)"};

Command make(std::string_view name, std::string_view words, std::string_view summary, CommandResult (*run)(const Call&),
             Grammar grammar) {
  for (const Option& option : {kSocket, kJson, kHelp}) grammar.options.push_back(option);
  return {.name = name, .words = words, .summary = summary, .grammar = std::move(grammar), .run = run};
}

std::vector<Command> makeCommands() {
  return {
      make("status", "", "what this node is and does; exit code 1 if it is not ready", status, {}),
      make("members", "", "the slots of the cluster, and who has them", members,
           {.options = {kOrder,
                        {"watch", Kind::kFlag, "", "print a line of JSON now and at each change of the generation"},
                        kPattern}}),
      make("whoami", "", "the name of this node; exit code 1 without one", whoami,
           {.options = {{"short", Kind::kFlag, "", "its first label only"}, kPattern}}),
      make("wait", "", "waits until N names are held and resolve here, and prints them; or for another roster", wait,
           {.options = {{"members", Kind::kCount, "N", "how many names, at least"},
                        {"generation-above", Kind::kRevision, "N",
                         "until the generation is above this; it is printed, unless --members is given too"},
                        kTimeout,
                        kPattern}}),
      make("tf-config", "", "TF_CONFIG of TensorFlow", tfConfig,
           {.options = {{"role", Kind::kText, "ROLE", "what all members are, such as worker (required)"},
                        kPort,
                        kMembersExactly,
                        kOrder,
                        kNetwork,
                        kAddresses,
                        kTimeoutNow,
                        kPattern}}),
      make("hostfile", "", "the host file of MPI", printHostfile,
           {.options = {{"slots", Kind::kCount, "N", "processes a host; default: not said"},
                        kMembersExactly,
                        kOrder,
                        kNetwork,
                        kAddresses,
                        kTimeoutNow,
                        kPattern}}),
      make("torchrun-env", "", "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT of PyTorch", torchrunEnvironment,
           {.options = {kPort, kMembersExactly, kOrder, kNetwork, kAddresses, kTimeoutNow, kPattern}}),
      make("exec", "-- COMMAND [ARGUMENT...]", "waits for a name, and becomes COMMAND with it in its environment",
           execute,
           {.options = {{"members", Kind::kCount, "N", "wait until so many names are held and resolve here, too"},
                        {"barrier", Kind::kCount, "N", "the same"},
                        {"on-change", Kind::kText, "WHAT",
                         "run COMMAND as a child, which a lost name ends; of other members it is told by signal:NAME or "
                         "restart, or not: ignore"},
                        {"settle", Kind::kDuration, "DURATION", "how long the members have to stay the same for that; default: 2s"},
                        kTimeout,
                        kPattern},
            .min_words = 1,
            .has_command = true}),
      make("drain", "", "takes this node's addresses out of DNS; the name is kept", drain, {.options = {kPattern}}),
      make("undrain", "", "puts them back", undrain, {.options = {kPattern}}),
      make("release", "NAME", "takes a name from a key that is dead or permanent", release,
           {.options = {{"yes", Kind::kText, "NAME", "the same name again: do not ask"}},
            .min_words = 1,
            .max_words = 1}),
      make("cache", "flush [NAME]", "empties the caches, or takes out NAME and what is below it", flushCache,
           {.options = {}, .min_words = 1, .max_words = 2}),
      make("peers", "[recover]", "who runs the cluster's etcd, where the Corefile has `peers`; exit code 1 without any",
           peers,
           {.options = {{"port", Kind::kPort, "PORT", "for `recover`: the peers-port, where the server has several"},
                        {"yes", Kind::kFlag, "", "for `recover`: do not ask"}},
            .max_words = 1}),
      make("top", "", "the busiest names, rates and latencies; live in a terminal", top,
           {.options = {{"once", Kind::kFlag, "", "print it once, and end"},
                        {"seconds", Kind::kCount, "N", "about how many seconds; default: as the server keeps it"}}}),
      make("xdp", "attach|detach|status", "what the kernel answers by the Corefile's `xdp`, without a server", xdp,
           {.options = {{"conf", Kind::kText, "FILE", "the server's Corefile; default: as the server's"},
                        {"user", Kind::kText, "USER", "who the server runs as, for `attach`; default: root"}},
            .min_words = 1,
            .max_words = 1}),
      make("doctor", "", "looks at what a name needs on this machine, and says what to mend; changes nothing", doctor,
           {.options = {{"conf", Kind::kText, "FILE",
                         "the server's Corefile; default: that of this directory, or of /etc/idetcd"}}}),
      make("completion", "bash", "the completion script of a shell", completion,
           {.options = {}, .min_words = 1, .max_words = 1}),
  };
}

int finish(std::string_view name, const CommandResult& outcome) {
  const auto printed = print(STDOUT_FILENO, outcome.out);
  std::string errors;
  std::string_view rest = outcome.err;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    errors += fmt::format("idetcd {}: {}\n", name, rest.substr(0, end));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  if (!printed) errors += fmt::format("idetcd {}: cannot print: {}\n", name, printed.error().message);
  if (!errors.empty() && !print(STDERR_FILENO, errors)) return kFailed;
  return printed ? outcome.code : kFailed;
}

CommandResult misused(const Command& command, std::string_view what) {
  return {.code = kFailed, .out = {}, .err = fmt::format("{}\nsee idetcd {} --help\n", what, command.name)};
}

// Whether one of `words` is an option, not an option's value or part of a program to run.
bool hasOption(const Command& command, std::span<const char* const> given, std::span<const std::string_view> words) {
  const auto& options = command.grammar.options;
  for (size_t i = 0; i < given.size(); ++i) {
    const std::string_view word = given[i];
    if (std::find(words.begin(), words.end(), word) != words.end()) return true;
    if (word == "--" || (command.grammar.has_command && !word.starts_with('-'))) return false;
    const auto takes_next = [&](const Option& option) {
      return option.kind != Kind::kFlag && word.starts_with('-') &&
             word.substr(word.find_first_not_of('-')) == option.name;
    };
    if (word.find_first_not_of('-') != std::string_view::npos &&
        std::any_of(options.begin(), options.end(), takes_next))
      ++i;
  }
  return false;
}

bool asksForHelp(const Command& command, std::span<const char* const> given) {
  constexpr std::array<std::string_view, 3> kWords{"--help", "-help", "-h"};
  return hasOption(command, given, kWords);
}

bool asksForJson(const Command& command, std::span<const char* const> given) {
  constexpr std::array<std::string_view, 2> kWords{"--json", "-json"};
  return hasOption(command, given, kWords);
}

// For programs: what went wrong, where nothing else is said.
void addError(CommandResult* outcome) {
  if (outcome->code == kGood || !outcome->out.empty() || outcome->err.empty()) return;
  outcome->out = toLine({{"error", outcome->err.substr(0, outcome->err.find('\n'))}});
}

CommandResult runCommand(const Command& command, std::span<const char* const> given, const CorefileWorker& corefile) {
  if (asksForHelp(command, given)) return {.code = kGood, .out = usage(command), .err = {}};
  CommandResult outcome;
  if (const auto arguments = Arguments::parse(command.grammar, given)) {
    const LocalNode node(arguments->text("socket"), control::socketDirectory());
    outcome = command.run({.arguments = *arguments, .node = node, .corefile = corefile});
  } else {
    const Error& error = arguments.error();
    const bool lacks_words = error.code == ErrorCode::kNotFound;
    outcome = misused(command, lacks_words ? fmt::format("{}: {}", error.message, command.words) : error.message);
  }
  if (asksForJson(command, given)) addError(&outcome);
  return outcome;
}

CommandResult help(std::span<const char* const> given) {
  if (given.empty() || std::string_view(given.front()).starts_with('-'))
    return {.code = kGood, .out = overview(), .err = {}};
  const Command* command = findCommand(given.front());
  if (command == nullptr)
    return {.code = kFailed, .out = {}, .err = fmt::format("there is no subcommand {}\n", printable(given.front()))};
  return {.code = kGood, .out = usage(*command), .err = {}};
}

// The options of a command, for its completion.
std::string words(const Command& command, bool only_with_value) {
  std::string text;
  for (const Option& option : command.grammar.options) {
    if (only_with_value && option.kind == Option::Kind::kFlag) continue;
    text += fmt::format("{}--{}", text.empty() ? "" : " ", option.name);
  }
  return text;
}

}  // namespace

std::span<const Command> commands() {
  static const std::vector<Command> all = makeCommands();  // NOLINT: readability-identifier-naming
  return all;
}

const Command* findCommand(std::string_view name) {
  const auto all = commands();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Command& each) { return each.name == name; });
  return found == all.end() ? nullptr : &*found;
}

bool isCommand(std::string_view name) { return name == "help" || findCommand(name) != nullptr; }

std::string overview() {
  std::vector<Row> rows;
  for (const Command& command : commands())
    rows.push_back({fmt::format("  {}{}{}", command.name, command.words.empty() ? "" : " ", command.words),
                    std::string(command.summary)});
  return fmt::format(
      "Usage: idetcd SUBCOMMAND [OPTION...]\n\nAsks the server on this machine, or lets it change something:\n\n{}\n"
      "idetcd SUBCOMMAND --help says which options it has. Exit codes: 0 good, 1 no, 2 failed.\n"
      "Without a subcommand idetcd is the server: idetcd -help.\n",
      table(rows));
}

std::string usage(const Command& command) {
  std::vector<Row> rows;
  for (const Option& option : command.grammar.options)
    rows.push_back({fmt::format("  --{}{}{}", option.name, option.value.empty() ? "" : " ", option.value),
                    std::string(option.help)});
  return fmt::format("Usage: idetcd {} [OPTION...]{}{}\n\n{}.\n\n{}", command.name, command.words.empty() ? "" : " ",
                     command.words, command.summary, table(rows));
}

CommandResult outcomeOf(const Failure& failure) {
  return {.code = failure.code, .out = {}, .err = failure.message + '\n'};
}

int run(std::span<const char* const> arguments, const CorefileWorker& corefile) {
  const std::string_view name = arguments[1];
  const Command* command = findCommand(name);
  const auto given = arguments.subspan(2);
  return finish(name, command == nullptr ? help(given) : runCommand(*command, given, corefile));
}

// Nothing is asked of the server: completion works, and is fast, without one.
std::string bashCompletion() {
  std::vector<std::string_view> names;
  std::string cases;
  for (const Command& command : commands()) {
    names.push_back(command.name);
    cases +=
        fmt::format("    {}) options='{}' valued='{}' ;;\n", command.name, words(command, false), words(command, true));
  }
  return fmt::format(R"(# bash completion of idetcd(8), made by `idetcd completion bash`
_idetcd() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} command= options= valued= i
  COMPREPLY=()
  # Of `--name=value` bash makes three words.
  [[ $word == = ]] && word=
  [[ $previous == = ]] && previous=${{COMP_WORDS[COMP_CWORD - 2]}}
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W '{0} help -conf -dns.port -handover -help -pidfile -plugins -quiet -sandbox -validate -version' -- "$word"))
    return
  fi
  case $previous in
    -conf | --conf | -pidfile | -handover | --socket) COMPREPLY=($(compgen -f -- "$word")); return ;;
    -sandbox) COMPREPLY=($(compgen -W 'on log off' -- "$word")); return ;;
  esac
  command=${{COMP_WORDS[1]}}
  case $command in
{1}    help) COMPREPLY=($(compgen -W '{0}' -- "$word")); return ;;
    -*) COMPREPLY=($(compgen -W '-conf -dns.port -handover -help -pidfile -plugins -quiet -sandbox -validate -version' -- "$word")); return ;;
    *) return ;;
  esac
  if [[ $command == exec ]]; then
    # Behind the options is a command line of its own.
    for ((i = 2; i <= COMP_CWORD; i++)); do
      if ((i < COMP_CWORD)) && [[ ${{COMP_WORDS[i]}} == -- ]]; then
        ((i++))
      elif [[ -z ${{COMP_WORDS[i]}} || ${{COMP_WORDS[i]}} == [-=]* || ${{COMP_WORDS[i - 1]}} == = || " $valued " == *" ${{COMP_WORDS[i - 1]}} "* ]]; then
        continue
      fi
      if ((COMP_CWORD == i)); then
        COMPREPLY=($(compgen -c -- "$word"))
      else
        COMPREPLY=($(compgen -f -- "$word"))
      fi
      return
    done
  fi
  [[ " $valued " == *" $previous "* ]] && return
  case $command in
    cache) i=flush ;;
    completion) i=bash ;;
    xdp) i='attach detach status' ;;
    *) i= ;;
  esac
  # A word that it takes, once.
  for previous in $i; do
    [[ " ${{COMP_WORDS[*]:2:COMP_CWORD-2}} " == *" $previous "* ]] && i=
  done
  options="$i $options"
  COMPREPLY=($(compgen -W "$options" -- "$word"))
}}
complete -o filenames -F _idetcd idetcd
)",
                     fmt::join(names, " "), cases);
}

CommandResult completion(const Call& call) {
  if (call.arguments.words().front() != "bash")
    return {.code = kFailed, .out = {}, .err = "there is completion for bash only\n"};
  return {.code = kGood, .out = bashCompletion(), .err = {}};
}

}  // namespace idetcd::cli
