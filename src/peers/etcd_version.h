// What a version of etcd is known for. Any thread.
#pragma once

#include "base/std.h"

namespace idetcd::peers {

// The known defects of a version of etcd that weaken what idetcd promises; empty: none.
std::string defectsOf(std::string_view version);

}  // namespace idetcd::peers
