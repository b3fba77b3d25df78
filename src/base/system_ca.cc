#include "base/system_ca.h"

#include <cstdlib>
#include <unistd.h>

namespace idetcd {

namespace {

constexpr std::array kSystemCaFiles{
    "/etc/ssl/certs/ca-certificates.crt",                 // Debian, Ubuntu, Arch
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // Fedora, RHEL
    "/etc/pki/tls/certs/ca-bundle.crt",                   // older RHEL
    "/etc/ssl/ca-bundle.pem",                             // SUSE
    "/etc/ssl/cert.pem",                                  // Alpine
};

}  // namespace

std::string systemCaFile() {
  // As OpenSSL and Go understand it.
  if (const char* path = std::getenv("SSL_CERT_FILE"); path != nullptr && *path != '\0') return path;
  for (const char* path : kSystemCaFiles) {
    if (::access(path, R_OK) == 0) return path;
  }
  return kSystemCaFiles.front();
}

}  // namespace idetcd
