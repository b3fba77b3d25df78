// The helper's side of ProgramRunner, and what passes between the two.
#pragma once

#include "base/file_descriptor.h"
#include "sandbox/confinement.h"

namespace idetcd::sandbox {

// A request is the number of arguments, then arguments and variables ("NAME=value"), each with its NUL. The descriptor
// of the program's channel comes with it.
struct RequestHeader {
  uint32_t arguments = 0;
};

struct ProgramReport {
  int32_t error = 0;   // errno of the start; 0: it was started
  int32_t status = 0;  // waitpid(2)'s
};

// Gives up the rights of the start (rights.h) unless `mode` is kOff. Serves requests until the other end of `channel` is closed, then kills what runs and ends the process.
// REQUIRES: every signal is blocked.
[[noreturn]] void runProgramHelper(FileDescriptor channel, Mode mode);

}  // namespace idetcd::sandbox
