#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "base/system_ca.h"
#include "etcd/tls_source_internal.h"

namespace idetcd::etcd {
namespace {

// A bundle of all public CAs has some 200 KiB.
constexpr off_t kMaxFileBytes = 8 << 20;

struct OpenSslDeleter {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
template <typename T>
using Owned = std::unique_ptr<T, OpenSslDeleter>;

Result<std::string> readFile(const std::string& path) {
  const auto failed = [&path] { return fail(fmt::format("{}: {}", path, std::strerror(errno))); };
  // O_NONBLOCK: a pipe would be waited for.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return failed();
  struct Closer {
    ~Closer() { ::close(fd); }
    int fd;
  } const closer{fd};
  struct stat status {};
  if (::fstat(fd, &status) != 0) return failed();
  if (!S_ISREG(status.st_mode)) return fail(fmt::format("{}: not a file", path));
  if (status.st_size > kMaxFileBytes) return fail(fmt::format("{}: larger than {} bytes", path, kMaxFileBytes));
  std::string text(static_cast<size_t>(status.st_size) + 1, '\0');  // one more, to see that it has not grown
  size_t length = 0;
  while (length < text.size()) {
    const ssize_t got = ::read(fd, text.data() + length, text.size() - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed();
    if (got == 0) break;
    length += static_cast<size_t>(got);
  }
  if (length == text.size()) return fail(fmt::format("{}: it is being written", path));
  text.resize(length);
  return text;
}

Owned<BIO> bioOf(const std::string& text) {
  ERR_clear_error();
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Neither a terminal nor anybody else is asked for a password.
int noPassword(char*, int, int, void*) { return -1; }

// The first certificate of `text`. All of them must be readable: a file that was cut off is not used in part.
Result<Owned<X509>> firstCertificate(const std::string& text, const std::string& path) {
  const Owned<BIO> bio = bioOf(text);
  Owned<X509> first;
  while (Owned<X509> certificate{PEM_read_bio_X509(bio.get(), nullptr, &noPassword, nullptr)}) {
    if (!first) first = std::move(certificate);
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (!first) return fail(fmt::format("{}: there is no certificate in it", path));
  if (!at_end) return fail(fmt::format("{}: a certificate in it cannot be read", path));
  return first;
}

Result<void> checkKey(X509* certificate, const TlsMaterial& material, const TlsFiles& files) {
  const Owned<BIO> bio = bioOf(material.key);
  const Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(bio.get(), nullptr, &noPassword, nullptr));
  const bool matches = key && X509_check_private_key(certificate, key.get()) == 1;
  ERR_clear_error();
  if (!key) return fail(fmt::format("{}: there is no private key in it, or it needs a password", files.key_file));
  if (!matches) return fail(fmt::format("{} is not the key of {}", files.key_file, files.certificate_file));
  return {};
}

// Why our certificate does not hold now; empty: it does.
std::string outOfTime(const TlsMaterial& material, const TlsFiles& files) {
  if (material.certificates.empty()) return {};
  const auto certificate = firstCertificate(material.certificates, files.certificate_file);
  if (!certificate) return {};
  if (X509_cmp_current_time(X509_get0_notAfter(certificate->get())) < 0)
    return fmt::format("{} has expired", files.certificate_file);
  if (X509_cmp_current_time(X509_get0_notBefore(certificate->get())) > 0)
    return fmt::format("{} does not hold yet", files.certificate_file);
  return {};
}

TlsFiles withSystemCas(TlsFiles files) {
  if (files.ca_file.empty()) files.ca_file = systemCaFile();
  return files;
}

}  // namespace

TlsSource::TlsSource(TlsFiles files) : files_(withSystemCas(std::move(files))) {}

TlsSource::Stamp TlsSource::stampOf(const std::string& path) {
  struct stat status {};
  if (path.empty() || ::stat(path.c_str(), &status) != 0) return {};
  const auto nanoseconds = [](const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; };
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .size = status.st_size,
          .modified_ns = nanoseconds(status.st_mtim),
          .changed_ns = nanoseconds(status.st_ctim)};
}

Result<TlsMaterial> TlsSource::read() const {
  TlsMaterial material;
  const std::pair<const std::string&, std::string&> sources[] = {{files_.ca_file, material.ca_certificates},
                                                                 {files_.certificate_file, material.certificates},
                                                                 {files_.key_file, material.key}};
  for (const auto& [path, text] : sources) {
    if (path.empty()) continue;
    auto content = readFile(path);
    if (!content) return tl::unexpected(content.error());
    text = std::move(*content);
  }
  if (const auto ca = firstCertificate(material.ca_certificates, files_.ca_file); !ca)
    return tl::unexpected(ca.error());
  if (files_.certificate_file.empty()) return material;
  const auto certificate = firstCertificate(material.certificates, files_.certificate_file);
  if (!certificate) return tl::unexpected(certificate.error());
  if (const auto checked = checkKey(certificate->get(), material, files_); !checked)
    return tl::unexpected(checked.error());
  return material;
}

TlsSource::Look TlsSource::look() {
  // Before the content: what is written while we read is seen the next time.
  const Stamps stamps{stampOf(files_.ca_file), stampOf(files_.certificate_file), stampOf(files_.key_file)};
  if (stamps_ == stamps) return {};
  stamps_ = stamps;
  auto read_now = read();
  if (!read_now) return {.change = Change::kUnusable, .message = read_now.error().message, .warning = {}};
  if (material_ == *read_now) return {};
  std::string late = outOfTime(*read_now, files_);
  if (material_ && !late.empty() && outOfTime(*material_, files_).empty())
    return {.change = Change::kUnusable, .message = std::move(late), .warning = {}};
  material_ = std::move(*read_now);
  ++generation_;
  return {.change = Change::kNew, .message = {}, .warning = std::move(late)};
}

}  // namespace idetcd::etcd
