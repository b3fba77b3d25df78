#include "cli/job.h"

#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <poll.h>
#include <set>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

namespace idetcd::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<int, 6> kPassedOn{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
constexpr int kSignalCodes = 128;
constexpr std::chrono::milliseconds kBetweenLooks{50};

sigset_t ours() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int number : kPassedOn) sigaddset(&set, number);
  return set;
}

// In the child: never returns. `errors`: where the errno goes.
[[noreturn]] void become(const std::vector<char*>& argv, const sigset_t& mask, pid_t parent, int errors) {
  setpgid(0, 0);
  if (isatty(STDIN_FILENO) == 1) tcsetpgrp(STDIN_FILENO, getpid());
  ::signal(SIGTTOU, SIG_DFL);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  if (getppid() == parent) execvp(argv.front(), argv.data());
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(errors, &error, sizeof error);
  _exit(kSignalCodes - 1);
}

int codeOf(int status) { return WIFSIGNALED(status) ? kSignalCodes + WTERMSIG(status) : WEXITSTATUS(status); }

std::vector<pid_t> childrenOf(pid_t parent) {
  std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", parent));
  return {std::istream_iterator<pid_t>(file), std::istream_iterator<pid_t>()};
}

}  // namespace

Job::Job() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::signal(SIGTTOU, SIG_IGN);  // a background group may give the terminal away
  const sigset_t set = ours();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

Job::~Job() {
  if (signals_ >= 0) ::close(signals_);
  const sigset_t set = ours();
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

tl::expected<void, int> Job::start(const std::vector<std::string>& words) {
  assert(!runs() && !words.empty());
  std::vector<std::string> kept = words;
  std::vector<char*> argv;
  argv.reserve(kept.size() + 1);
  for (std::string& word : kept) argv.push_back(word.data());
  argv.push_back(nullptr);
  sigset_t mask;
  sigprocmask(SIG_BLOCK, nullptr, &mask);
  for (const int number : {SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2}) sigdelset(&mask, number);

  std::array<int, 2> errors{};
  if (::pipe2(errors.data(), O_CLOEXEC) != 0) return tl::unexpected(errno);
  const pid_t parent = getpid();
  const pid_t pid = ::fork();
  if (pid == 0) become(argv, mask, parent, errors[1]);
  const int fork_error = errno;
  ::close(errors[1]);
  int error = pid < 0 ? fork_error : 0;
  if (pid > 0) {
    setpgid(pid, pid);  // whoever comes first
    if (::read(errors[0], &error, sizeof error) != sizeof error) error = 0;
  }
  ::close(errors[0]);
  if (error != 0) {
    if (pid > 0) ::waitpid(pid, nullptr, 0);
    return tl::unexpected(error);
  }
  pid_ = pid;
  code_.reset();
  return {};
}

void Job::signal(int number) const {
  if (runs()) ::kill(pid_, number);
}

std::optional<int> Job::wait(std::chrono::milliseconds time) {
  const bool ran = runs();
  const auto end = Clock::now() + time;
  do {
    takeSignals(std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()));
    if (ran ? !runs() : asked_ != 0) break;
  } while (Clock::now() < end);
  return ran && !runs() ? code_ : std::nullopt;
}

// Those that come within this time: returns at the first.
void Job::takeSignals(std::chrono::milliseconds time) {
  pollfd ready{.fd = signals_, .events = POLLIN, .revents = 0};
  ::poll(&ready, 1, static_cast<int>(std::max<int64_t>(0, time.count())));
  signalfd_siginfo came{};
  while (::read(signals_, &came, sizeof came) == sizeof came) {
    const auto number = static_cast<int>(came.ssi_signo);
    if (number == SIGINT || number == SIGQUIT || number == SIGTERM) asked_ = number;
    number == SIGCHLD ? reap() : signal(number);
  }
}

void Job::reap() {
  int status = 0;
  for (pid_t ended = 0; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    if (ended != pid_) continue;
    code_ = codeOf(status);
    pid_ = 0;
  }
}

// What has lost its parent becomes a child of this process only then.
void Job::end() {
  for (const int number : {SIGTERM, SIGKILL}) {
    const auto until = Clock::now() + kGrace;
    std::set<pid_t> told;
    if (runs()) ::kill(-pid_, number);
    for (std::vector<pid_t> children; !(children = childrenOf(getpid())).empty() && Clock::now() < until;) {
      for (const pid_t child : children) {
        if (told.insert(child).second && child != pid_) ::kill(child, number);
      }
      takeSignals(kBetweenLooks);
      reap();
    }
  }
}

}  // namespace idetcd::cli
