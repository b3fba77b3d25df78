// `idetcd xdp attach|detach|status`: what a Corefile's `xdp` has pinned is made, taken away and looked at, in a process of
// its own that ends with it, so that the server needs no right for it. One thread.
#pragma once

#include "base/result.h"
#include "resolve/directive.h"

namespace idetcd::directive {

// `asked.what`: "attach", "detach" or "status". The answer is as src/cli/xdp_command.cc reads it. An error: the Corefile has
// no `xdp`, or one without `pin`, or what the kernel says. Blocks.
Result<std::string> workOnPinned(std::span<const resolve::Block> blocks, const resolve::LocalWork& asked);

}  // namespace idetcd::directive
