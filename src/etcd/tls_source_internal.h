// Certificates and a key from PEM files, read again when the files change. For etcd/*.cc only; one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/stat.h>

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

class TlsSource {
 public:
  explicit TlsSource(TlsFiles files);

  enum class Change { kNone, kNew, kUnusable };
  struct Look {
    Change change = Change::kNone;
    std::string message;  // why kUnusable
    std::string warning;  // of what is used all the same
  };
  // Reads the files if they are others than at the last look. What cannot be used is told once, and changes nothing. A
  // certificate that has expired counts as unusable only if there is another one to go on with: the clock may be wrong.
  Look look();

  const std::optional<TlsMaterial>& material() const { return material_; }
  uint64_t generation() const { return generation_; }  // of the material: how often it changed

 private:
  // What a file cannot be replaced or written without changing.
  struct Stamp {
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = 0;
    int64_t modified_ns = 0;
    int64_t changed_ns = 0;
    bool operator==(const Stamp&) const = default;
  };
  using Stamps = std::array<Stamp, 3>;

  static Stamp stampOf(const std::string& path);
  Result<TlsMaterial> read() const;

  const TlsFiles files_;  // with the system's CA file filled in
  std::optional<Stamps> stamps_;
  std::optional<TlsMaterial> material_;
  uint64_t generation_ = 0;
};

}  // namespace idetcd::etcd
