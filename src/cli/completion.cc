#include "cli/commands.h"

namespace idetcd::cli {
namespace {

std::string words(const Command& command, bool only_with_value) {
  std::string text;
  for (const Option& option : command.grammar.options) {
    if (only_with_value && option.kind == Option::Kind::kFlag) continue;
    text += fmt::format("{}--{}", text.empty() ? "" : " ", option.name);
  }
  return text;
}

}  // namespace

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
