// Whether the server of this machine resolves a name: a query over UDP. Any thread.
#pragma once

#include "base/ip_address.h"
#include "cli/failure.h"

namespace idetcd::cli {

// Whether `server` has an address of `name`, A or AAAA. Blocks for `patience` at most for each of the two. A failure that
// may pass is of code kFailed if the server is silent, kNo if it has answered with an error.
Reply<bool> resolves(const SocketAddress& server, const std::string& name, std::chrono::milliseconds patience);

}  // namespace idetcd::cli
