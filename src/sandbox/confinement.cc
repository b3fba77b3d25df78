#include "sandbox/confinement.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file_descriptor.h"
#include "sandbox/system_calls.h"

namespace idetcd::sandbox {

namespace {

void note(const Result<void>& done, std::string_view consequence, Notices* notices) {
  if (done) return;
  const bool is_expected = done.error().code == ErrorCode::kNotFound;
  notices->push_back({.level = is_expected ? Logger::Level::kInfo : Logger::Level::kWarning,
                      .text = fmt::format("sandbox: {}: {}", consequence, done.error().message)});
}

// Later than the headers of Debian 12.
constexpr uint64_t kTruncate = 1ULL << 14;  // LANDLOCK_ACCESS_FS_TRUNCATE, version 3

constexpr uint64_t kWithinDirectories = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                                        LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SYM |
                                        LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                                        LANDLOCK_ACCESS_FS_MAKE_DIR | kTruncate;
constexpr uint64_t kNowhere =
    LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO;

// The restrictions of the kernel's version of Landlock.
uint64_t restrictable(long version) {
  const uint64_t all = kWithinDirectories | kNowhere;
  return version >= 3 ? all : all & ~kTruncate;
}

Result<FileDescriptor> makeRuleset(uint64_t restricted) {
  landlock_ruleset_attr attributes{};
  attributes.handled_access_fs = restricted;
  FileDescriptor ruleset(static_cast<int>(syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0)));
  if (!ruleset.isOpen()) return failWith(errno, "landlock_create_ruleset");
  return ruleset;
}

Result<void> allow(const FileDescriptor& ruleset, const std::string& directory, uint64_t access) {
  const FileDescriptor place(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!place.isOpen()) return {};
  landlock_path_beneath_attr rule{};
  rule.allowed_access = access;
  rule.parent_fd = place.get();
  if (syscall(SYS_landlock_add_rule, ruleset.get(), LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0) return {};
  return failWith(errno, "landlock_add_rule");
}

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

bool hasCapability(int capability) {
  const auto sets = readSets();
  return sets && (sets->effective & setOf(capability)) != 0;
}

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

Result<void> allowWritesOnlyBelow(const std::vector<std::string>& directories) {
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 1) return fail("this kernel has no Landlock, or it is not enabled", ErrorCode::kNotFound);
  const uint64_t restricted = restrictable(version);
  const auto ruleset = makeRuleset(restricted);
  if (!ruleset) return tl::unexpected(ruleset.error());
  for (const std::string& directory : directories) {
    if (auto allowed = allow(*ruleset, directory, kWithinDirectories & restricted); !allowed) return allowed;
  }
  if (syscall(SYS_landlock_restrict_self, ruleset->get(), 0) != 0) return failWith(errno, "landlock_restrict_self");
  return {};
}

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
