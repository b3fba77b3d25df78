#include "base/openssl.h"

#include <openssl/pem.h>

namespace idetcd::openssl {

namespace {

template <typename Write>
std::string written(Write write) {
  const auto bio = owned(BIO_new(BIO_s_mem()));
  check(write(bio.get()) == 1);
  char* data = nullptr;
  const int64_t size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<size_t>(size)};
}

}  // namespace

std::string pem(X509* certificate) {
  return written([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

std::string pem(EVP_PKEY* key) {
  return written([&](BIO* bio) { return PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr); });
}

Owned<X509> certificateOf(EVP_PKEY* key, const char* name, int64_t serial) {
  auto made = owned(X509_new());
  check(X509_set_version(made.get(), X509_VERSION_3) == 1 &&
        ASN1_INTEGER_set_int64(X509_get_serialNumber(made.get()), serial) == 1 &&
        ASN1_TIME_set_string_X509(X509_getm_notBefore(made.get()), "19700101000000Z") == 1 &&
        ASN1_TIME_set_string_X509(X509_getm_notAfter(made.get()), "99991231235959Z") == 1 &&
        X509_NAME_add_entry_by_NID(X509_get_subject_name(made.get()), NID_commonName, MBSTRING_UTF8,
                                   reinterpret_cast<const uint8_t*>(name), -1, -1, 0) == 1 &&
        X509_set_pubkey(made.get(), key) == 1);
  return made;
}

void extend(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const auto extension = owned(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  check(X509_add_ext(certificate, extension.get(), -1) == 1);
}

void sign(X509* certificate, X509* issuer, EVP_PKEY* key) {
  check(X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) == 1 &&
        X509_sign(certificate, key, EVP_sha256()) > 0);
}

}  // namespace idetcd::openssl
