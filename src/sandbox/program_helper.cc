#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/program_helper_internal.h"
#include "sandbox/program_runner.h"
#include "sandbox/rights.h"

extern char** environ;

namespace idetcd::sandbox {
namespace {

struct Program {
  pid_t pid = -1;
  FileDescriptor channel;
  bool killed = false;
};

struct Request {
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
  FileDescriptor channel;
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
  Request request{.arguments = {}, .environment = ownEnvironment(), .channel = {}};
  while (!bytes.empty()) {
    const std::string_view text = bytes.substr(0, bytes.find('\0'));
    auto& list = request.arguments.size() < header.arguments ? request.arguments : request.environment;
    list.emplace_back(text);
    bytes.remove_prefix(std::min(text.size() + 1, bytes.size()));
  }
  return request;
}

FileDescriptor descriptorOf(const msghdr& message) {
  const cmsghdr* rights = CMSG_FIRSTHDR(&message);
  if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return {};
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(rights), sizeof fd);
  return FileDescriptor(fd);
}

// As exec(3) wants it; points into `texts`.
std::vector<char*> pointersTo(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// 0 or the errno. No signal that the helper blocks is blocked in the program.
int spawn(Request& request, pid_t* pid) {
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
  const int error = posix_spawnp(pid, request.arguments[0].c_str(), &files, &attributes,
                                 pointersTo(request.arguments).data(), pointersTo(request.environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
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

  // False: the server has ended.
  bool takeEvents() {
    std::vector<pollfd> events{{channel_.get(), POLLIN, 0}, {ended_.get(), POLLIN, 0}};
    for (const Program& program : programs_) {
      events.push_back({program.killed ? -1 : program.channel.get(), POLLIN, 0});
    }
    if (poll(events.data(), events.size(), -1) < 0) return errno == EINTR;
    for (size_t i = 0; i < programs_.size(); ++i) {
      if (events[2 + i].revents == 0) continue;
      ::kill(-programs_[i].pid, SIGKILL);  // nothing is ever sent on it: the server wants the program gone
      programs_[i].killed = true;
    }
    if (events[1].revents != 0) reap();
    return events[0].revents == 0 || takeRequest();
  }

  bool takeRequest() {
    std::vector<char> buffer(ProgramRunner::kMaxRequestBytes);
    iovec data{.iov_base = buffer.data(), .iov_len = buffer.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t size = recvmsg(channel_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (size < 0) return errno == EINTR || errno == EAGAIN;
    if (static_cast<size_t>(size) < sizeof(RequestHeader)) return false;
    FileDescriptor channel = descriptorOf(message);
    Request request = parseRequest({buffer.data(), static_cast<size_t>(size)});
    request.channel = std::move(channel);
    start(std::move(request));
    return true;
  }

  void start(Request request) {
    // The server has given it up, while this process stood still.
    pollfd wanted{.fd = request.channel.get(), .events = POLLIN, .revents = 0};
    if (poll(&wanted, 1, 0) != 0) return;
    pid_t pid = -1;
    const int error = spawn(request, &pid);
    if (error != 0) return send(request.channel, {.error = error, .status = 0});
    programs_.push_back({.pid = pid, .channel = std::move(request.channel)});
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
      send(program.channel, {.error = ended < 0 ? errno : 0, .status = status});
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

}  // namespace

void runProgramHelper(FileDescriptor channel, Mode mode) {
  // A refusal here is one for the server too, which reports it: see confine().
  if (mode != Mode::kOff) {
    [[maybe_unused]] const auto done = keepOnlyBindingOfPorts();
  }
  closeAllBut(channel);
  prctl(PR_SET_NAME, "idetcd-programs");  // in ps and top
  Helper(std::move(channel)).run();
  _exit(0);
}

}  // namespace idetcd::sandbox
