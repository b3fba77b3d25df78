// Where the process may write: Landlock, landlock(7). Only writing is restricted, as a reload may name files to read
// that nobody knew of at the start.
#pragma once

#include "base/result.h"

namespace idetcd::sandbox {

// From now on the process can make, write, truncate, rename and remove files below `directories` only. Those that are
// not there are left out: what uses them says what is wrong. A descriptor that is open already is not affected. A
// directory that is replaced by another one of its name is another directory.
//
// Before Linux 6.2 truncate(2), of a file that the user may write, is not restricted; before 5.19 renaming to another
// directory is refused everywhere. kNotFound: the kernel has no Landlock, or it is not enabled.
// REQUIRES: one thread, and noNewPrivileges().
Result<void> allowWritesOnlyBelow(const std::vector<std::string>& directories);

}  // namespace idetcd::sandbox
