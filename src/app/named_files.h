// The files that a directive names (certificates, keys, hosts, resolv.conf), read for `-validate`: a server reads them
// when it starts, and again when they change. Any thread; blocks on the file system.
#pragma once

#include <vector>

#include "base/result.h"
#include "config/corefile.h"

namespace idetcd::app {

// What is wrong with them, each error complete with file and line. Looks at the words alone, so that the rest of the
// directive may be wrong too.
std::vector<Error> checkNamedFiles(const config::Directive& directive);

}  // namespace idetcd::app
