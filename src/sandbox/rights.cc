#include "sandbox/rights.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace idetcd::sandbox {
namespace {

constexpr uint64_t setOf(unsigned capability) { return uint64_t{1} << capability; }

constexpr uint64_t kBindingOfPorts = setOf(CAP_NET_BIND_SERVICE);
constexpr uint64_t kStart = setOf(CAP_BPF) | setOf(CAP_NET_ADMIN) | setOf(CAP_PERFMON);

// First: it takes CAP_SETPCAP.
void shrinkBoundingSet() {
  for (unsigned long capability = 0;; ++capability) {
    const int held = prctl(PR_CAPBSET_READ, capability, 0, 0, 0);
    if (held < 0) return;  // behind the last one that the kernel knows
    if (held == 1 && capability != CAP_NET_BIND_SERVICE && prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) return;
  }
}

struct Sets {
  uint64_t effective = 0;
  uint64_t permitted = 0;
  uint64_t inheritable = 0;
};

// As capget(2) and capset(2) want them: the lower 32 of each set first.
using Halves = std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3>;

Result<Sets> readSets() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  Halves halves{};
  if (syscall(SYS_capget, &header, halves.data()) != 0) return failWith(errno, "capget");
  const auto join = [](uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; };
  return Sets{.effective = join(halves[0].effective, halves[1].effective),
              .permitted = join(halves[0].permitted, halves[1].permitted),
              .inheritable = join(halves[0].inheritable, halves[1].inheritable)};
}

// Of the permitted capabilities, those in `kept` become the effective ones, and none is inheritable.
Result<void> writeSets(uint64_t kept) {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  Halves halves{};
  for (size_t i = 0; i < halves.size(); ++i) {
    const auto half = static_cast<uint32_t>(kept >> 32 * i);
    halves[i] = {.effective = half, .permitted = half, .inheritable = 0};
  }
  if (syscall(SYS_capset, &header, halves.data()) != 0) return failWith(errno, "capset");
  return {};
}

Result<void> keepOnly(uint64_t capabilities) {
  // Refused by kernels before 4.3, which have no such set.
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  shrinkBoundingSet();
  const auto held = readSets();
  if (!held) return tl::unexpected(held.error());
  const uint64_t kept = held->permitted & capabilities;
  // A service manager that has done so before us may well refuse capset(2).
  if (held->permitted == kept && held->effective == kept && (held->inheritable & ~kBindingOfPorts) == 0) return {};
  return writeSets(kept);
}

}  // namespace

Result<void> keepRightsOfStart() { return keepOnly(kBindingOfPorts | kStart); }

Result<void> keepOnlyBindingOfPorts() { return keepOnly(kBindingOfPorts); }

Result<void> noNewPrivileges() {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return failWith(errno, "PR_SET_NO_NEW_PRIVS");
  return {};
}

Result<void> leaveNoDump() {
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return failWith(errno, "PR_SET_DUMPABLE");
  return {};
}

}  // namespace idetcd::sandbox
