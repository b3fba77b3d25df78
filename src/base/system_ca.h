// Where this machine keeps the CA certificates that it trusts. Any thread.
#pragma once

#include "base/std.h"

namespace idetcd {

// The path of a PEM bundle: SSL_CERT_FILE of the environment, else the first readable file of those that distributions
// use. OpenSSL itself knows only the place of the distribution that it was built on, and the server is one binary for
// all.
std::string systemCaFile();

}  // namespace idetcd
