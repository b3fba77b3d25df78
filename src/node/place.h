// The place of this machine in its network, as an operator's program, file or variable says it: "zone/rack/switch".
// Machines whose places have more parts in common are nearer. Any thread.
#pragma once

#include "base/result.h"
#include "sandbox/program_runner.h"

namespace idetcd::node {

inline constexpr size_t kMaxPlaceBytes = 128;
inline constexpr std::chrono::seconds kPlaceProgramTime{5};

// Letters, digits and "._:-" in parts that "/" separates, none of them empty.
bool isPlace(std::string_view text);

// `source`: `file PATH`, `env NAME`, or a program with its arguments, whose first line of output it is. The error says why
// there is none, or what is no place. Blocks on the file, or for kPlaceProgramTime at most. `programs` may be null: then
// a program cannot be run. REQUIRES: `source` is not empty.
Result<std::string> readPlace(const std::vector<std::string>& source, const sandbox::ProgramRunner* programs);

}  // namespace idetcd::node
