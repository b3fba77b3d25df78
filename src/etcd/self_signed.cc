#include "base/openssl.h"
#include "etcd/self_signed_internal.h"

namespace idetcd::etcd {

SelfSigned makeSelfSigned() {
  const auto key = openssl::owned(EVP_EC_gen("P-256"));
  const auto certificate = openssl::certificateOf(key.get(), kSelfSignedName, 1);
  openssl::extend(certificate.get(), certificate.get(), NID_subject_alt_name, std::string("DNS:") + kSelfSignedName);
  openssl::sign(certificate.get(), certificate.get(), key.get());
  return {openssl::pem(certificate.get()), openssl::pem(key.get())};
}

}  // namespace idetcd::etcd
