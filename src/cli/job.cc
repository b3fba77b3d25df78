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

constexpr int kUnknownCode = 1;
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
[[noreturn]] void become(const std::vector<char*>& argv, const sigset_t& mask, pid_t parent, bool has_terminal, int errors) {
  setpgid(0, 0);
  if (has_terminal) tcsetpgrp(STDIN_FILENO, getpid());
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

std::vector<char*> argumentsOf(std::vector<std::string>& words) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  return arguments;
}

Job::Job()
    : has_terminal_(isatty(STDIN_FILENO) == 1 && tcgetpgrp(STDIN_FILENO) == getpgrp()), others_(childrenOf(getpid())) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::signal(SIGCHLD, SIG_DFL);  // else the kernel reaps
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
  const std::vector<char*> argv = argumentsOf(kept);
  sigset_t mask;
  sigprocmask(SIG_BLOCK, nullptr, &mask);
  for (const int number : {SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2}) sigdelset(&mask, number);

  std::array<int, 2> errors{};
  if (::pipe2(errors.data(), O_CLOEXEC) != 0) return tl::unexpected(errno);
  const pid_t parent = getpid();
  const pid_t pid = ::fork();
  if (pid == 0) become(argv, mask, parent, has_terminal_, errors[1]);
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
    if (number == SIGINT || number == SIGTERM) asked_ = number;
    number == SIGCHLD ? reap() : signal(number);
  }
}

void Job::reap() {
  int status = 0;
  pid_t changed = 0;
  while ((changed = ::waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
    if (changed == pid_ && WIFSTOPPED(status)) {
      stopToo();
    } else if (!WIFSTOPPED(status)) {
      std::erase(others_, changed);
      if (changed == pid_) noteEnd(codeOf(status));
    }
  }
  if (changed < 0 && errno == ECHILD && runs()) noteEnd(kUnknownCode);
}

void Job::noteEnd(int code) {
  code_ = code;
  pid_ = 0;
  if (has_terminal_) tcsetpgrp(STDIN_FILENO, getpgrp());
}

// Ctrl-Z stops the program's group alone: the shell waits for this process.
void Job::stopToo() {
  if (!has_terminal_) return;
  tcsetpgrp(STDIN_FILENO, getpgrp());
  ::raise(SIGSTOP);
  tcsetpgrp(STDIN_FILENO, pid_);
  ::kill(-pid_, SIGCONT);
}

// The program, and what it has left behind: that has become a child of this process.
std::vector<pid_t> Job::descendants() const {
  std::vector<pid_t> children = childrenOf(getpid());
  std::erase_if(children, [this](pid_t child) { return std::ranges::find(others_, child) != others_.end(); });
  return children;
}

void Job::end() {
  asked_ = 0;
  for (const int number : {SIGTERM, SIGKILL}) {
    const auto until = Clock::now() + kGrace;
    std::set<pid_t> told;
    if (runs()) ::kill(-pid_, number);
    for (std::vector<pid_t> left; !(left = descendants()).empty() || runs();) {
      if (Clock::now() >= until) break;
      for (const pid_t child : left) {
        if (told.insert(child).second && child != pid_) ::kill(child, number);
      }
      takeSignals(kBetweenLooks);
      reap();
    }
  }
}

}  // namespace idetcd::cli
