// What `idetcd doctor` finds out about a machine and its Corefile. Plain values.
#pragma once

#include "base/std.h"

namespace idetcd::resolve {

// In order: the worst of several is the largest.
enum class Severity : uint8_t { kOk, kNote, kWarning, kError };

struct Finding {
  Severity severity = Severity::kOk;
  std::string text;  // what is so: one line, lower case, without a full stop
  std::string fix;   // what to do about it; empty: nothing
};
using Findings = std::vector<Finding>;

struct Check {
  std::string subject;  // a word or two, such as "etcd"
  // Changes nothing. May block, but ends within 4 s, unless a file system stands still. Any thread, beside the others;
  // may outlive the plan that it is about.
  std::function<Findings()> run;
};

}  // namespace idetcd::resolve
