#include <condition_variable>
#include <openssl/err.h>
#include <openssl/pem.h>

#include "base/file.h"
#include "base/openssl.h"
#include "etcd/tls_source_internal.h"

namespace idetcd::etcd {
namespace {

using openssl::Owned;

// A bundle of all public CAs has some 200 KiB.
constexpr size_t kMaxFileBytes = 8 << 20;

Owned<BIO> bioOf(const std::string& text) {
  ERR_clear_error();
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// No password is read, from a terminal or elsewhere.
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

Result<std::chrono::system_clock::time_point> certificateEnd(const std::string& path) {
  const auto text = readFile(path, kMaxFileBytes);
  if (!text) return tl::unexpected(text.error());
  const auto certificate = firstCertificate(*text, path);
  if (!certificate) return tl::unexpected(certificate.error());
  tm end{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate->get()), &end) != 1)
    return fail(fmt::format("{}: its end cannot be read", path));
  return std::chrono::system_clock::from_time_t(timegm(&end));
}

TlsSource::TlsSource(TlsFiles files) : files_(withSystemCas(std::move(files))) {}

Result<TlsMaterial> TlsSource::read() const {
  TlsMaterial material;
  const std::pair<const std::string&, std::string&> sources[] = {{files_.ca_file, material.ca_certificates},
                                                                 {files_.certificate_file, material.certificates},
                                                                 {files_.key_file, material.key}};
  for (const auto& [path, text] : sources) {
    if (path.empty()) continue;
    auto content = readFile(path, kMaxFileBytes);
    if (!content) return fail(fmt::format("{}: {}", path, content.error().message));
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
  const Stamps stamps{FileStamp::of(files_.ca_file), FileStamp::of(files_.certificate_file),
                      FileStamp::of(files_.key_file)};
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

struct TlsWatch::State {
  explicit State(TlsFiles files) : source(std::move(files)) {}

  void look() {
    TlsSource::Look looked = source.look();
    const std::lock_guard lock(mutex);
    found = std::move(looked);
    material = source.material();
    generation = source.generation();
    looking = false;
    done.notify_all();
  }

  TlsSource source;  // used by one look at a time
  std::mutex mutex;  // guards all below
  std::condition_variable done;
  bool looking = false;
  bool waited = false;  // a caller has waited its full time for the look that is under way
  std::optional<TlsSource::Look> found;
  std::optional<TlsMaterial> material;
  uint64_t generation = 0;
};

TlsWatch::TlsWatch(TlsFiles files, std::shared_ptr<Executor> executor)
    : executor_(std::move(executor)), state_(std::make_shared<State>(std::move(files))) {
  state_->look();
}

std::optional<TlsSource::Look> TlsWatch::look() {
  constexpr std::chrono::milliseconds kFirstLookTimeout{100};
  if (auto found = take()) return found;
  std::unique_lock lock(state_->mutex);
  if (!state_->looking) {
    state_->looking = executor_->submit([state = state_] { state->look(); });
    state_->waited = !state_->looking;
  }
  if (!state_->waited)
    state_->waited = !state_->done.wait_for(lock, kFirstLookTimeout, [this] { return !state_->looking; });
  lock.unlock();
  return take();
}

std::optional<TlsSource::Look> TlsWatch::take() {
  const std::lock_guard lock(state_->mutex);
  if (!state_->found) return std::nullopt;
  if (generation_ != state_->generation) material_ = state_->material;
  generation_ = state_->generation;
  return std::exchange(state_->found, std::nullopt);
}

}  // namespace idetcd::etcd
