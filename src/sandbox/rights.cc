#include "sandbox/rights.h"

#include <array>
#include <cerrno>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace idetcd::sandbox {
namespace {

constexpr unsigned long kKept = CAP_NET_BIND_SERVICE;

// First: it takes CAP_SETPCAP.
void shrinkBoundingSet() {
  for (unsigned long capability = 0;; ++capability) {
    const int held = prctl(PR_CAPBSET_READ, capability, 0, 0, 0);
    if (held < 0) return;  // behind the last one that the kernel knows
    if (held == 1 && capability != kKept && prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) return;
  }
}

}  // namespace

Result<void> keepOnlyBindingOfPorts() {
  // Refused by kernels before 4.3, which have no such set.
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  shrinkBoundingSet();
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
  if (syscall(SYS_capget, &header, sets.data()) != 0) return failWith(errno, "capget");
  static_assert(kKept < 32);
  const uint32_t kept = sets[0].permitted & (uint32_t{1} << kKept);
  // A service manager that has done so before us may well refuse capset(2).
  if (sets[0].permitted == kept && sets[1].permitted == 0) return {};
  sets = {};
  sets[0] = {.effective = kept, .permitted = kept, .inheritable = 0};
  if (syscall(SYS_capset, &header, sets.data()) != 0) return failWith(errno, "capset");
  return {};
}

Result<void> noNewPrivileges() {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return failWith(errno, "PR_SET_NO_NEW_PRIVS");
  return {};
}

Result<void> leaveNoDump() {
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return failWith(errno, "PR_SET_DUMPABLE");
  return {};
}

}  // namespace idetcd::sandbox
