// Whole files: read at once, or replaced at once, so that no reader sees half of one. Blocking; any thread.
#pragma once

#include <sys/stat.h>

#include "base/file_descriptor.h"
#include "base/result.h"

namespace idetcd {

// A file that is written beside the one it replaces, and takes its place with commit(): after a crash at any moment
// there is the old one or the new one. Dropped without commit(), it leaves nothing.
class FileReplacement {
 public:
  // `mode`: of the file, less the umask.
  static Result<FileReplacement> begin(std::string path, mode_t mode = 0600);
  ~FileReplacement();
  FileReplacement(FileReplacement&& other) noexcept = default;
  FileReplacement& operator=(FileReplacement&&) = delete;

  Result<void> append(std::string_view bytes);
  Result<void> commit();  // fsync, rename, fsync of the directory

 private:
  FileReplacement(std::string path, std::string temporary, FileDescriptor file)
      : path_(std::move(path)), temporary_(std::move(temporary)), file_(std::move(file)) {}

  std::string path_;
  std::string temporary_;
  FileDescriptor file_;
};

// Makes the directory, if it is not there, with this mode less the umask, and those above it that are not there.
Result<void> makeDirectory(const std::string& path, mode_t mode = 0755);

// A directory with all that is in it, if it is there: after a crash at any moment `path` is whole or gone. What is left of
// it, then and if the disk refuses to delete it, is at `removed`, beside it, and may be deleted; the next call does.
Result<void> removeDirectory(const std::string& path, const std::string& removed);

Result<void> replaceFile(const std::string& path, std::string_view contents, mode_t mode = 0600);

// Fails with what is wrong ("Permission denied", "larger than 4096 bytes"), without the path; kNotFound: there is no
// such file. Waits for no FIFO: what is not a regular file fails.
Result<std::string> readFile(const std::string& path, size_t max_bytes);
// From where `file` stands to its end, whatever it is: a pipe is waited for. One that was opened with O_NONBLOCK is waited
// for as long as `patience` for each part.
Result<std::string> readToEnd(const FileDescriptor& file, size_t max_bytes, std::chrono::milliseconds patience = {});

// Distinguishes one state of a file from another. The change time sees what the modification time does not: a
// write that sets it back, and a file that was moved here.
class FileStamp {
 public:
  explicit FileStamp(const struct stat& status);
  // Of the file that `path` leads to; none: it cannot be looked at.
  static std::optional<FileStamp> of(const std::string& path);

  bool operator==(const FileStamp& other) const;
  // Of the last write that the stamp knows of, by the clock of the file system.
  time_t changedAtSeconds() const;

 private:
  dev_t device_;
  ino_t inode_;
  off_t size_;
  timespec modified_;
  timespec changed_;
};

// The path of the CA certificates that this machine trusts, a PEM bundle: SSL_CERT_FILE of the environment, else the first readable file of those that distributions
// use. OpenSSL itself knows only the place of the distribution that it was built on, and the server is one binary for
// all.
std::string systemCaFile();

}  // namespace idetcd
