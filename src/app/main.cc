#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <sys/resource.h>
#include <unistd.h>
#include <variant>

#include <fmt/format.h>

#include "app/application.h"
#include "app/command_line.h"
#include "app/plan.h"
#include "config/environment.h"

namespace idetcd::app {
namespace {

struct Source {
  std::string name;
  std::string text;
};

Result<Source> readStdin() {
  Source source{.name = "stdin", .text = {}};
  source.text.assign(std::istreambuf_iterator<char>(std::cin), {});
  if (std::cin.bad()) return fail("cannot read the Corefile from standard input");
  return source;
}

// The Corefile that the command line names; else the one in the working directory; else CoreDNS's default.
Result<Source> readCorefile(const Options& options) {
  if (options.conf == "stdin") return readStdin();
  const std::string path = options.conf.empty() ? "Corefile" : options.conf;
  std::error_code error;
  if (options.conf.empty() && !std::filesystem::exists(path, error)) {
    return Source{.name = "default", .text = fmt::format(".:{} {{\n  whoami\n  log\n}}\n", options.port)};
  }
  const auto text = config::SystemEnvironment().readFile(path, config::kMaxInputBytes);
  if (!text) return fail(fmt::format("cannot read {}: {}", path, text.error().message));
  return Source{.name = path, .text = *text};
}

// Removes the file again when the process ends in order.
class PidFile {
 public:
  PidFile() = default;
  PidFile(const PidFile&) = delete;
  PidFile& operator=(const PidFile&) = delete;
  ~PidFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  Result<void> write(const std::string& path) {
    std::ofstream file(path, std::ios::trunc);
    file << ::getpid() << '\n' << std::flush;
    if (!file) return fail(fmt::format("cannot write the pid file {}: {}", path, std::strerror(errno)));
    path_ = path;
    return {};
  }

 private:
  std::string path_;
};

void prepareProcess() {
  std::signal(SIGPIPE, SIG_IGN);  // a client that has gone is an error of write(2)
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;  // TCP clients take a descriptor each
    setrlimit(RLIMIT_NOFILE, &limit);
  }
}

// One line an error, whatever it quotes.
int failWith(const Error& error) {
  std::string line = error.message;
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20 && c != '\n'; }, ' ');
  std::fprintf(stderr, "%s\n", line.c_str());
  return 1;
}

int validate(const Plan& plan, const std::string& name) {
  for (const std::string& warning : plan.warnings) std::fprintf(stderr, "warning: %s\n", warning.c_str());
  for (const BlockPlan& block : plan.blocks) {
    for (const config::ServerKey& key : block.keys) std::printf("%s\n", key.text.c_str());
  }
  std::printf("%s is valid\n", name.c_str());
  return 0;
}

// Signals wait from here until somebody handles them: one that comes during start-up is not lost and does not kill.
class SignalGate {
 public:
  SignalGate() {
    sigemptyset(&signals_);
    for (const int signal : Application::kHandledSignals) sigaddset(&signals_, signal);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }
  void open() const { pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr); }

 private:
  sigset_t signals_;
};

int serve(const Plan& plan, const Options& options, const SignalGate& signals, const Logger& log) {
  prepareProcess();
  Application application(log);
  signals.open();
  if (auto opened = application.open(plan); !opened) return failWith(opened.error());
  if (options.conf != "stdin") {
    application.setReload([&options]() -> Result<Plan> {
      const auto source = readCorefile(options);
      if (!source) return tl::unexpected(source.error());
      return makePlan(source->name, source->text, options.port);
    });
  }
  PidFile pid_file;
  if (!options.pid_file.empty()) {
    if (auto written = pid_file.write(options.pid_file); !written) return failWith(written.error());
  }
  if (!options.quiet) {
    for (const std::string& line : application.banner()) log.plain(line);
    log.plain(fmt::format("idetcd-{}", IDETCD_VERSION));
  }
  return application.run();
}

int run(std::span<const char* const> arguments) {
  const SignalGate signals;
  const auto command = parseCommandLine(arguments);
  if (const auto* exit = std::get_if<Exit>(&command)) {
    std::fputs(exit->out.c_str(), stdout);
    std::fputs(exit->err.c_str(), stderr);
    return exit->code;
  }
  const auto& options = std::get<Options>(command);
  if (options.action == Options::Action::kShowVersion) {
    std::printf("idetcd-%s\n", IDETCD_VERSION);
    return 0;
  }
  if (options.action == Options::Action::kListPlugins) {
    std::printf("Server types:\n  dns\n\nOther plugins:\n");
    for (const std::string& name : directiveNames()) std::printf("  dns.%s\n", name.c_str());
    return 0;
  }
  const auto source = readCorefile(options);
  if (!source) return failWith(source.error());
  const auto files = options.action == Options::Action::kValidate ? NamedFiles::kRead : NamedFiles::kNotRead;
  const auto plan = makePlan(source->name, source->text, options.port, files);
  if (!plan) return failWith(plan.error());
  if (options.action == Options::Action::kValidate) return validate(*plan, source->name);
  const Logger log = Logger::toStdout();
  const int status = serve(*plan, options, signals, log);
  // Nobody reads our output any more: the log's writer would wait for ever.
  if (!log.flush(std::chrono::seconds(1))) _exit(status);
  return status;
}

}  // namespace
}  // namespace idetcd::app

int main(int argc, char** argv) {
  try {
    return idetcd::app::run({argv, static_cast<size_t>(argc)});
  } catch (const std::exception& error) {  // start-up only: out of memory or descriptors
    std::fprintf(stderr, "idetcd: %s\n", error.what());
    return 1;
  }
}
