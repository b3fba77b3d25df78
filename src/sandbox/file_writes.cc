#include "sandbox/file_writes.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file_descriptor.h"

namespace idetcd::sandbox {
namespace {

// Later than the headers of Debian 12.
constexpr uint64_t kTruncate = 1ULL << 14;  // LANDLOCK_ACCESS_FS_TRUNCATE, version 3

constexpr uint64_t kWithinDirectories = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                                        LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SYM |
                                        LANDLOCK_ACCESS_FS_MAKE_SOCK | kTruncate;
constexpr uint64_t kNowhere = LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                              LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO;

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

}  // namespace

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

}  // namespace idetcd::sandbox
