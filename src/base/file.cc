#include "base/file.h"

#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <unistd.h>

namespace idetcd {

namespace {

tl::unexpected<Error> failOf(std::string_view doing, const std::string& path) {
  return fail(fmt::format("cannot {} {}: {}", doing, path, std::strerror(errno)));
}

std::string directoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// A new name is durable with its directory. Not every file system can say so: then it is as durable as it gets.
void syncNameOf(const std::string& path) {
  const FileDescriptor directory(open(directoryOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.isOpen()) fsync(directory.get());
}

tl::unexpected<Error> tooLarge(size_t max_bytes) { return fail(fmt::format("larger than {} bytes", max_bytes)); }

bool isSameTime(const timespec& a, const timespec& b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

constexpr std::array kSystemCaFiles{
    "/etc/ssl/certs/ca-certificates.crt",                 // Debian, Ubuntu, Arch
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // Fedora, RHEL
    "/etc/pki/tls/certs/ca-bundle.crt",                   // older RHEL
    "/etc/ssl/ca-bundle.pem",                             // SUSE
    "/etc/ssl/cert.pem",                                  // Alpine
};

}  // namespace

Result<FileReplacement> FileReplacement::begin(std::string path, mode_t mode) {
  std::string temporary = path + ".new";
  struct stat left {};  // by a crash, maybe with another mode. What is no file is kept
  if (lstat(temporary.c_str(), &left) == 0 && S_ISREG(left.st_mode)) unlink(temporary.c_str());
  FileDescriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!file.isOpen()) return failOf("write", temporary);
  return FileReplacement(std::move(path), std::move(temporary), std::move(file));
}

FileReplacement::~FileReplacement() {
  if (file_.isOpen()) unlink(temporary_.c_str());
}

Result<void> FileReplacement::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failOf("write", temporary_);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

Result<void> FileReplacement::commit() {
  if (fsync(file_.get()) != 0) return failOf("write", temporary_);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    struct stat there {};
    const int error = errno;
    errno = lstat(path_.c_str(), &there) == 0 && S_ISDIR(there.st_mode) ? EISDIR : error;  // some kernels say EACCES
    return failOf("replace", path_);
  }
  const FileDescriptor committed = std::move(file_);
  syncNameOf(path_);
  return {};
}

Result<void> makeDirectory(const std::string& path, mode_t mode) {
  std::error_code error;
  // "a/b/", as far as a path is concerned, is a file without a name in "a/b".
  const std::filesystem::path whole(path);
  const std::filesystem::path parent = (whole.has_filename() ? whole : whole.parent_path()).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (error) return fail(error.message());
  const bool made = mkdir(path.c_str(), mode) == 0;
  const int why = errno;
  if (made || std::filesystem::is_directory(path, error)) return {};
  return fail(std::strerror(why == EEXIST ? ENOTDIR : why));
}

Result<void> removeDirectory(const std::string& path, const std::string& removed) {
  std::error_code error;
  std::filesystem::remove_all(removed, error);
  if (error) return fail(error.message());
  if (rename(path.c_str(), removed.c_str()) != 0) {
    if (errno == ENOENT) return {};
    return failWith(errno);
  }
  syncNameOf(path);
  std::filesystem::remove_all(removed, error);
  return {};
}

Result<void> replaceFile(const std::string& path, std::string_view contents, mode_t mode) {
  auto file = FileReplacement::begin(path, mode);
  if (!file) return tl::unexpected(file.error());
  if (auto appended = file->append(contents); !appended) return appended;
  return file->commit();
}

Result<std::string> readFile(const std::string& path, size_t max_bytes) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (!file.isOpen() || fstat(file.get(), &status) != 0) return failWith(errno);
  if (!S_ISREG(status.st_mode)) return fail("not a regular file");
  if (static_cast<size_t>(status.st_size) > max_bytes) return tooLarge(max_bytes);
  return readToEnd(file, max_bytes);
}

Result<std::string> readToEnd(const FileDescriptor& file, size_t max_bytes, std::chrono::milliseconds patience) {
  const auto comes = [&] {
    pollfd one{.fd = file.get(), .events = POLLIN, .revents = 0};
    return poll(&one, 1, static_cast<int>(patience.count())) != 0;
  };
  if (patience.count() > 0 && !comes()) return fail("nobody writes into it");
  constexpr size_t kFirstBytes = 4096;
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return failWith(errno);
  // One byte more, by which the end shows, or that there is too much.
  const size_t expected = std::max(static_cast<size_t>(status.st_size) + 1, kFirstBytes);
  std::string content(std::min(expected, max_bytes + 1), '\0');
  size_t size = 0;
  while (true) {
    const ssize_t got = read(file.get(), content.data() + size, content.size() - size);
    if (got < 0 && (errno == EINTR || (errno == EAGAIN && comes()))) continue;
    if (got < 0) return errno == EAGAIN ? fail("its writer stands still") : failWith(errno);
    if (got == 0) break;
    size += static_cast<size_t>(got);
    if (size > max_bytes) return tooLarge(max_bytes);
    if (size == content.size()) content.resize(std::min(size * 2, max_bytes + 1));
  }
  content.resize(size);
  return content;
}

FileStamp::FileStamp(const struct stat& status)
    : device_(status.st_dev),
      inode_(status.st_ino),
      size_(status.st_size),
      modified_(status.st_mtim),
      changed_(status.st_ctim) {}

std::optional<FileStamp> FileStamp::of(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return std::nullopt;
  return FileStamp(status);
}

bool FileStamp::operator==(const FileStamp& other) const {
  return device_ == other.device_ && inode_ == other.inode_ && size_ == other.size_ &&
         isSameTime(modified_, other.modified_) && isSameTime(changed_, other.changed_);
}

time_t FileStamp::changedAtSeconds() const { return std::max(modified_.tv_sec, changed_.tv_sec); }

std::string systemCaFile() {
  // As OpenSSL and Go understand it.
  if (const char* path = std::getenv("SSL_CERT_FILE"); path != nullptr && *path != '\0') return path;
  for (const char* path : kSystemCaFiles) {
    if (::access(path, R_OK) == 0) return path;
  }
  return kSystemCaFiles.front();
}

}  // namespace idetcd
