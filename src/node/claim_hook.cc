#include "node/claim_hook.h"

#include <csignal>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/executor.h"

namespace idetcd::node {

using namespace std::chrono_literals;

ClaimHook::ClaimHook(Options options, Logger log)
    : options_(std::move(options)), log_(std::move(log)), wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  assert(!options_.command.empty() && options_.runner);
}

ClaimHook::~ClaimHook() {
  finish(0ns);
  close(wake_fd_);
}

void ClaimHook::claimed(Variables variables, Ready ready) {
  add({true, std::move(variables), std::move(ready), nullptr});
}

void ClaimHook::lost(Variables variables, Ready ready, std::shared_ptr<void> held) {
  add({false, std::move(variables), std::move(ready), std::move(held)});
}

void ClaimHook::add(Event event) {
  {
    const std::lock_guard lock(mutex_);
    if (end_) return;
    ++sequence_;
    if (!event.is_claim && !waiting_.empty() && waiting_.back().is_claim) {
      log_.warning("on-claim: {} does not keep up: a claim and its loss (events {} and {}) are left out",
                   options_.command[0], sequence_ - 1, sequence_);
      waiting_.pop_back();
      return;
    }
    event.variables.emplace_back("IDETCD_EVENT", event.is_claim ? "claim" : "loss");
    event.variables.emplace_back("IDETCD_SEQUENCE", std::to_string(sequence_));
    waiting_.push_back(std::move(event));
    if (!thread_.joinable()) startLoop();
  }
  changed_.notify_one();
}

void ClaimHook::startLoop() {
  auto thread = startThread([this] { loop(); });
  if (thread) {
    thread_ = std::move(*thread);
  } else {
    log_.error("on-claim: {} waits for the next event: {}", options_.command[0], thread.error().message);
  }
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
  if (running_) running_->kill();
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
    if (event.ready.valid()) event.ready.wait_for(options_.ready_timeout);
    runOne(event.variables);
    lock.lock();
  }
}

void ClaimHook::runOne(const Variables& variables) {
  const auto program = start(variables);
  if (!program) return;
  if (waitForEnd(*program)) {
    report(program->wait());
  } else {
    killAndWait(*program);
  }
  const std::lock_guard lock(running_mutex_);
  running_ = nullptr;
}

// Null: nothing runs.
std::shared_ptr<sandbox::RunningProgram> ClaimHook::start(const Variables& variables) {
  const std::lock_guard lock(running_mutex_);
  if (abandoned_) return nullptr;
  auto program = options_.runner->start(options_.command, variables);
  if (!program) {
    report(tl::unexpected(program.error()));
    return nullptr;
  }
  running_ = std::make_shared<sandbox::RunningProgram>(std::move(*program));
  return running_;
}

// False: it has to be killed.
bool ClaimHook::waitForEnd(const sandbox::RunningProgram& program) {
  const BootClock::time_point started = BootClock::now();
  while (true) {
    const BootClock::time_point limit = limitOf(started);
    const BootClock::time_point now = BootClock::now();
    if (now >= limit) return false;
    const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(limit - now);
    // Once finish() has begun the wake-up has said all that it has to say.
    const bool finishing = limit < started + options_.time_limit;
    std::array<pollfd, 2> fds{{{program.descriptor(), POLLIN, 0}, {finishing ? -1 : wake_fd_, POLLIN, 0}}};
    poll(fds.data(), fds.size(), static_cast<int>(std::min<int64_t>(timeout.count(), 1000)));
    if (fds[0].revents != 0) return true;
  }
}

void ClaimHook::killAndWait(const sandbox::RunningProgram& program) const {
  program.kill();
  pollfd ended{.fd = program.descriptor(), .events = POLLIN, .revents = 0};
  const bool has_ended = poll(&ended, 1, static_cast<int>(kKillPatience.count())) == 1;
  log_.warning("on-claim: {} did not end in time and was killed{}", options_.command[0],
               has_ended ? "" : ", and has not ended since: it is left alone");
}

BootClock::time_point ClaimHook::limitOf(BootClock::time_point started) {
  const BootClock::time_point limit = started + options_.time_limit;
  const std::lock_guard lock(mutex_);
  return end_ ? std::min(limit, *end_) : limit;
}

void ClaimHook::report(const Result<int>& status) const {
  const std::string& program = options_.command[0];
  if (!status) return log_.error("on-claim: {} cannot be run: {}", program, status.error().message);
  if (WIFEXITED(*status) && WEXITSTATUS(*status) != 0)
    log_.warning("on-claim: {} ended with status {}", program, WEXITSTATUS(*status));
  if (WIFSIGNALED(*status) && WTERMSIG(*status) != SIGKILL)
    log_.warning("on-claim: {} was ended by signal {}", program, WTERMSIG(*status));
}

}  // namespace idetcd::node
