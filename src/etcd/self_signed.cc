#include <cstdlib>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "etcd/self_signed_internal.h"

namespace idetcd::etcd {
namespace {

struct Freeing {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(X509_EXTENSION* extension) const { X509_EXTENSION_free(extension); }
};
template <typename T>
using Freed = std::unique_ptr<T, Freeing>;

// What can fail here fails without memory, or by a bug: nothing comes from outside.
void must(bool done) {
  if (!done) std::abort();
}
template <typename T>
Freed<T> freed(T* object) {
  must(object != nullptr);
  return Freed<T>(object);
}

std::string textOf(BIO* bio) {
  char* data = nullptr;
  const int64_t size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<size_t>(size)};
}

}  // namespace

SelfSigned makeSelfSigned() {
  const auto key = freed(EVP_EC_gen("P-256"));
  const auto made = freed(X509_new());
  X509_NAME* const name = X509_get_subject_name(made.get());
  must(X509_set_version(made.get(), X509_VERSION_3) == 1 &&
       ASN1_INTEGER_set_int64(X509_get_serialNumber(made.get()), 1) == 1 &&
       ASN1_TIME_set_string_X509(X509_getm_notBefore(made.get()), "19700101000000Z") == 1 &&
       ASN1_TIME_set_string_X509(X509_getm_notAfter(made.get()), "99991231235959Z") == 1 &&
       X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_UTF8,
                                  reinterpret_cast<const uint8_t*>(kSelfSignedName), -1, -1, 0) == 1 &&
       X509_set_issuer_name(made.get(), name) == 1 && X509_set_pubkey(made.get(), key.get()) == 1);
  X509V3_CTX context;
  X509V3_set_ctx(&context, made.get(), made.get(), nullptr, nullptr, 0);
  const std::string names = std::string("DNS:") + kSelfSignedName;
  const auto extension = freed(X509V3_EXT_conf_nid(nullptr, &context, NID_subject_alt_name, names.c_str()));
  must(X509_add_ext(made.get(), extension.get(), -1) == 1 && X509_sign(made.get(), key.get(), EVP_sha256()) > 0);

  const auto certificate = freed(BIO_new(BIO_s_mem()));
  const auto secret = freed(BIO_new(BIO_s_mem()));
  must(PEM_write_bio_X509(certificate.get(), made.get()) == 1 &&
       PEM_write_bio_PrivateKey(secret.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1);
  return {textOf(certificate.get()), textOf(secret.get())};
}

}  // namespace idetcd::etcd
