#include "sandbox/confinement.h"

#include "base/result.h"
#include "sandbox/file_writes.h"
#include "sandbox/rights.h"
#include "sandbox/system_calls.h"

namespace idetcd::sandbox {
namespace {

void note(const Result<void>& done, std::string_view consequence, Notices* notices) {
  if (done) return;
  const bool is_expected = done.error().code == ErrorCode::kNotFound;
  notices->push_back({.level = is_expected ? Notice::Level::kInfo : Notice::Level::kWarning,
                      .text = fmt::format("sandbox: {}: {}", consequence, done.error().message)});
}

}  // namespace

Notices limitRights(Mode mode) {
  if (mode == Mode::kOff) return {{.text = "sandbox: off; the server has all the rights with which it was started"}};
  Notices notices;
  note(keepRightsOfStart(), "capabilities are not limited", &notices);
  note(noNewPrivileges(), "programs may have more rights than the server", &notices);
  note(leaveNoDump(), "a core dump would hold passwords and keys", &notices);
  return notices;
}

Notices confine(Mode mode, const std::vector<std::string>& directories) {
  if (mode == Mode::kOff) return {};
  Notices notices;
  note(keepOnlyBindingOfPorts(), "the rights of the start are not given up", &notices);
  note(allowWritesOnlyBelow(directories), "files may be written anywhere", &notices);
  note(restrictSystemCalls(mode == Mode::kLog ? Refusal::kReportOnly : Refusal::kRefuse),
       "system calls are not restricted", &notices);
  if (mode == Mode::kLog) {
    notices.push_back(
        {.text = "sandbox: log; system calls that would be refused are allowed, and are in the audit log"});
  }
  return notices;
}

}  // namespace idetcd::sandbox
