#include "cluster/claim_hook.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <poll.h>
#include <spawn.h>
#include <string_view>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace idetcd::cluster {
namespace {

using namespace std::chrono_literals;

// The server's own environment, without what it may have inherited of another idetcd.
std::vector<std::string> environmentWith(const ClaimHook::Variables& variables) {
  std::vector<std::string> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("IDETCD_")) environment.emplace_back(*entry);
  }
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  return environment;
}

// As exec(3) wants it; points into `texts`.
std::vector<char*> pointersTo(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

ClaimHook::ClaimHook(Options options, Logger log)
    : options_(std::move(options)),
      log_(std::move(log)),
      wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { loop(); }) {}

ClaimHook::~ClaimHook() {
  finish(0ns);
  close(wake_fd_);
}

void ClaimHook::claimed(Variables variables, Ready ready) { add(true, std::move(variables), std::move(ready)); }

void ClaimHook::lost(Variables variables, Ready ready) { add(false, std::move(variables), std::move(ready)); }

void ClaimHook::add(bool is_claim, Variables variables, Ready ready) {
  {
    const std::lock_guard lock(mutex_);
    if (end_) return;
    ++sequence_;
    if (!is_claim && !waiting_.empty() && waiting_.back().is_claim) {
      log_.warning("on-claim: {} does not keep up: a claim and its loss (events {} and {}) are left out",
                   options_.command[0], sequence_ - 1, sequence_);
      waiting_.pop_back();
      return;
    }
    variables.emplace_back("IDETCD_EVENT", is_claim ? "claim" : "loss");
    variables.emplace_back("IDETCD_SEQUENCE", std::to_string(sequence_));
    waiting_.push_back({is_claim, std::move(variables), std::move(ready)});
  }
  changed_.notify_one();
}

void ClaimHook::finish(std::chrono::nanoseconds budget) {
  {
    const std::lock_guard lock(mutex_);
    const BootClock::time_point end = BootClock::now() + budget;
    if (!end_ || end < *end_) end_ = end;
  }
  changed_.notify_one();
  const uint64_t one = 1;
  if (write(wake_fd_, &one, sizeof one) < 0) log_.debug("on-claim: {}", std::strerror(errno));
  if (thread_.joinable()) thread_.join();
}

void ClaimHook::abandon() {
  const std::lock_guard lock(running_mutex_);
  abandoned_ = true;
  if (running_ > 0) kill(-running_, SIGKILL);
}

void ClaimHook::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !waiting_.empty() || end_; });
    if (waiting_.empty()) return;
    const Event event = std::move(waiting_.front());
    waiting_.pop_front();
    if (end_ && BootClock::now() >= *end_) continue;
    lock.unlock();
    if (event.ready.valid()) event.ready.wait_for(options_.patience);
    runOne(event.variables);
    lock.lock();
  }
}

void ClaimHook::runOne(const Variables& variables) {
  const pid_t pid = start(variables);
  if (pid < 0) return;
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (!waitForEnd(pid, pidfd)) {
    log_.warning("on-claim: {} did not end in time and was killed", options_.command[0]);
    kill(-pid, SIGKILL);
  }
  if (pidfd >= 0) close(pidfd);
  {
    const std::lock_guard lock(running_mutex_);
    running_ = 0;  // once reaped the number may be anybody's
  }
  reap(pid);
}

// Negative: nothing runs.
pid_t ClaimHook::start(const Variables& variables) {
  const std::lock_guard lock(running_mutex_);
  if (abandoned_) return -1;
  const pid_t pid = spawn(variables);
  running_ = std::max<pid_t>(pid, 0);
  return pid;
}

pid_t ClaimHook::spawn(const Variables& variables) {
  std::vector<std::string> arguments = options_.command;
  std::vector<std::string> environment = environmentWith(variables);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);

  pid_t pid = -1;
  const int error = posix_spawnp(&pid, arguments[0].c_str(), &files, &attributes, pointersTo(arguments).data(),
                                 pointersTo(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error == 0) return pid;
  log_.error("on-claim: {} cannot be run: {}", options_.command[0], std::strerror(error));
  return -1;
}

// False: it has to be killed.
bool ClaimHook::waitForEnd(pid_t pid, int pidfd) {
  const BootClock::time_point started = BootClock::now();
  while (true) {
    const BootClock::time_point limit = limitOf(started);
    const BootClock::time_point now = BootClock::now();
    if (now >= limit) return false;
    auto patience = std::chrono::ceil<std::chrono::milliseconds>(limit - now);
    if (pidfd < 0) {  // a kernel before 5.3
      siginfo_t info{};
      if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT | WNOHANG) == 0 && info.si_pid == pid)
        return true;
      patience = std::min<std::chrono::milliseconds>(patience, 20ms);
    }
    // Once finish() has begun the wake-up has said all that it has to say.
    const bool finishing = limit < started + options_.time_limit;
    std::array<pollfd, 2> fds{{{pidfd, POLLIN, 0}, {finishing ? -1 : wake_fd_, POLLIN, 0}}};
    poll(fds.data(), fds.size(), static_cast<int>(std::min<int64_t>(patience.count(), 1000)));
    if ((fds[0].revents & POLLIN) != 0) return true;
  }
}

BootClock::time_point ClaimHook::limitOf(BootClock::time_point started) {
  const BootClock::time_point limit = started + options_.time_limit;
  const std::lock_guard lock(mutex_);
  return end_ ? std::min(limit, *end_) : limit;
}

void ClaimHook::reap(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return;
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
    log_.warning("on-claim: {} ended with status {}", options_.command[0], WEXITSTATUS(status));
  if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
    log_.warning("on-claim: {} was ended by signal {}", options_.command[0], WTERMSIG(status));
}

}  // namespace idetcd::cluster
