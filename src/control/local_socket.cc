#include "control/local_socket.h"

#include <cstdlib>
#include <filesystem>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace idetcd::control {

namespace {

constexpr mode_t kMode = 0660;

struct Address {
  sockaddr_un value{};
  socklen_t size = 0;  // 0: the path is too long

  explicit Address(const std::string& path) {
    if (path.size() >= sizeof value.sun_path) return;
    value.sun_family = AF_UNIX;
    std::memcpy(value.sun_path, path.c_str(), path.size() + 1);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&value); }  // NOLINT: as the interface is
};

FileDescriptor makeSocket() { return FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

// A full backlog is a process that lives, too.
bool isListenedAt(const Address& address) {
  const FileDescriptor client = makeSocket();
  return ::connect(client.get(), address.get(), address.size) == 0 || errno == EAGAIN;
}

Error failed(std::string_view what, const std::string& path, int error) {
  return {fmt::format("cannot {} {}: {}", what, path, std::strerror(error))};
}

}  // namespace

std::string socketDirectory() {
  const char* made = std::getenv("RUNTIME_DIRECTORY");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  if (made == nullptr || *made == '\0') return "/run/idetcd";
  const std::string_view all(made);
  return std::string(all.substr(0, all.find(':')));
}

LocalSocket::LocalSocket(LocalSocket&& other) noexcept
    : socket_(std::move(other.socket_)),
      path_(std::exchange(other.path_, {})),
      device_(other.device_),
      inode_(other.inode_) {}

Result<LocalSocket> LocalSocket::bind(const std::string& directory, uint16_t port) {
  std::error_code error;
  const bool is_made = std::filesystem::create_directories(directory, error);
  // Who may write there may put another socket in the place of this one.
  if (is_made && !error) std::filesystem::permissions(directory, std::filesystem::perms(0755), error);
  if (error) return tl::unexpected(failed("make", directory, error.value()));
  const std::string path = fmt::format("{}/{}.sock", directory, port);
  const std::string fresh = fmt::format("{}.{}", path, ::getpid());
  const Address address(path);
  const Address temporary(fresh);
  if (temporary.size == 0) return fail(fmt::format("{} is too long for a Unix socket", fresh));
  if (isListenedAt(address)) return fail(fmt::format("another process listens at {}", path));
  LocalSocket made;
  made.socket_ = makeSocket();
  ::unlink(fresh.c_str());
  const mode_t mask = ::umask(0777 & ~kMode);
  const bool bound = ::bind(made.socket_.get(), temporary.get(), temporary.size) == 0;
  const int why = errno;
  ::umask(mask);
  if (!bound) return tl::unexpected(failed("bind", fresh, why));
  struct stat file {};
  // Listening before it has its name: a client that finds it is not refused.
  if (::listen(made.socket_.get(), SOMAXCONN) != 0 || ::stat(fresh.c_str(), &file) != 0 ||
      ::rename(fresh.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    ::unlink(fresh.c_str());
    return tl::unexpected(failed("make", path, reason));
  }
  made.path_ = path;
  made.device_ = file.st_dev;
  made.inode_ = file.st_ino;
  return made;
}

void LocalSocket::remove() {
  struct stat file {};
  const std::string path = std::exchange(path_, {});
  if (path.empty() || ::lstat(path.c_str(), &file) != 0) return;
  if (file.st_dev == device_ && file.st_ino == inode_) ::unlink(path.c_str());
}

}  // namespace idetcd::control
