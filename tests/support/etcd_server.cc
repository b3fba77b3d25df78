#include "support/etcd_server.h"

#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <netinet/in.h>
#include <poll.h>
#include <random>
#include <signal.h>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace idetcd::test_support {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr seconds kReadyTimeout{60};

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void reset() { *this = Fd(); }

 private:
  int fd_;
};

[[noreturn]] void throwErrno(const std::string& what) { throw std::runtime_error(what + ": " + std::strerror(errno)); }

const sockaddr* asSockaddr(const void* address) { return static_cast<const sockaddr*>(address); }

bool loopbackPortIsFree(uint16_t port) {
  const Fd v4(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(v4.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return ::bind(v4.get(), asSockaddr(&address), sizeof address) == 0;
}

constexpr std::string_view kDirectoryPrefix = "idetcd-etcd-";

// A test that crashed could not remove its directory: the next one does. The name carries the process ID.
void removeOrphanedDirectories() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::temp_directory_path(), error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kDirectoryPrefix)) continue;
    const int pid = std::atoi(name.c_str() + kDirectoryPrefix.size());
    if (pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH) std::filesystem::remove_all(entry.path(), error);
  }
}

std::string makeTemporaryDirectory() {
  removeOrphanedDirectories();
  const std::string name = std::string(kDirectoryPrefix) + std::to_string(::getpid()) + "-XXXXXX";
  std::string path = (std::filesystem::temp_directory_path() / name).string();
  if (::mkdtemp(path.data()) == nullptr) throwErrno("mkdtemp");
  return path;
}

// Everything the child needs is made before fork(): between fork() and exec() of a program with threads only
// async-signal-safe functions may run.
pid_t spawn(const std::vector<std::string>& arguments, const std::vector<std::string>& more_environment,
            int output_fd) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> envp;
  for (const std::string& variable : more_environment) envp.push_back(const_cast<char*>(variable.c_str()));
  for (char** variable = environ; *variable != nullptr; ++variable) {
    // ETCD_* and ETCDCTL_* variables would override or contradict our flags; proxies are not for loopback.
    const std::string_view text(*variable);
    if (text.starts_with("ETCD") || text.starts_with("NOTIFY_SOCKET=") || text.starts_with("http_proxy=") ||
        text.starts_with("HTTP_PROXY="))
      continue;
    envp.push_back(*variable);
  }
  envp.push_back(nullptr);

  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throwErrno("fork");
  if (pid > 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(126);  // the parent died before prctl()
  ::dup2(output_fd, STDOUT_FILENO);
  ::dup2(output_fd, STDERR_FILENO);
  ::execvpe(argv[0], argv.data(), envp.data());
  ::_exit(127);
}

std::string readFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

// A port that is free and stays ours: outside the range the kernel gives to outgoing connections, so that nothing takes
// it while etcd is down, and marked as taken, for test programs that run at the same time, by an abstract socket name.
struct EtcdServer::Port {
  static std::unique_ptr<Port> reserve() {
    std::random_device random;
    std::uniform_int_distribution<int> candidates(20000, 32000);
    for (int attempt = 0; attempt < 1000; ++attempt) {
      const auto port = static_cast<uint16_t>(candidates(random));
      Fd mark(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));  // as harness/ports.py: a name counts for its type
      sockaddr_un name{};
      name.sun_family = AF_UNIX;
      const std::string text = "idetcd-test-port-" + std::to_string(port);
      std::memcpy(name.sun_path + 1, text.data(), text.size());
      const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
      if (::bind(mark.get(), asSockaddr(&name), length) != 0 || !loopbackPortIsFree(port)) continue;
      auto reserved = std::make_unique<Port>();
      reserved->mark = std::move(mark);
      reserved->number = port;
      return reserved;
    }
    throw std::runtime_error("no free port");
  }

  Fd mark;
  uint16_t number = 0;
};

EtcdServer::EtcdServer() : EtcdServer(Options{}) {}

EtcdServer::EtcdServer(Options options) : EtcdServer(std::move(options), "m0") {
  initial_cluster_ = name_ + "=http://127.0.0.1:" + std::to_string(peer_port_);
  start();
}

EtcdServer::EtcdServer(Options options, std::string name)
    : options_(std::move(options)),
      name_(std::move(name)),
      directory_(makeTemporaryDirectory()),
      client_reservation_(Port::reserve()),
      peer_reservation_(Port::reserve()),
      client_port_(client_reservation_->number),
      peer_port_(peer_reservation_->number) {}

EtcdServer::~EtcdServer() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (notify_fd_ >= 0) ::close(notify_fd_);
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

std::string EtcdServer::endpoint() const {
  return (options_.tls ? "https://" : "http://") + options_.client_host + ":" + std::to_string(client_port_);
}

std::string EtcdServer::log() const { return readFile(directory_ + "/log"); }

std::string EtcdServer::logTail() const {
  const std::string text = log();
  return text.size() > 2000 ? text.substr(text.size() - 2000) : text;
}

void EtcdServer::launch() {
  if (pid_ > 0) throw std::runtime_error("etcd runs already");
  const std::string notify_path = directory_ + "/notify";
  ::unlink(notify_path.c_str());
  Fd notify(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  notify_path.copy(address.sun_path, sizeof address.sun_path - 1);
  if (::bind(notify.get(), asSockaddr(&address), sizeof address) != 0) throwErrno("bind " + notify_path);

  const std::string peer_url = "http://127.0.0.1:" + std::to_string(peer_port_);
  std::vector<std::string> arguments{"etcd", "--name=" + name_, "--data-dir=" + directory_ + "/data",
                                     "--listen-client-urls=" + endpoint(), "--advertise-client-urls=" + endpoint(),
                                     "--listen-peer-urls=" + peer_url, "--initial-advertise-peer-urls=" + peer_url,
                                     "--initial-cluster=" + initial_cluster_,
                                     // as unique as the peers' ports
                                     "--initial-cluster-token=" + initial_cluster_, "--heartbeat-interval=50",
                                     "--election-timeout=500", "--unsafe-no-fsync"};
  if (const auto& tls = options_.tls) {
    arguments.insert(arguments.end(), {"--cert-file=" + tls->certificate_file, "--key-file=" + tls->key_file});
    if (!tls->ca_file.empty())
      arguments.insert(arguments.end(), {"--client-cert-auth", "--trusted-ca-file=" + tls->ca_file});
  }
  arguments.insert(arguments.end(), options_.extra_arguments.begin(), options_.extra_arguments.end());

  const Fd output(::open((directory_ + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (output.get() < 0) throwErrno("open log");
  pid_ = spawn(arguments, {"NOTIFY_SOCKET=" + notify_path}, output.get());
  if (notify_fd_ >= 0) ::close(notify_fd_);
  notify_fd_ = notify.release();
}

void EtcdServer::waitReady() {
  // By number: the header of glibc 2.36 declares pidfd_open() with C++ linkage.
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  const auto deadline = steady_clock::now() + kReadyTimeout;
  while (true) {
    pollfd waits[2] = {{notify_fd_, POLLIN, 0}, {process.get(), POLLIN, 0}};
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
    const int ready = left.count() > 0 ? ::poll(waits, 2, static_cast<int>(left.count())) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) throw std::runtime_error("etcd did not get ready:\n" + logTail());
    if ((waits[0].revents & POLLIN) != 0) {
      char message[256];
      const ssize_t length = ::recv(notify_fd_, message, sizeof message, 0);
      if (length > 0 &&
          std::string_view(message, static_cast<size_t>(length)).find("READY=1") != std::string_view::npos)
        return;
      continue;
    }
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
    throw std::runtime_error("etcd ended at start:\n" + logTail());
  }
}

void EtcdServer::start() {
  launch();
  waitReady();
}

void EtcdServer::signalAndReap(int signal) {
  if (pid_ <= 0) return;
  ::kill(pid_, signal);
  if (signal != SIGKILL) ::kill(pid_, SIGCONT);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void EtcdServer::stop() { signalAndReap(SIGTERM); }
void EtcdServer::kill() { signalAndReap(SIGKILL); }

void EtcdServer::pause() {
  ::kill(pid_, SIGSTOP);
  int status = 0;
  if (::waitpid(pid_, &status, WUNTRACED) != pid_ || !WIFSTOPPED(status))
    throw std::runtime_error("etcd ended instead of pausing");
}

void EtcdServer::resume() {
  ::kill(pid_, SIGCONT);
  int status = 0;
  if (::waitpid(pid_, &status, WCONTINUED) != pid_ || !WIFCONTINUED(status))
    throw std::runtime_error("etcd ended instead of resuming");
}

void EtcdServer::restart() {
  kill();
  start();
}

void EtcdServer::wipe() {
  if (pid_ > 0) throw std::runtime_error("etcd runs");
  std::filesystem::remove_all(directory_ + "/data");
}

std::string EtcdServer::ctl(const std::vector<std::string>& arguments) const {
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC) != 0) throwErrno("pipe2");
  const Fd read_end(pipe_fds[0]);
  Fd write_end(pipe_fds[1]);
  // Its own time-outs, of 2 and 5 s, are for people: a busy machine under a sanitizer takes longer at times.
  std::vector<std::string> command{"etcdctl", "--endpoints=" + endpoint(), "--dial-timeout=30s",
                                   "--command-timeout=30s"};
  if (options_.tls) command.insert(command.end(), options_.tls->ctl_flags.begin(), options_.tls->ctl_flags.end());
  if (authentication_) command.push_back("--user=root:root");
  command.insert(command.end(), arguments.begin(), arguments.end());
  const pid_t pid = spawn(command, {"ETCDCTL_API=3"}, write_end.get());
  write_end.reset();
  std::string output;
  char buffer[4096];
  while (true) {
    const ssize_t length = ::read(read_end.get(), buffer, sizeof buffer);
    if (length < 0 && errno == EINTR) continue;
    if (length <= 0) break;
    output.append(buffer, static_cast<size_t>(length));
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) throw std::runtime_error("etcdctl failed: " + output);
  return output;
}

void EtcdServer::enableAuthentication() {
  ctl({"user", "add", "root:root"});
  ctl({"auth", "enable"});
  authentication_ = true;
}

EtcdCluster::EtcdCluster(size_t members) : EtcdCluster(members, EtcdServer::Options{}) {}

EtcdCluster::EtcdCluster(size_t members, EtcdServer::Options options) {
  std::string initial_cluster;
  for (size_t i = 0; i < members; ++i) {
    members_.emplace_back(new EtcdServer(options, "m" + std::to_string(i)));
    if (i > 0) initial_cluster += ',';
    initial_cluster += members_[i]->name_ + "=http://127.0.0.1:" + std::to_string(members_[i]->peer_port_);
  }
  for (auto& member : members_) member->initial_cluster_ = initial_cluster;
  for (auto& member : members_) member->launch();
  for (auto& member : members_) member->waitReady();
}

std::vector<std::string> EtcdCluster::endpoints() const {
  std::vector<std::string> endpoints;
  for (const auto& member : members_) endpoints.push_back(member->endpoint());
  return endpoints;
}

size_t EtcdCluster::leader() {
  const auto deadline = steady_clock::now() + kReadyTimeout;
  while (steady_clock::now() < deadline) {
    for (size_t i = 0; i < members_.size(); ++i) {
      if (members_[i]->pid() <= 0) continue;
      std::string status;
      try {
        status = members_[i]->ctl({"--command-timeout=1s", "endpoint", "status", "--write-out=fields"});
      } catch (const std::runtime_error&) {
        continue;
      }
      const auto field = [&status](const std::string& name) -> std::string {
        const size_t at = status.find("\"" + name + "\" : ");
        if (at == std::string::npos) return {};
        const size_t begin = at + name.size() + 5;
        return status.substr(begin, status.find('\n', begin) - begin);
      };
      const std::string leader = field("Leader");
      if (!leader.empty() && leader == field("MemberID")) return i;
    }
    std::this_thread::sleep_for(milliseconds(20));  // an election is under way; etcd has no event for its end
  }
  throw std::runtime_error("no leader");
}

void EtcdCluster::restartAll() {
  for (auto& member : members_) member->kill();
  for (auto& member : members_) member->launch();
  for (auto& member : members_) member->waitReady();
}

}  // namespace idetcd::test_support
