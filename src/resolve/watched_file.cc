#include "resolve/watched_file.h"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/hash.h"

namespace idetcd::resolve {

namespace {

// File systems with the coarsest time stamps (FAT, old NFS) count in two seconds: a file that is written twice within
// one tick has the same stamp both times.
constexpr time_t kCoarsestTickSeconds = 2;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

tl::unexpected<Error> failWithErrno() { return fail(std::strerror(errno)); }

Result<std::string> readAll(int fd, size_t expected_size) {
  std::string content;
  content.resize(std::min(expected_size, WatchedFile::kMaxSize) + 1);
  size_t size = 0;
  while (true) {
    const ssize_t n = read(fd, content.data() + size, content.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failWithErrno();
    if (n == 0) break;
    size += static_cast<size_t>(n);
    if (size > WatchedFile::kMaxSize) return fail(fmt::format("larger than {} octets", WatchedFile::kMaxSize));
    if (size == content.size()) content.resize(std::min(size * 2, WatchedFile::kMaxSize + 1));
  }
  content.resize(size);
  return content;
}

}  // namespace

bool WatchedFile::Stamp::operator==(const Stamp& other) const {
  const auto same = [](const timespec& a, const timespec& b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; };
  return device == other.device && inode == other.inode && size == other.size && same(modified, other.modified) &&
         same(changed, other.changed);
}

WatchedFile::Stamp WatchedFile::stampOf(const struct stat& status) {
  return {status.st_dev, status.st_ino, status.st_size, status.st_mtim, status.st_ctim};
}

bool WatchedFile::mayHaveChanged() const {
  struct stat status;
  return stat(path_.c_str(), &status) != 0 || !settled_ || !stamp_ || !(*stamp_ == stampOf(status));
}

Result<std::optional<std::string>> WatchedFile::readIfChanged() {
  // Not to be held up by a FIFO that nobody writes to.
  const Descriptor fd(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status;
  if (fd.get() < 0 || fstat(fd.get(), &status) != 0) return failWithErrno();
  const Stamp before = stampOf(status);
  if (settled_ && stamp_ == before) return std::nullopt;
  const time_t now = time(nullptr);
  auto content = readAll(fd.get(), static_cast<size_t>(before.size));
  if (!content) return tl::unexpected(content.error());
  const uint64_t hash = hashBytes(content->data(), content->size(), 0);
  const bool same = stamp_ && hash == content_hash_;
  stamp_ = before;
  content_hash_ = hash;
  // The change time is the kernel's own and, unlike the modification time, cannot be set.
  settled_ = fstat(fd.get(), &status) == 0 && before == stampOf(status) &&
             std::max(before.modified.tv_sec, before.changed.tv_sec) + kCoarsestTickSeconds < now;
  if (same) return std::nullopt;
  return std::optional(std::move(*content));
}

}  // namespace idetcd::resolve
