// Objects of OpenSSL with an owner, and the making of X.509 certificates (RFC 5280). For .cc files: no other header
// includes this. Any thread; an object is used by one thread at a time.
#pragma once

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "base/std.h"

namespace idetcd::openssl {

struct Deleter {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(BIGNUM* number) const { BN_clear_free(number); }
  void operator()(EC_GROUP* group) const { EC_GROUP_free(group); }
  void operator()(EC_POINT* point) const { EC_POINT_free(point); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(EVP_PKEY_CTX* context) const { EVP_PKEY_CTX_free(context); }
  void operator()(OSSL_PARAM* parameters) const { OSSL_PARAM_free(parameters); }
  void operator()(OSSL_PARAM_BLD* builder) const { OSSL_PARAM_BLD_free(builder); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL_SESSION* session) const { SSL_SESSION_free(session); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(X509_EXTENSION* extension) const { X509_EXTENSION_free(extension); }
};
template <typename T>
using Owned = std::unique_ptr<T, Deleter>;

// Aborts if not `done`. For what fails without memory, or by a bug: nothing of it comes from outside.
inline void check(bool done) {
  if (!done) std::abort();
}
template <typename T>
Owned<T> owned(T* object) {
  check(object != nullptr);
  return Owned<T>(object);
}

std::string pem(X509* certificate);
std::string pem(EVP_PKEY* key);  // without a password

// A version 3 certificate for `key` without an end (RFC 5280 §4.1.2.5), which is not signed yet. `name`: its common name.
Owned<X509> certificateOf(EVP_PKEY* key, const char* name, int64_t serial);
// Adds the extension `nid` with `value`, as openssl.cnf writes it.
void extend(X509* certificate, X509* issuer, int nid, const std::string& value);
// `key`: the issuer's.
void sign(X509* certificate, X509* issuer, EVP_PKEY* key);

}  // namespace idetcd::openssl
