#include "sandbox/system_calls.h"

#include <linux/bpf.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace idetcd::sandbox {
namespace {

// Allowed with any arguments. From Linux 5.11 on a bitmap, not the filter, decides these: all calls of a query.
constexpr std::array kAllowed{
    // Sockets
    "accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen", "recvfrom", "recvmmsg",
    "recvmsg", "sendmmsg", "sendmsg", "sendto", "setsockopt", "shutdown", "socketpair",
    // Waiting for them, wake-ups, timers
    "epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait", "eventfd", "eventfd2",
    "pipe", "pipe2", "poll", "ppoll", "pselect6", "select", "timerfd_create", "timerfd_gettime", "timerfd_settime",
    // Descriptors and files. Landlock says where files may be written
    "access", "close", "close_range", "dup", "dup2", "dup3", "faccessat", "faccessat2", "fcntl", "fdatasync", "flock",
    "fstat", "fstatfs", "fsync", "ftruncate", "getcwd", "getdents", "getdents64", "lseek", "lstat", "mkdir", "mkdirat",
    "newfstatat", "open", "openat", "pread64", "pwrite64", "read", "readlink", "readlinkat", "readv", "rename",
    "renameat", "renameat2", "rmdir", "stat", "statfs", "statx", "symlink", "symlinkat", "truncate", "unlink",
    "unlinkat", "write", "writev",
    // Memory
    "brk", "madvise", "mincore", "mremap", "munmap",
    // Threads. For clone3(2) see hideClone3()
    "clone3", "exit", "exit_group", "futex", "futex_waitv", "getcpu", "gettid", "membarrier", "restart_syscall", "rseq",
    "sched_getaffinity", "sched_getparam", "sched_getscheduler", "sched_yield", "set_robust_list", "set_tid_address",
    // Signals to itself, and the end of the helper process
    "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait", "sigaltstack",
    "wait4", "waitid",
    // Time and randomness
    "clock_getres", "clock_gettime", "clock_nanosleep", "getrandom", "gettimeofday", "nanosleep", "time",
    // Identity and resources
    "getegid", "geteuid", "getgid", "getgroups", "getpgrp", "getpid", "getppid", "getresgid", "getresuid", "getrlimit",
    "getrusage", "getuid", "sysinfo", "times", "uname"};

// Refused with EPERM: see the header.
constexpr std::array kRefused{
    "add_key",      "capset",        "chmod",           "chown",
    "chroot",       "delete_module", "execve",          "execveat",         "fchmod",
    "fchmodat",     "fchown",        "fchownat",        "finit_module",     "fork",
    "init_module",  "kexec_load",    "kexec_file_load", "keyctl",           "kill",
    "lchown",       "link",          "linkat",          "mknod",            "mknodat",
    "mount",        "open_by_handle_at", "perf_event_open", "personality",  "pidfd_send_signal",
    "pivot_root",   "process_vm_readv", "process_vm_writev", "ptrace",      "quotactl",
    "reboot",       "request_key",   "setgid",          "setgroups",        "sethostname",
    "setns",        "setresgid",     "setresuid",       "settimeofday",     "setuid",
    "setxattr",     "swapon",        "syslog",          "tkill",            "umount2",
    "unshare",      "userfaultfd",   "vfork"};

constexpr uint64_t kSocketType = 0xf;  // the rest are SOCK_NONBLOCK and SOCK_CLOEXEC
constexpr uint64_t kNamespaces = CLONE_NEWCGROUP | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID |
                                 CLONE_NEWUSER | CLONE_NEWUTS;

struct ConditionalRule {
  const char* name;
  std::vector<scmp_arg_cmp> conditions;  // all of which have to hold
};

scmp_arg_cmp equals(unsigned argument, uint64_t value) {
  return {.arg = argument, .op = SCMP_CMP_EQ, .datum_a = value, .datum_b = 0};
}

scmp_arg_cmp maskedEquals(unsigned argument, uint64_t mask, uint64_t value) {
  return {.arg = argument, .op = SCMP_CMP_MASKED_EQ, .datum_a = mask, .datum_b = value};
}

// Allowed with certain arguments; otherwise as if the list did not name them.
std::vector<ConditionalRule> conditionalRules() {
  std::vector<ConditionalRule> rules{
      {"socket", {equals(0, AF_UNIX)}},     // syslog, nscd, resolved; programs
      {"socket", {equals(0, AF_NETLINK)}},  // addresses of the machine
      // A thread, no process and no namespace.
      {"clone", {maskedEquals(0, CLONE_THREAD | kNamespaces, CLONE_THREAD)}},
      {"prctl", {equals(0, PR_SET_NAME)}},
      {"prctl", {equals(0, PR_GET_NAME)}},
      {"prlimit64", {equals(0, 0)}},  // the process's own
      {"tgkill", {equals(0, static_cast<uint64_t>(getpid()))}},
      // No memory is both written and run. A library of nsswitch.conf's is mapped from its file.
      {"mmap", {maskedEquals(2, PROT_EXEC, 0)}},
      {"mmap", {maskedEquals(2, PROT_WRITE, 0)}},
      {"mprotect", {maskedEquals(2, PROT_EXEC, 0)}},
  };
  for (const uint64_t family : {AF_INET, AF_INET6}) {  // no raw sockets
    for (const uint64_t type : {SOCK_STREAM, SOCK_DGRAM}) {
      rules.push_back({"socket", {equals(0, family), maskedEquals(1, kSocketType, type)}});
    }
  }
  // Interfaces' names and numbers; whether the output is a terminal (not TIOCSTI, which types into it).
  for (const uint64_t request : {FIONBIO, FIOCLEX, FIONREAD, TCGETS, SIOCGIFNAME, SIOCGIFINDEX, SIOCGIFFLAGS}) {
    rules.push_back({"ioctl", {equals(1, request)}});
  }
  return rules;
}

// The commands of bpf(2) that are allowed: to read and write the maps of a program that another process, or this one
// before it was confined, has loaded; a reload may be the first to name pinned ones. Ascending.
//
// That gives nothing away that the process has not got. All but one act on a descriptor, and each was given to it or
// opened by BPF_OBJ_GET, which asks for the rights of the pin's file. Programs, maps and links cannot be made, nor found
// by their numbers, nor a link be taken off or be given another program. The capabilities that could do more are given
// up. A server of root may open what root has pinned, whatever it is for (Landlock does not see it); as a user of its
// own, as in the unit, it may open what was made its own.
constexpr std::array kMapCommands{BPF_MAP_LOOKUP_ELEM,  BPF_MAP_UPDATE_ELEM, BPF_MAP_DELETE_ELEM,
                                  BPF_MAP_GET_NEXT_KEY, BPF_OBJ_GET,         BPF_OBJ_GET_INFO_BY_FD,
                                  BPF_MAP_LOOKUP_BATCH};
static_assert(std::is_sorted(kMapCommands.begin(), kMapCommands.end()));

using Filter = std::unique_ptr<void, decltype(&seccomp_release)>;

// A name that this architecture or version of the library does not know needs no rule.
Result<void> addRule(const Filter& filter, uint32_t action, const char* name,
                     const std::vector<scmp_arg_cmp>& conditions = {}) {
  const int number = seccomp_syscall_resolve_name(name);
  if (number < 0) return {};
  const int error =
      seccomp_rule_add_array(filter.get(), action, number, static_cast<unsigned>(conditions.size()), conditions.data());
  return error == 0 ? Result<void>() : failWith(-error, name);
}

// Refuses what kMapCommands leaves out. A rule without a condition would stand above those with one, and libseccomp takes
// one comparison of an argument a rule: so there is one for each number between them, and one for all that follow.
Result<void> refuseOtherMapCommands(const Filter& filter) {
  uint64_t next = 0;
  const auto refuse = [&](const scmp_arg_cmp& condition) {
    return addRule(filter, SCMP_ACT_ERRNO(EPERM), "bpf", {condition});
  };
  for (const uint64_t allowed : kMapCommands) {
    for (; next < allowed; ++next) {
      if (auto added = refuse(equals(0, next)); !added) return added;
    }
    ++next;
  }
  return refuse({.arg = 0, .op = SCMP_CMP_GE, .datum_a = next, .datum_b = 0});
}

Result<void> addRules(const Filter& filter, Refusal refusal) {
  for (const char* name : kAllowed) {
    if (auto added = addRule(filter, SCMP_ACT_ALLOW, name); !added) return added;
  }
  for (const ConditionalRule& rule : conditionalRules()) {
    if (auto added = addRule(filter, SCMP_ACT_ALLOW, rule.name, rule.conditions); !added) return added;
  }
  for (const uint64_t command : kMapCommands) {
    if (auto added = addRule(filter, SCMP_ACT_ALLOW, "bpf", {equals(0, command)}); !added) return added;
  }
  if (refusal == Refusal::kReportOnly) return {};
  for (const char* name : kRefused) {
    if (auto added = addRule(filter, SCMP_ACT_ERRNO(EPERM), name); !added) return added;
  }
  return refuseOtherMapCommands(filter);
}

Result<void> load(const Filter& filter) {
  const int error = seccomp_load(filter.get());
  return error == 0 ? Result<void>() : failWith(-error, "seccomp");
}

// clone3(2) has its flags in memory, which no filter sees. glibc asks for it with every thread, and takes clone(2) if
// there is none. A filter of its own says so, because a filter reports all that it refuses, or nothing.
Result<void> hideClone3() {
  const Filter filter(seccomp_init(SCMP_ACT_ALLOW), &seccomp_release);
  if (!filter) return fail("seccomp_init");
  if (auto added = addRule(filter, SCMP_ACT_ERRNO(ENOSYS), "clone3"); !added) return added;
  return load(filter);
}

}  // namespace

Result<void> restrictSystemCalls(Refusal refusal) {
  if constexpr (sizeof(void*) != 8) return fail("there is no list of system calls for 32-bit machines");
  const uint32_t otherwise = refusal == Refusal::kReportOnly ? SCMP_ACT_LOG : SCMP_ACT_ERRNO(ENOSYS);
  const Filter filter(seccomp_init(otherwise), &seccomp_release);
  if (!filter) return fail("seccomp_init");
  if (auto added = addRules(filter, refusal); !added) return added;
  constexpr uint32_t kBinaryTree = 2;  // instead of one comparison after the other
  seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_OPTIMIZE, kBinaryTree);
  seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_LOG, 1);  // kernels before 4.14 report nothing
  if (auto hidden = hideClone3(); !hidden) return hidden;
  return load(filter);
}

}  // namespace idetcd::sandbox
