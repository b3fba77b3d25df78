// The Corefile that the command line names, which is read when the server starts and again at each reload. Blocks on the
// file system; any thread.
#pragma once

#include "app/command_line.h"
#include "app/plan.h"
#include "base/result.h"

namespace idetcd::app {

class CorefileSource {
 public:
  // Without one on the command line, that in the working directory; CoreDNS's default while it is missing.
  explicit CorefileSource(const Options& options);

  // Standard input is read once.
  bool canBeReadAgain() const { return path_ != kStdin; }

  struct Reading {
    std::string name;    // of the Corefile, as errors say it
    std::string digest;  // of all that was read, whatever came of it (config/environment.h)
    bool was_read;       // the Corefile itself
    Result<Plan> plan;
  };
  // The error is as that of makePlan(), or says that there is nothing to be read.
  Reading read(NamedFiles files = NamedFiles::kNotRead) const;

 private:
  static constexpr const char* kStdin = "stdin";

  struct Text {
    std::string name;
    Result<std::string> text;
  };
  Text readText() const;

  std::string path_;  // "": the default
  uint16_t default_port_;
};

}  // namespace idetcd::app
