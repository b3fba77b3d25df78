#include "sandbox/program_runner.h"

#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace idetcd::sandbox {

namespace {

// A request is the number of arguments, then arguments and variables ("NAME=value"), each with its NUL. The descriptor
// of the program's channel comes with it, and behind it that of its output, if it has one.
constexpr size_t kMostDescriptors = 2;
struct RequestHeader {
  uint32_t arguments = 0;
  bool is_silent = false;
};

struct ProgramReport {
  int32_t error = 0;   // errno of the start; 0: it was started
  int32_t status = 0;  // waitpid(2)'s
};

// --- the helper ---

struct Program {
  pid_t pid = -1;
  FileDescriptor failure;  // has the errno if it could not be started, once it has ended
  FileDescriptor channel;
  bool killed = false;
};

struct Request {
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
  FileDescriptor channel;
  FileDescriptor output;
  bool is_silent = false;
};

// The helper's own environment, without what the server may have inherited of another idetcd.
std::vector<std::string> ownEnvironment() {
  std::vector<std::string> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("IDETCD_")) environment.emplace_back(*entry);
  }
  return environment;
}

Request parseRequest(std::string_view bytes) {
  RequestHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  bytes.remove_prefix(sizeof header);
  Request request{
      .arguments = {}, .environment = ownEnvironment(), .channel = {}, .output = {}, .is_silent = header.is_silent};
  while (!bytes.empty()) {
    const std::string_view text = bytes.substr(0, bytes.find('\0'));
    auto& list = request.arguments.size() < header.arguments ? request.arguments : request.environment;
    list.emplace_back(text);
    bytes.remove_prefix(std::min(text.size() + 1, bytes.size()));
  }
  return request;
}

std::array<FileDescriptor, kMostDescriptors> descriptorsOf(const msghdr& message) {
  const cmsghdr* rights = CMSG_FIRSTHDR(&message);
  if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return {};
  std::array<int, kMostDescriptors> fds{-1, -1};
  std::memcpy(fds.data(), CMSG_DATA(rights), std::min(sizeof fds, rights->cmsg_len - CMSG_LEN(0)));
  return {FileDescriptor(fds[0]), FileDescriptor(fds[1])};
}

// As exec(3) wants it; points into `texts`.
std::vector<char*> pointersTo(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// In the program's process: becomes the program, or ends with the errno written to `failure`. No signal that the helper
// blocks is blocked in it; the kernel kills it when the helper ends, even if that was killed itself. posix_spawn(3)
// cannot ask for that.
[[noreturn]] void become(char* const* arguments, char* const* environment, pid_t helper, const Request& request,
                         const FileDescriptor& failure) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != helper) _exit(1);
  for (int number = 1; number < NSIG; ++number) std::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(nowhere, STDIN_FILENO);
  if (request.is_silent) dup2(nowhere, STDOUT_FILENO);
  if (request.is_silent) dup2(nowhere, STDERR_FILENO);
  if (request.output.isOpen()) dup2(request.output.get(), STDOUT_FILENO);
  execvpe(arguments[0], arguments, environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(failure.get(), &error, sizeof error);
  _exit(1);
}

// 0 or the errno. Does not wait until it is the program: a file server that stands still may hold that up for ever.
int spawn(Request& request, Program* program) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return errno;
  program->failure = FileDescriptor(ends[0]);
  const FileDescriptor failure(ends[1]);
  const std::vector<char*> arguments = pointersTo(request.arguments);
  const std::vector<char*> environment = pointersTo(request.environment);
  const pid_t helper = getpid();
  program->pid = fork();
  if (program->pid < 0) return errno;
  if (program->pid == 0) become(arguments.data(), environment.data(), helper, request, failure);
  setpgid(program->pid, program->pid);  // whichever of the two does so first: it can be killed at once
  return 0;
}

// Of a program that has ended: what kept it from being started; 0: nothing.
int failureOf(const Program& program) {
  int error = 0;
  return read(program.failure.get(), &error, sizeof error) == sizeof error ? error : 0;
}

void send(const FileDescriptor& channel, const ProgramReport& report) {
  // A server that has gone needs no report.
  [[maybe_unused]] const ssize_t sent = ::send(channel.get(), &report, sizeof report, MSG_NOSIGNAL | MSG_DONTWAIT);
}

class Helper {
 public:
  explicit Helper(FileDescriptor channel) : channel_(std::move(channel)), ended_(watchChildren()) {}

  void run() {
    while (takeEvents()) {
    }
    for (const Program& program : programs_) ::kill(-program.pid, SIGKILL);
  }

 private:
  static FileDescriptor watchChildren() {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    std::signal(SIGCHLD, SIG_DFL);  // a parent that ignores it would have our programs vanish unseen
    return FileDescriptor(signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
  }

  // Of the two that may come on a program's channel, a message or its end.
  static bool takesTerminate(const Program& program) {
    char message = 0;
    return recv(program.channel.get(), &message, sizeof message, MSG_DONTWAIT) > 0;
  }

  // False: the server has ended.
  bool takeEvents() {
    std::vector<pollfd> events{{channel_.get(), POLLIN, 0}, {ended_.get(), POLLIN, 0}};
    for (const Program& program : programs_) {
      events.push_back({program.killed ? -1 : program.channel.get(), POLLIN, 0});
    }
    if (poll(events.data(), events.size(), -1) < 0) return errno == EINTR;
    for (size_t i = 0; i < programs_.size(); ++i) {
      if (events[2 + i].revents == 0) continue;
      programs_[i].killed = !takesTerminate(programs_[i]);
      ::kill(-programs_[i].pid, programs_[i].killed ? SIGKILL : SIGTERM);
    }
    if (events[1].revents != 0) reap();
    return events[0].revents == 0 || takeRequest();
  }

  bool takeRequest() {
    std::vector<char> buffer(ProgramRunner::kMaxRequestBytes);
    iovec data{.iov_base = buffer.data(), .iov_len = buffer.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t size = recvmsg(channel_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (size < 0) return errno == EINTR || errno == EAGAIN;
    if (static_cast<size_t>(size) < sizeof(RequestHeader)) return false;
    auto [channel, output] = descriptorsOf(message);
    Request request = parseRequest({buffer.data(), static_cast<size_t>(size)});
    request.channel = std::move(channel);
    request.output = std::move(output);
    start(std::move(request));
    return true;
  }

  void start(Request request) {
    if (!request.channel.isOpen()) return;  // this process has no descriptor left: nobody could end the program
    // The server has given it up, while this process stood still.
    pollfd wanted{.fd = request.channel.get(), .events = POLLIN, .revents = 0};
    if (poll(&wanted, 1, 0) != 0) return;
    Program program;
    const int error = spawn(request, &program);
    if (error != 0) return send(request.channel, {.error = error, .status = 0});
    program.channel = std::move(request.channel);
    programs_.push_back(std::move(program));
  }

  // One signal may stand for several programs.
  void reap() {
    signalfd_siginfo info;
    while (read(ended_.get(), &info, sizeof info) > 0) {
    }
    std::erase_if(programs_, [](const Program& program) {
      int status = 0;
      const pid_t ended = waitpid(program.pid, &status, WNOHANG);
      if (ended == 0) return false;
      send(program.channel, {.error = ended < 0 ? errno : failureOf(program), .status = status});
      return true;
    });
  }

  const FileDescriptor channel_;
  const FileDescriptor ended_;  // readable when a program may have ended
  std::vector<Program> programs_;
};

// Descriptors that the server inherited or opened before are not for the helper.
void closeAllBut(const FileDescriptor& kept) {
  const auto fd = static_cast<unsigned>(kept.get());
  if (fd > STDERR_FILENO + 1) close_range(STDERR_FILENO + 1, fd - 1, 0);
  close_range(fd + 1, ~0U, 0);
}

// The process that runs programs. Gives up the rights of the start unless `mode` is kOff. Serves requests until the other end
// of `channel` is closed, then kills what runs and ends the process. REQUIRES: every signal is blocked.
[[noreturn]] void runProgramHelper(FileDescriptor channel, Mode mode) {
  // A refusal here is one for the server too, which reports it: see confine().
  if (mode != Mode::kOff) {
    [[maybe_unused]] const auto done = keepOnlyBindingOfPorts();
  }
  closeAllBut(channel);
  prctl(PR_SET_NAME, "idetcd-programs");  // in ps and top
  Helper(std::move(channel)).run();
  _exit(0);
}

// --- the server ---

constexpr const char* kGone = "the helper process that runs programs has ended";

struct Channel {
  FileDescriptor ours;
  FileDescriptor theirs;
};

Result<Channel> makeChannel() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return failWith(errno, "socketpair");
  return Channel{.ours = FileDescriptor(ends[0]), .theirs = FileDescriptor(ends[1])};
}

void append(std::string* request, std::string_view text) {
  request->append(text);
  request->push_back('\0');
}

std::string requestOf(const std::vector<std::string>& command, const ProgramRunner::Variables& variables,
                      bool is_silent) {
  const RequestHeader header{.arguments = static_cast<uint32_t>(command.size()), .is_silent = is_silent};
  std::string request(sizeof header, '\0');
  std::memcpy(request.data(), &header, sizeof header);
  for (const std::string& argument : command) append(&request, argument);
  for (const auto& [name, value] : variables) append(&request, name + "=" + value);
  return request;
}

// One datagram, with descriptors. 0 or the errno. REQUIRES: kMostDescriptors at most.
int sendWith(int channel, std::string& request, const std::vector<int>& descriptors) {
  const size_t size = descriptors.size() * sizeof(int);
  iovec data{.iov_base = request.data(), .iov_len = request.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(size);
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(size);
  std::memcpy(CMSG_DATA(rights), descriptors.data(), size);
  // A helper that was stopped is not waited for.
  while (sendmsg(channel, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

}  // namespace

void RunningProgram::terminate() const { ::send(channel_.get(), "", 1, MSG_NOSIGNAL | MSG_DONTWAIT); }

void RunningProgram::kill() const { shutdown(channel_.get(), SHUT_WR); }

Result<int> RunningProgram::wait() const {
  ProgramReport report;
  ssize_t size = 0;
  do {
    size = recv(channel_.get(), &report, sizeof report, 0);
  } while (size < 0 && errno == EINTR);
  if (size != sizeof report) return fail(kGone);
  if (report.error != 0) return failWith(report.error);
  return report.status;
}

Result<std::unique_ptr<ProgramRunner>> ProgramRunner::make(Mode mode) {
  auto channel = makeChannel();
  if (!channel) return tl::unexpected(channel.error());
  // The helper is never without its mask.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t helper = fork();
  if (helper == 0) {
    channel->ours = FileDescriptor();
    runProgramHelper(std::move(channel->theirs), mode);
  }
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (helper < 0) return failWith(error, "fork");
  return std::unique_ptr<ProgramRunner>(new ProgramRunner(std::move(channel->ours), helper));
}

ProgramRunner::~ProgramRunner() {
  constexpr int kBudgetMs = 1000;
  shutdown(channel_.get(), SHUT_WR);
  pollfd ended{.fd = channel_.get(), .events = POLLIN, .revents = 0};
  // Its end of the channel is closed when it has ended, or a moment before.
  if (poll(&ended, 1, kBudgetMs) == 1) waitpid(helper_, nullptr, 0);
}

Result<RunningProgram> ProgramRunner::start(const std::vector<std::string>& command, const Variables& variables,
                                            const FileDescriptor& output, bool is_silent) const {
  assert(!command.empty());
  std::string request = requestOf(command, variables, is_silent);
  if (request.size() > kMaxRequestBytes) return failWith(E2BIG);
  auto channel = makeChannel();
  if (!channel) return tl::unexpected(channel.error());
  std::vector<int> descriptors{channel->theirs.get()};
  if (output.get() >= 0) descriptors.push_back(output.get());
  switch (const int error = sendWith(channel_.get(), request, descriptors); error) {
    case 0:
      return RunningProgram(std::move(channel->ours));
    case EPIPE:
    case ECONNRESET:
      return fail(kGone);
    case EAGAIN:
      return fail("the helper process that runs programs takes no request");
    default:
      return failWith(error);
  }
}

}  // namespace idetcd::sandbox
