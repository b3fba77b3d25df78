// The program runner of tests beside which threads run, those of gRPC first of all: a process forked from such a one may
// find a lock of the allocator held for ever.
#pragma once

#include <memory>

#include "sandbox/program_runner.h"

namespace idetcd::test_support {

// Forked before main(), while the process has one thread.
inline const std::shared_ptr<sandbox::ProgramRunner> program_runner =
    sandbox::ProgramRunner::make(sandbox::Mode::kOff).value();

}  // namespace idetcd::test_support
