// Certificates and a key from PEM files, read again when the files change. For etcd/*.cc only; one thread at a time.
#pragma once

#include "base/executor.h"
#include "base/file.h"
#include "base/result.h"
#include "etcd/client.h"

namespace idetcd::etcd {

// PEM texts that have been looked through: there is a CA certificate, and the key is that of the first certificate.
struct TlsMaterial {
  std::string ca_certificates;
  std::string certificates;  // ours, and its issuers; empty with `key`: none
  std::string key;
  bool operator==(const TlsMaterial&) const = default;
};

// When the first certificate of the file ends to hold.
Result<std::chrono::system_clock::time_point> certificateEnd(const std::string& path);

class TlsSource {
 public:
  explicit TlsSource(TlsFiles files);

  enum class Change { kNone, kNew, kUnusable };
  struct Look {
    Change change = Change::kNone;
    std::string message;  // why kUnusable
    std::string warning;  // of what is used all the same
  };
  // Reads the files if they are others than at the last look. What cannot be used is reported once, and changes
  // nothing. A certificate that has expired counts as unusable only if there is another one to go on with: the clock
  // may be wrong.
  Look look();

  const std::optional<TlsMaterial>& material() const { return material_; }
  uint64_t generation() const { return generation_; }  // of the material: how often it changed

 private:
  using Stamps = std::array<std::optional<FileStamp>, 3>;  // none: there is no such file, or none is named

  Result<TlsMaterial> read() const;

  const TlsFiles files_;  // with the system's CA file filled in
  std::optional<Stamps> stamps_;
  std::optional<TlsMaterial> material_;
  uint64_t generation_ = 0;
};

// A TlsSource that is looked at on an executor: its files may be on a disk that stands still. Completion thread.
class TlsWatch {
 public:
  // Looks once, and blocks for as long as that takes; any thread.
  TlsWatch(TlsFiles files, std::shared_ptr<Executor> executor);

  // Has the files looked at, and waits for that a moment, but no second time for a look that takes longer. What has
  // been found since the last call; none: nothing yet.
  std::optional<TlsSource::Look> look();
  const std::optional<TlsMaterial>& material() const { return material_; }
  uint64_t generation() const { return generation_; }

 private:
  struct State;
  std::optional<TlsSource::Look> take();

  const std::shared_ptr<Executor> executor_;
  const std::shared_ptr<State> state_;
  std::optional<TlsMaterial> material_;
  uint64_t generation_ = 0;
};

}  // namespace idetcd::etcd
