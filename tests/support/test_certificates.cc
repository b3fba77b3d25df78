#include "support/test_certificates.h"

#include <cstdlib>
#include <fstream>
#include <openssl/rand.h>
#include <stdexcept>
#include <utility>

#include "base/openssl.h"

namespace idetcd::test_support {
namespace {

using openssl::extend;
using openssl::Owned;
using openssl::pem;

void check(bool done, const char* what) {
  if (!done) throw std::runtime_error(std::string("OpenSSL: ") + what);
}

Owned<EVP_PKEY> makeKey() {
  Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  check(key != nullptr, "no key");
  return key;
}

Owned<X509> makeCertificate(EVP_PKEY* key, const CertificateOptions& options) {
  Owned<X509> certificate(X509_new());
  check(certificate && X509_set_version(certificate.get(), X509_VERSION_3) == 1, "no certificate");
  int64_t serial = 0;
  void* const bytes = &serial;
  check(RAND_bytes(static_cast<unsigned char*>(bytes), 7) == 1, "no serial number");
  ASN1_INTEGER_set_int64(X509_get_serialNumber(certificate.get()), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), options.not_before.count());
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), options.not_after.count());
  const std::string& name = options.common_name;
  const void* const name_bytes = name.data();
  check(X509_NAME_add_entry_by_NID(X509_get_subject_name(certificate.get()), NID_commonName, MBSTRING_UTF8,
                                   static_cast<const unsigned char*>(name_bytes), static_cast<int>(name.size()), -1,
                                   0) == 1,
        "no name");
  check(X509_set_pubkey(certificate.get(), key) == 1, "no public key");
  return certificate;
}

}  // namespace

struct CertificateAuthority::Impl {
  Owned<EVP_PKEY> key = makeKey();
  Owned<X509> certificate;

  void sign(X509* subject) const {
    check(X509_set_issuer_name(subject, X509_get_subject_name(certificate ? certificate.get() : subject)) == 1,
          "no issuer");
    check(X509_sign(subject, key.get(), EVP_sha256()) > 0, "no signature");
  }
};

CertificateAuthority::CertificateAuthority(const std::string& common_name) : impl_(std::make_unique<Impl>()) {
  CertificateOptions options;
  options.common_name = common_name;
  Owned<X509> certificate = makeCertificate(impl_->key.get(), options);
  extend(certificate.get(), certificate.get(), NID_basic_constraints, "critical,CA:TRUE");
  extend(certificate.get(), certificate.get(), NID_key_usage, "critical,keyCertSign,cRLSign");
  extend(certificate.get(), certificate.get(), NID_subject_key_identifier, "hash");
  impl_->sign(certificate.get());
  impl_->certificate = std::move(certificate);
  certificate_ = pem(impl_->certificate.get());
}

CertificateAuthority::~CertificateAuthority() = default;
CertificateAuthority::CertificateAuthority(CertificateAuthority&&) noexcept = default;
CertificateAuthority& CertificateAuthority::operator=(CertificateAuthority&&) noexcept = default;

CertificateAndKey CertificateAuthority::issue(const CertificateOptions& options) const {
  const Owned<EVP_PKEY> key = makeKey();
  const Owned<X509> certificate = makeCertificate(key.get(), options);
  X509* const issuer = impl_->certificate.get();
  extend(certificate.get(), issuer, NID_basic_constraints, "critical,CA:FALSE");
  extend(certificate.get(), issuer, NID_ext_key_usage, "serverAuth,clientAuth");
  std::string names;
  for (const std::string& name : options.names) names += (names.empty() ? "" : ",") + name;
  if (!names.empty()) extend(certificate.get(), issuer, NID_subject_alt_name, names);
  impl_->sign(certificate.get());
  return {pem(certificate.get()), pem(key.get())};
}

TemporaryFiles::TemporaryFiles() {
  std::string path = (std::filesystem::temp_directory_path() / "idetcd-files-XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  directory_ = path;
}

TemporaryFiles::~TemporaryFiles() {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

std::string TemporaryFiles::write(const std::string& name, const std::string& content) const {
  const std::string target = path(name);
  const std::string fresh = target + ".new";
  std::ofstream(fresh, std::ios::binary) << content;
  std::filesystem::rename(fresh, target);
  return target;
}

void TemporaryFiles::remove(const std::string& name) const { std::filesystem::remove(path(name)); }

}  // namespace idetcd::test_support
