#include "app/run.h"

#include <csignal>
#include <cstdio>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <variant>

#include "app/application.h"
#include "app/command_line.h"
#include "app/corefile_source.h"
#include "app/doctor.h"
#include "app/plan.h"
#include "app/ports.h"
#include "base/file.h"
#include "cli/command.h"
#include "config/environment.h"
#include "control/local_socket.h"
#include "directive/order.h"
#include "kernel/program.h"
#include "node/state_directory.h"
#include "sandbox/confinement.h"
#include "sandbox/program_runner.h"
#include "service/manager.h"

namespace idetcd::app {
namespace {

constexpr std::chrono::seconds kLogFlushBudget{1};
constexpr std::chrono::seconds kPredecessorBudget{8};  // to answer what it has read, and to end
constexpr timespec kPause{.tv_sec = 5, .tv_nsec = 0};
constexpr int kConfigurationStatus = 78;  // EX_CONFIG of sysexits.h: the next process would fail as this one

// The server's resources in the process beside its rights.
struct Surroundings {
  service::Given given;  // by the service manager
  std::shared_ptr<sandbox::ProgramRunner> programs;
  std::optional<service::HandoverSocket> handover;
  Result<control::LocalSocket> control;
  std::optional<std::vector<std::string>> written;  // below which files may be written; none: anywhere
};

// Says once that the start waits: for a disk that stands still, a pipe that nobody writes, or a host. A process of its own,
// since a thread would come before this process has confined itself, and what waits for a disk says nothing itself.
class SlowStart {
 public:
  static constexpr std::chrono::seconds kPatience{5};

  SlowStart() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return;
    const FileDescriptor reader(ends[0]);
    end_ = FileDescriptor(ends[1]);
    watcher_ = ::fork();
    if (watcher_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // It keeps nothing else open: a socket that the server closes is closed.
    constexpr int kReader = STDERR_FILENO + 1;
    if (::dup2(reader.get(), kReader) < 0) ::_exit(0);
    ::syscall(SYS_close_range, kReader + 1, ~0U, 0);
    pollfd end{.fd = kReader, .events = POLLIN, .revents = 0};
    if (::poll(&end, 1, std::chrono::milliseconds(kPatience).count()) == 0)
      printError(fmt::format("The start is under way for {} s: it waits for a file or a host", kPatience.count()));
    ::_exit(0);
  }
  SlowStart(const SlowStart&) = delete;
  SlowStart& operator=(const SlowStart&) = delete;
  ~SlowStart() {
    if (watcher_ <= 0) return;
    (void)!::write(end_.get(), "", 1);  // other children have this end, too, and so it does not end with this one
    ::waitpid(watcher_, nullptr, 0);
  }

 private:
  FileDescriptor end_;
  pid_t watcher_ = -1;
};

// Removes the file again when the process ends in order.
class PidFile {
 public:
  PidFile() = default;
  PidFile(const PidFile&) = delete;
  PidFile& operator=(const PidFile&) = delete;
  ~PidFile() { remove(); }

  void remove() {
    if (!path_.empty()) ::unlink(path_.c_str());
    path_.clear();
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

// gRPC's own resolver asks DNS for the IPv6 address of a name whose IPv4 address is in /etc/hosts, and waits 5 s for a
// silent server. libc does not. gRPC reads this once.
void useSystemResolver() { setenv("GRPC_DNS_RESOLVER", "native", 0); }

void prepareProcess() {
  std::signal(SIGPIPE, SIG_IGN);  // a client that has gone is an error of write(2)
  useSystemResolver();
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;  // what comes and goes is bounded by a net::DescriptorBudget
    setrlimit(RLIMIT_NOFILE, &limit);
  }
}

int failWith(const Error& error, int status = 1) {
  printError(error.message);
  return status;
}

int validate(const Options& options) {
  const auto [name, digest, was_read, plan] = CorefileSource(options).read(NamedFiles::kRead);
  if (!plan) return failWith(plan.error());
  for (const std::string& warning : plan->warnings) std::fprintf(stderr, "warning: %s\n", warning.c_str());
  for (const resolve::Block& block : plan->blocks) {
    for (const config::ServerKey& key : block.keys) std::printf("%s\n", key.text.c_str());
  }
  for (const PortConflict& conflict : portConflicts(*plan))
    std::fprintf(stderr, "warning: %s\n", conflict.text.c_str());
  std::printf("%s is valid\n", name.c_str());
  return 0;
}

// Signals stay pending until they are handled: one that comes during start-up is not lost and does not kill.
sigset_t maskSignals(int how, sigset_t* before = nullptr) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : Application::kHandledSignals) sigaddset(&signals, signal);
  pthread_sigmask(how, &signals, before);
  return signals;
}

sigset_t given_mask;  // by who has started the process

// Before the initialisers of all that is linked in: nothing but the dynamic loader comes earlier.
[[gnu::constructor(101)]] void holdSignals() { maskSignals(SIG_BLOCK, &given_mask); }

// The Corefile for subcommands.
Result<std::string> workLocally(const cli::CorefileRequest& request) {
  Options options;
  options.conf = request.corefile;
  const auto corefile = CorefileSource(options).read();
  if (!corefile.plan) return tl::unexpected(corefile.plan.error());
  const resolve::DirectiveType* type = directive::findDirective(request.directive);
  if (type == nullptr || type->work == nullptr)
    return fail(fmt::format("{} has no work of its own", request.directive));
  return type->work(corefile.plan->blocks, {.what = request.what, .user = request.user});
}

// A subcommand is no server: signals do to it what they do to any program.
int runSubcommand(std::span<const char* const> arguments) {
  pthread_sigmask(SIG_SETMASK, &given_mask, nullptr);
  bool at_rest = true;
  const int code = cli::run(arguments, [&at_rest](const cli::CorefileRequest& request) -> Result<std::string> {
    if (!request.directive.empty()) return workLocally(request);
    useSystemResolver();
    auto examined = examine(request.corefile, request.socket);
    at_rest = examined.at_rest;
    return std::move(examined.json);
  });
  if (!at_rest) _exit(code);
  return code;
}

// Where this process will write. The sandbox can open only what is there.
std::vector<std::string> makeWrittenDirectories(const Plan& plan, const Options& options) {
  std::vector<std::string> directories;
  for (const resolve::Block& block : plan.blocks) {
    for (const auto& [type, directive] : block.directives) {
      for (auto& directory : directive->writtenDirectories()) {
        (void)makeDirectory(directory.path, directory.mode);  // what uses the directory says what is wrong
        directories.push_back(std::move(directory.path));
      }
    }
  }
  // A reload may be the first to need it. The service manager has made it.
  if (std::string service = node::stateDirectoryOfService(); !service.empty())
    directories.push_back(std::move(service));
  if (!options.pid_file.empty()) {
    const std::filesystem::path parent = std::filesystem::path(options.pid_file).parent_path();
    directories.push_back(parent.empty() ? "." : parent.string());
  }
  return directories;
}

void say(const sandbox::Notices& notices, const Logger& log) {
  for (const sandbox::Notice& notice : notices) log.write(notice.level, notice.text);
}

// `slow` ends with the start.
int serve(CorefileSource::Reading corefile, const CorefileSource& source, Surroundings surroundings,
          const Options& options, const Logger& log, std::optional<SlowStart>& slow) {
  Application application(log, std::move(surroundings.programs), std::move(surroundings.given));
  if (surroundings.handover) application.setHandover(std::move(*surroundings.handover));
  if (surroundings.control) {
    application.setControlSocket(surroundings.control->take());
  } else {
    log.warning("The subcommands do not reach this process: {}", surroundings.control.error().message);
  }
  if (surroundings.written) application.setWrittenDirectories(std::move(*surroundings.written));
  if (source.canBeReadAgain()) {
    application.setReload([&source] { return source.read(); });
  }
  if (auto opened = application.open(std::move(corefile)); !opened) return failWith(opened.error());
  slow.reset();
  PidFile pid_file;
  if (!options.pid_file.empty()) {
    if (auto written = pid_file.write(options.pid_file); !written) return failWith(written.error());
  }
  if (!options.quiet) {
    for (const std::string& line : application.banner()) log.plain(line);
    log.plain(fmt::format("idetcd-{}", IDETCD_VERSION));
  }
  maskSignals(SIG_UNBLOCK);  // not before: the pause after a start that failed waits for one
  const int status = application.run();
  maskSignals(SIG_BLOCK);
  if (application.isAtRest()) return status;
  pid_file.remove();
  if (surroundings.control) surroundings.control->remove();
  log.flush(kLogFlushBudget);
  _exit(status);
}

// The port of the first server block that clients ask over UDP and TCP, which the subcommands do too; else of the first.
uint16_t portOf(const Plan& plan) {
  for (const auto& block : plan.blocks) {
    if (const auto port = config::dnsPortOf(block.keys)) return *port;
  }
  return plan.blocks.front().keys.front().port;
}

// Where the subcommands reach this process.
Result<control::LocalSocket> makeControlSocket(const Plan& plan, std::vector<std::string>* written) {
  const std::string directory = control::socketDirectory();
  auto made = control::LocalSocket::bind(directory, portOf(plan));
  if (made) written->push_back(directory);  // to remove it at the end
  return made;
}

// Opens the configuration while the server before goes on, in a process of its own, of which nothing is left: what fails
// there would fail when that server has ended. In a PID namespace of its own what it has is not known, and nothing is tried.
Result<void> tryToOpen(CorefileSource::Reading& corefile, pid_t predecessor) {
  if (predecessor == 0) return {};
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return idetcd::failWith(errno, "pipe2");
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return idetcd::failWith(errno, "fork");
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    Result<void> opened;
    {
      auto programs = sandbox::ProgramRunner::make(sandbox::Mode::kOff);
      Application application(Logger(), programs ? std::move(*programs) : nullptr);
      application.setPredecessor(predecessor);
      opened = application.open(std::move(corefile));
    }
    const std::string said = opened ? "+" : opened.error().message;
    _exit(::write(writer.get(), said.data(), said.size()) < 0 ? 1 : 0);
  }
  writer = FileDescriptor();
  const auto said = readToEnd(reader, config::kMaxInputBytes);
  ::waitpid(child, nullptr, 0);
  if (!said || said->empty()) return fail("the process that tries to open the configuration has died");
  return *said == "+" ? Result<void>() : fail(*said);
}

Error handoverFailed(const Options& options, const Error& error) {
  return {fmt::format("-handover {}: {}", options.handover, error.message)};
}

// From the server before, if there is one, which has ended then; and makes the place for the next one.
Result<std::optional<service::HandoverSocket>> takeOver(const Options& options,
                                                        std::optional<service::Predecessor>& predecessor,
                                                        std::vector<service::GivenDescriptor>* descriptors) {
  if (options.handover.empty()) return std::nullopt;
  if (predecessor) {
    auto taken = predecessor->takeOver(kPredecessorBudget);
    if (!taken) return tl::unexpected(handoverFailed(options, taken.error()));
    for (service::GivenDescriptor& one : *taken) descriptors->push_back(std::move(one));
  }
  auto listening = service::HandoverSocket::listen(options.handover);
  if (!listening) return tl::unexpected(handoverFailed(options, listening.error()));
  return std::move(*listening);
}

// A name that the server before has handed over, and that this process cannot take: its start has failed.
void forgetNames(const std::vector<std::string>& directories) {
  for (const std::string& directory : directories) node::StateDirectory::emptyAbandoned(directory);
}

// A service manager starts the next process at once, as it should after a crash; what keeps a server from serving does
// not pass so soon: a port that is taken, a loop of forwarders, no free name. A signal ends the pause. Returns the exit
// status.
int pauseBeforeNext() {
  const sigset_t signals = maskSignals(SIG_BLOCK);  // as they are; but sigtimedwait() wants the set
  const int signal = sigtimedwait(&signals, nullptr, &kPause);
  return signal == SIGTERM || signal == SIGINT || signal == SIGQUIT ? 0 : 1;
}

int serve(const Options& options, service::Given given) {
  const bool is_service = !given.notify_socket.empty();
  const CorefileSource source(options);
  auto predecessor = options.handover.empty() ? Result<std::optional<service::Predecessor>>()
                                              : service::Predecessor::find(options.handover);
  if (!predecessor) return failWith(handoverFailed(options, predecessor.error()));
  std::optional<SlowStart> slow(std::in_place);
  std::optional<CorefileSource::Reading> tried;
  if (*predecessor) {  // with the rights of the start, which show who has a port
    tried = source.read();
    if (tried->plan) {
      if (auto opened = tryToOpen(*tried, (*predecessor)->pid()); !opened) return failWith(opened.error());
    }
  }
  const sandbox::Notices limited = sandbox::limitRights(options.sandbox);
  auto made = sandbox::ProgramRunner::make(options.sandbox);
  if (!made) return failWith(made.error());
  std::shared_ptr<sandbox::ProgramRunner> programs = std::move(*made);
  auto corefile = tried ? std::move(*tried) : source.read();
  // By hand 1, as with CoreDNS.
  if (!corefile.plan)
    return failWith(corefile.plan.error(), is_service && corefile.was_read ? kConfigurationStatus : 1);
  std::vector<std::string> written = makeWrittenDirectories(*corefile.plan, options);
  const std::vector<std::string> handed_over = *predecessor ? written : std::vector<std::string>();
  slow.reset();  // what comes waits for the other process
  auto handover = takeOver(options, *predecessor, &given.descriptors);
  slow.emplace();
  if (!handover) {
    forgetNames(handed_over);  // unless the server before goes on
    return failWith(handover.error());
  }
  if (auto done = beforeConfinement(*corefile.plan); !done) {
    forgetNames(handed_over);
    return failWith(done.error());
  }
  auto control = makeControlSocket(*corefile.plan, &written);
  const sandbox::Notices confined = sandbox::confine(options.sandbox, written);

  const Logger log = Logger::toStdout();  // with the first thread
  say(limited, log);
  say(confined, log);
  Surroundings surroundings{.given = std::move(given),
                            .programs = std::move(programs),
                            .handover = std::move(*handover),
                            .control = std::move(control),
                            .written = {}};
  if (options.sandbox != sandbox::Mode::kOff) surroundings.written = std::move(written);
  const int status = serve(std::move(corefile), source, std::move(surroundings), options, log, slow);
  if (status != 0) forgetNames(handed_over);
  // The output has no reader any more: the log's writer would wait for ever.
  if (!log.flush(kLogFlushBudget)) _exit(status);
  return status;
}

int serve(const Options& options) {
  prepareProcess();
  service::Given given = service::takeGiven();
  const bool is_service = !given.notify_socket.empty();
  const int status = serve(options, std::move(given));
  return status == 1 && is_service ? pauseBeforeNext() : status;
}

}  // namespace

int run(std::span<const char* const> arguments) {
  if (arguments.size() > 1 && cli::isCommand(arguments[1])) return runSubcommand(arguments);
  const auto command = parseCommandLine(arguments);
  if (const auto* exit = std::get_if<Exit>(&command)) {
    std::fputs(exit->out.c_str(), stdout);
    const size_t usage = exit->err.find('\n') + 1;  // behind the line that says what is wrong
    printError(std::string_view(exit->err).substr(0, usage));
    std::fputs(exit->err.c_str() + usage, stderr);
    return exit->code == 1 && std::getenv("NOTIFY_SOCKET") != nullptr ? kConfigurationStatus : exit->code;
  }
  const auto& options = std::get<Options>(command);
  if (options.action == Options::Action::kShowVersion) {
    std::fputs(versionText(IDETCD_VERSION, kernel::hasProgram()).c_str(), stdout);
    return 0;
  }
  if (options.action == Options::Action::kListDirectives) {
    std::printf("Server types:\n  dns\n\nOther plugins:\n");
    for (const auto* type : directive::directives()) std::printf("  dns.%s\n", std::string(type->name).c_str());
    return 0;
  }
  if (options.action == Options::Action::kServe) return serve(options);
  pthread_sigmask(SIG_SETMASK, &given_mask, nullptr);  // a Corefile may be a pipe that nobody writes
  return validate(options);
}

}  // namespace idetcd::app
