// Certificates for tests: an authority of the test's own, and what it issues. EC keys (P-256), made in a millisecond.
// What cannot be done throws std::runtime_error.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace idetcd::test_support {

// PEM
struct CertificateAndKey {
  std::string certificate;
  std::string key;
};

struct CertificateOptions {
  std::string common_name = "test";
  // SubjectAltName, as OpenSSL writes it: "DNS:localhost", "IP:127.0.0.1".
  std::vector<std::string> names{"DNS:localhost", "IP:127.0.0.1", "IP:::1"};
  // From now.
  std::chrono::seconds not_before{-3600};
  std::chrono::seconds not_after{3600};
};

class CertificateAuthority {
 public:
  explicit CertificateAuthority(const std::string& common_name = "test authority");
  ~CertificateAuthority();
  CertificateAuthority(CertificateAuthority&&) noexcept;
  CertificateAuthority& operator=(CertificateAuthority&&) noexcept;

  const std::string& certificate() const { return certificate_; }
  // For servers and for clients.
  CertificateAndKey issue(const CertificateOptions& options = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::string certificate_;
};

// A directory that is gone with the object, and files in it. Replaced as a whole, as `mv` does.
class TemporaryFiles {
 public:
  TemporaryFiles();
  ~TemporaryFiles();
  TemporaryFiles(const TemporaryFiles&) = delete;
  TemporaryFiles& operator=(const TemporaryFiles&) = delete;

  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const;  // the path
  void remove(const std::string& name) const;

 private:
  std::filesystem::path directory_;
};

}  // namespace idetcd::test_support
