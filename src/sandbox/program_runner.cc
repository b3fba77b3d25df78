#include "sandbox/program_runner.h"

#include <csignal>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "sandbox/program_helper_internal.h"

namespace idetcd::sandbox {
namespace {

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

std::string requestOf(const std::vector<std::string>& command, const ProgramRunner::Variables& variables) {
  const RequestHeader header{.arguments = static_cast<uint32_t>(command.size())};
  std::string request(sizeof header, '\0');
  std::memcpy(request.data(), &header, sizeof header);
  for (const std::string& argument : command) append(&request, argument);
  for (const auto& [name, value] : variables) append(&request, name + "=" + value);
  return request;
}

// One datagram, with a descriptor. 0 or the errno.
int sendWith(int channel, std::string& request, int descriptor) {
  iovec data{.iov_base = request.data(), .iov_len = request.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
  // A helper that was stopped is not waited for.
  while (sendmsg(channel, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

}  // namespace

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

Result<RunningProgram> ProgramRunner::start(const std::vector<std::string>& command, const Variables& variables) const {
  assert(!command.empty());
  std::string request = requestOf(command, variables);
  if (request.size() > kMaxRequestBytes) return failWith(E2BIG);
  auto channel = makeChannel();
  if (!channel) return tl::unexpected(channel.error());
  switch (const int error = sendWith(channel_.get(), request, channel->theirs.get()); error) {
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
