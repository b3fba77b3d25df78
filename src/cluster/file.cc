#include "cluster/file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

namespace idetcd::cluster {
namespace {

tl::unexpected<Error> failOf(std::string_view doing, const std::string& path) {
  return fail(fmt::format("cannot {} {}: {}", doing, path, std::strerror(errno)));
}

std::string directoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

Result<FileReplacement> FileReplacement::begin(std::string path) {
  std::string temporary = path + ".new";
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return failOf("write", temporary);
  return FileReplacement(std::move(path), std::move(temporary), fd);
}

FileReplacement::FileReplacement(FileReplacement&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::move(other.temporary_)), fd_(std::exchange(other.fd_, -1)) {}

FileReplacement::~FileReplacement() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
}

Result<void> FileReplacement::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failOf("write", temporary_);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

Result<void> FileReplacement::commit() {
  if (fsync(fd_) != 0) return failOf("write", temporary_);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return failOf("replace", path_);
  close(std::exchange(fd_, -1));
  // The new name is durable with the directory. Not every file system can say so: then it is as durable as it gets.
  const int directory = open(directoryOf(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    fsync(directory);
    close(directory);
  }
  return {};
}

Result<void> replaceFile(const std::string& path, std::string_view contents) {
  auto file = FileReplacement::begin(path);
  if (!file) return tl::unexpected(file.error());
  if (auto appended = file->append(contents); !appended) return appended;
  return file->commit();
}

Result<std::optional<std::string>> readFile(const std::string& path, size_t max_bytes) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO must not hold us up
  if (fd < 0 && errno == ENOENT) return std::optional<std::string>();
  if (fd < 0) return failOf("read", path);
  struct stat status {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(fd);
    return fail(fmt::format("cannot read {}: not a regular file", path));
  }
  const auto size = static_cast<size_t>(status.st_size);
  if (size > max_bytes) {
    close(fd);
    return fail(fmt::format("{} has {} bytes, more than {}", path, size, max_bytes));
  }
  std::string contents(size, '\0');
  size_t filled = 0;
  while (filled < size) {
    const ssize_t got = read(fd, contents.data() + filled, size - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    filled += static_cast<size_t>(got);
  }
  close(fd);
  if (filled != size) return fail(fmt::format("cannot read all of {}", path));
  return std::optional(std::move(contents));
}

}  // namespace idetcd::cluster
