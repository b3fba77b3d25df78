// The checked content of a Corefile: the directives of every server block. Making a plan touches nothing: no socket, no
// etcd, no interface. Any thread.
#pragma once

#include "base/result.h"
#include "config/environment.h"
#include "resolve/directive.h"

namespace idetcd::app {

struct Plan {
  std::vector<resolve::Block> blocks;
  std::vector<std::string> warnings;
};

// Whether the files that the Corefile names are read too, as `-validate` does.
enum class NamedFiles : bool { kNotRead, kRead };

// `text` of the file `name`. The error holds all that is wrong, one a line, each complete: "Corefile:3 - Error during
// parsing: …", with what to write instead.
Result<Plan> makePlan(std::string_view name, std::string_view text, uint16_t default_port,
                      NamedFiles files = NamedFiles::kNotRead,
                      const config::Environment& environment = config::SystemEnvironment());

// The addresses that its `bind` names, on the interfaces that are there now; empty: all of the machine. The ports are
// those of the keys.
Result<std::vector<SocketAddress>> boundAddresses(const resolve::Block& block);

// Has every directive do what it does before the process is confined (Directive::beforeConfinement()), in the order of
// the Corefile, up to the first error, which is one line. Once in a process, for the plan that it starts with.
Result<void> beforeConfinement(const Plan& plan);

}  // namespace idetcd::app
