// A certificate that vouches for itself, for a server that tells its clients by another way which one it has. For etcd/*.cc
// only; any thread.
#pragma once

#include "base/std.h"

namespace idetcd::etcd {

// The name in it, whatever the server's address is.
inline constexpr const char* kSelfSignedName = "idetcd.invalid";

struct SelfSigned {
  std::string certificate;  // PEM, valid at any time: it ends with its server
  std::string key;
};

SelfSigned makeSelfSigned();

}  // namespace idetcd::etcd
