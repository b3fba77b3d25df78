#include "node/health_checks.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/executor.h"
#include "base/text.h"

namespace idetcd::node {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kScheme = "http://";
constexpr size_t kMaxStatusLine = 256;
constexpr std::chrono::milliseconds kKillPatience{1000};

// ADDRESS:PORT, ADDRESS or, with the default address, PORT.
std::optional<SocketAddress> parseTarget(std::string text, std::optional<uint16_t> default_port) {
  constexpr std::string_view kLocalhost = "localhost";
  if (text.starts_with(kLocalhost)) text.replace(0, kLocalhost.size(), "127.0.0.1");
  if (const auto whole = SocketAddress::parse(text)) return whole;
  if (!default_port) {
    const auto port = parseNumber<uint16_t>(text);
    if (!port || *port == 0) return std::nullopt;
    return SocketAddress{*IpAddress::parse("127.0.0.1"), *port, 0};
  }
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  const auto ip = IpAddress::parse(text);
  return ip ? std::optional(SocketAddress{*ip, *default_port, 0}) : std::nullopt;
}

// A wait for one descriptor, with a time limit, that the end of all ends too.
class Patience {
 public:
  Patience(std::chrono::milliseconds timeout, const FileDescriptor& stop) : end_(Clock::now() + timeout), stop_(stop) {}

  Patience again(std::chrono::milliseconds timeout) const { return {timeout, stop_}; }

  // Until `descriptor` is ready. False: the time is over.
  bool wait(int descriptor, int16_t events) const {
    while (true) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now());
      if (left.count() <= 0) return false;
      std::array<pollfd, 2> fds{{{descriptor, events, 0}, {stop_.get(), POLLIN, 0}}};
      const int ready = ::poll(fds.data(), fds.size(), static_cast<int>(left.count()));
      if (ready < 0 && errno != EINTR) return false;
      if (ready > 0) return fds[0].revents != 0;
    }
  }

 private:
  const Clock::time_point end_;
  const FileDescriptor& stop_;
};

// It may wait for a device or a file server for ever.
bool hasEnded(const sandbox::RunningProgram& program) {
  pollfd ended{.fd = program.descriptor(), .events = POLLIN, .revents = 0};
  return ::poll(&ended, 1, 0) > 0;
}

Result<void> runProgram(const Check& check, const Patience& patience, const sandbox::ProgramRunner& runner,
                        std::optional<sandbox::RunningProgram>& killed) {
  if (killed && !hasEnded(*killed)) return fail("does not end, though it was killed");
  killed.reset();
  constexpr bool kSilent = true;  // it runs each `check-interval`: what it prints would fill the server's log
  auto program = runner.start(check.command, {}, {}, kSilent);
  if (!program) return tl::unexpected(program.error());
  if (!patience.wait(program->descriptor(), POLLIN)) {
    program->kill();
    if (!patience.again(kKillPatience).wait(program->descriptor(), POLLIN)) killed = std::move(*program);
    return fail("did not end in time");
  }
  const auto status = program->wait();
  if (!status) return tl::unexpected(status.error());
  if (WIFSIGNALED(*status)) return fail(fmt::format("ended by signal {}", WTERMSIG(*status)));
  if (WEXITSTATUS(*status) != 0) return fail(fmt::format("ended with status {}", WEXITSTATUS(*status)));
  return {};
}

Result<FileDescriptor> connectTo(const SocketAddress& address, const Patience& patience) {
  sockaddr_storage storage{};
  const socklen_t length = address.toSockaddr(&storage);
  FileDescriptor socket(::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.isOpen()) return fail(std::strerror(errno));
  const auto* any = reinterpret_cast<const sockaddr*>(&storage);  // NOLINT: as the interface is
  if (::connect(socket.get(), any, length) == 0) return socket;
  if (errno != EINPROGRESS) return fail(std::strerror(errno));
  if (!patience.wait(socket.get(), POLLOUT)) return fail("no connection in time");
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return fail(std::strerror(error));
  return socket;
}

// The status line alone is read; nothing is followed.
Result<void> askUrl(const Check& check, const Patience& patience) {
  const auto socket = connectTo(check.address, patience);
  if (!socket) return tl::unexpected(socket.error());
  const std::string request = fmt::format(
      "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: idetcd\r\nAccept: */*\r\nConnection: close\r\n\r\n", check.path, check.host);
  // A new connection has room for so little.
  if (::send(socket->get(), request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size()))
    return fail("the request cannot be sent");
  std::string line;
  while (line.find('\n') == std::string::npos && line.size() < kMaxStatusLine) {
    if (!patience.wait(socket->get(), POLLIN)) return fail("no answer in time");
    std::array<char, kMaxStatusLine> bytes;
    const ssize_t size = ::recv(socket->get(), bytes.data(), bytes.size(), 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (size <= 0) return fail("the connection ends without an answer");
    line.append(bytes.data(), static_cast<size_t>(size));
  }
  const size_t code_begin = line.find(' ');
  const bool is_http = line.starts_with("HTTP/1.") && code_begin != std::string::npos;
  const auto code = is_http ? parseNumber<int>(line.substr(code_begin + 1, 3)) : std::nullopt;
  if (!code) return fail("the answer is not HTTP");
  if (*code < 200 || *code > 399) return fail(fmt::format("answers {}", *code));
  return {};
}

}  // namespace

Result<Check> Check::parse(const std::vector<std::string>& words) {
  if (words.empty() || words.front().empty()) return fail("there is no program");
  Check check;
  if (words.front() == "tcp") {
    const auto target = words.size() == 2 ? parseTarget(words[1], std::nullopt) : std::nullopt;
    if (!target) return fail("write: check tcp PORT, or check tcp ADDRESS:PORT");
    check.address = *target;
  } else if (words.front() == "http") {
    constexpr uint16_t kHttpPort = 80;
    const bool is_url = words.size() == 2 && lowerCase(words[1]).starts_with(kScheme);
    const std::string rest = is_url ? words[1].substr(kScheme.size()) : "";
    const size_t path = std::min(rest.find_first_of("/?"), rest.size());
    const auto target = parseTarget(rest.substr(0, path), kHttpPort);
    const auto is_plain = [](char c) { return c > ' ' && c < 127 && c != '#'; };
    if (!target || !std::ranges::all_of(rest, is_plain))
      return fail("write: check http http://ADDRESS[:PORT][/PATH], with an IP address or localhost");
    check.address = *target;
    check.host = rest.substr(0, path);
    check.path = rest.substr(path);
    if (!check.path.starts_with('/')) check.path.insert(0, "/");
  } else {
    check.command = words;
  }
  return check;
}

std::string Check::name() const {
  if (!command.empty()) return command.front();
  return host.empty() ? fmt::format("tcp {}", address.toString()) : fmt::format("http://{}{}", host, path);
}

void CheckVerdict::add(bool passed) {
  differing_ = passed == fails_ ? differing_ + 1 : 0;
  const int needed = is_first_ ? 1 : fails_ ? times_.passes : times_.fails;
  is_first_ = false;
  if (differing_ < needed) return;
  fails_ = !passed;
  differing_ = 0;
}

Result<void> attempt(const Check& check, std::chrono::milliseconds timeout, const sandbox::ProgramRunner* runner,
                     const FileDescriptor& stop, std::optional<sandbox::RunningProgram>& killed) {
  const Patience patience(timeout, stop);
  if (!check.command.empty()) {
    if (runner == nullptr) return fail("programs cannot be run");
    return runProgram(check, patience, *runner, killed);
  }
  if (!check.host.empty()) return askUrl(check, patience);
  const auto socket = connectTo(check.address, patience);
  return socket ? Result<void>() : tl::unexpected(socket.error());
}

HealthChecks::HealthChecks(std::vector<Check> checks, const CheckTimes& times,
                           std::shared_ptr<sandbox::ProgramRunner> runner, std::function<void(std::string)> on_change,
                           Logger log)
    : checks_(std::move(checks)),
      times_(times),
      runner_(std::move(runner)),
      on_change_(std::move(on_change)),
      log_(std::move(log)),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      verdicts_(checks_.size(), CheckVerdict(times)),
      reasons_(checks_.size()) {
  if (!stop_.isOpen()) log_.error("no check is looked at: {}", std::strerror(errno));
  for (size_t i = 0; i < checks_.size() && stop_.isOpen(); ++i) {
    auto thread = startThread([this, i] { run(i); });
    if (thread) {
      threads_.push_back(std::move(*thread));
    } else {
      log_.error("check {} is not looked at: {}", checks_[i].name(), thread.error().message);
    }
  }
}

HealthChecks::~HealthChecks() {
  const uint64_t one = 1;
  if (::write(stop_.get(), &one, sizeof one) < 0) log_.debug("check: {}", std::strerror(errno));
  for (std::thread& thread : threads_) thread.join();
}

void HealthChecks::run(size_t index) {
  std::optional<sandbox::RunningProgram> killed;
  do {
    const Clock::time_point begin = Clock::now();
    const Result<void> outcome = attempt(checks_[index], times_.timeout, runner_.get(), stop_, killed);
    if (!sleepUntil(begin)) return;  // what was interrupted says nothing
    take(index, outcome);
    if (!sleepUntil(begin + times_.interval)) return;
  } while (true);
}

// False: it is the end.
bool HealthChecks::sleepUntil(Clock::time_point time) const {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(time - Clock::now());
    pollfd stopped{.fd = stop_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&stopped, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000))) > 0) return false;
    if (Clock::now() >= time) return true;
  }
}

void HealthChecks::take(size_t index, const Result<void>& outcome) {
  const std::lock_guard lock(mutex_);
  verdicts_[index].add(outcome.has_value());
  if (!outcome) reasons_[index] = fmt::format("{}: {}", checks_[index].name(), outcome.error().message);
  std::string sick;
  for (size_t i = 0; i < checks_.size(); ++i) {
    if (verdicts_[i].fails()) sick += (sick.empty() ? "" : "; ") + reasons_[i];
  }
  if (std::exchange(sick_, sick) != sick) on_change_(sick);
}

}  // namespace idetcd::node
