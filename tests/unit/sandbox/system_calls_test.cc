#include "sandbox/system_calls.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <linux/bpf.h>
#include <net/if.h>
#include <netdb.h>
#include <pthread.h>
#include <sched.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "sandbox/confinement.h"
#include "support/in_child.h"

namespace idetcd::sandbox {
namespace {

using Attempt = std::function<bool()>;  // sets errno if it fails

std::string restricted(const Attempt& attempt, Refusal refusal = Refusal::kRefuse) {
  return inChild([&]() -> std::string {
    if (!noNewPrivileges() || !leaveNoDump()) return "failed";
    if (auto done = restrictSystemCalls(refusal); !done) return done.error().message;
    return attempt() ? "worked" : strerrorname_np(errno);
  });
}

bool executes() {
  char program[] = "/bin/true";
  char* arguments[] = {program, nullptr};
  execv(program, arguments);
  return false;
}

// Without glibc's handlers of fork().
bool forks() {
  const long child = syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (child == 0) _exit(0);
  return child > 0;
}

bool readsOtherProcess() {
  char there = 'x';
  char here = 'y';
  const iovec local{.iov_base = &here, .iov_len = 1};
  const iovec remote{.iov_base = &there, .iov_len = 1};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
}

TEST(SystemCalls, WhatNoPartOfTheServerNeedsIsRefused) {
  const std::vector<std::pair<const char*, Attempt>> attempts{
      {"execve", executes},
      {"ptrace", [] { return ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0; }},
      {"process_vm_readv", readsOtherProcess},
      {"mount", [] { return mount("none", "/tmp", "tmpfs", 0, nullptr) == 0; }},
      {"bpf", [] { return syscall(SYS_bpf, BPF_MAP_CREATE, nullptr, 0) == 0; }},
      {"keyctl", [] { return syscall(SYS_keyctl, 0, 0, 0, 0, 0) >= 0; }},
      {"init_module", [] { return syscall(SYS_init_module, nullptr, 0, "") == 0; }},
      {"kexec_load", [] { return syscall(SYS_kexec_load, 0, 0, nullptr, 0) == 0; }},
      {"perf_event_open", [] { return syscall(SYS_perf_event_open, nullptr, 0, 0, 0, 0) == 0; }},
      {"unshare", [] { return unshare(CLONE_NEWUSER) == 0; }},
      {"setuid", [] { return syscall(SYS_setuid, getuid()) == 0; }},
      {"chroot", [] { return chroot("/") == 0; }},
      {"chmod", [] { return chmod("/dev/null", 0666) == 0; }},
      {"kill", [] { return kill(getppid(), 0) == 0; }},
  };
  for (const auto& [name, attempt] : attempts) EXPECT_EQ(restricted(attempt), "EPERM") << name;
}

TEST(SystemCalls, WhatTheListDoesNotNameLooksLikeAnOlderKernels) {
  const std::vector<std::pair<const char*, Attempt>> attempts{
      {"of the future", [] { return syscall(999) >= 0; }},
      {"io_uring_setup", [] { return syscall(425, 1, nullptr) >= 0; }},
      {"clone3", [] { return syscall(SYS_clone3, nullptr, 0) >= 0; }},
      {"a raw socket", [] { return socket(AF_INET, SOCK_RAW, IPPROTO_ICMP) >= 0; }},
      {"a packet socket", [] { return socket(AF_PACKET, SOCK_DGRAM, 0) >= 0; }},
      {"a process", forks},
      {"a namespace", [] { return syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, nullptr, nullptr, nullptr, nullptr) > 0; }},
      {"another process's limits", [] { return prlimit(getppid(), RLIMIT_CORE, nullptr, nullptr) == 0; }},
      {"a signal to another's thread", [] { return syscall(SYS_tgkill, getppid(), getppid(), 0) == 0; }},
      {"to be dumped again", [] { return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0; }},
      {"typing into a terminal", [] { return ioctl(0, TIOCSTI, "x") == 0; }},
      {"memory to write and run",
       [] { return mmap(nullptr, 4096, PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED; }},
      {"memory that was written",
       [] {
         void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
         return mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0;
       }},
  };
  for (const auto& [what, attempt] : attempts) EXPECT_EQ(restricted(attempt), "ENOSYS") << what;
}

// How the kernel takes each command of bpf(2) up to one that it does not know, and two that it would take for others:
// those that are not refused. None does anything, because every bit of what is asked for is set.
std::string bpfCommandsThatPass() {
  bpf_attr attributes;
  std::memset(&attributes, 0xff, sizeof attributes);
  std::string passed;
  std::vector<long> commands{-1, (1L << 32) | BPF_MAP_LOOKUP_ELEM, (1L << 32) | BPF_PROG_LOAD};
  for (long command = 0; command < 256; ++command) commands.push_back(command);
  for (const long command : commands) {
    if (syscall(SYS_bpf, command, &attributes, sizeof attributes) >= 0) return "worked";
    if (errno != EPERM) passed += fmt::format("{} {}, ", command, strerrorname_np(errno));
  }
  return passed;
}

TEST(SystemCalls, OfBpfOnlyMapsCanBeReadAndWritten) {
  const auto passed = [](Refusal refusal) {
    return inChild([&]() -> std::string {
      if (!noNewPrivileges() || !restrictSystemCalls(refusal)) return "failed";
      return bpfCommandsThatPass();
    });
  };
  const std::string open = inChild(bpfCommandsThatPass);
  if (open.find("1 EINVAL, 2 EINVAL, ") == std::string::npos) GTEST_SKIP() << "no bpf(2): " << open;
  EXPECT_NE(open.find("5 EINVAL"), std::string::npos) << "a program would be loaded";
  // Look-up, update, deletion and the next key of a map; a pin opened; what a descriptor stands for; a batch of look-ups.
  EXPECT_EQ(passed(Refusal::kRefuse), "1 EINVAL, 2 EINVAL, 3 EINVAL, 4 EINVAL, 7 EINVAL, 15 EINVAL, 24 EINVAL, ");
  EXPECT_EQ(passed(Refusal::kReportOnly), open);
}

TEST(SystemCalls, WhatTheServerDoesWorks) {
  const std::vector<std::pair<const char*, Attempt>> attempts{
      {"threads",
       [] {
         bool ran = false;
         std::thread([&ran] { ran = pthread_setname_np(pthread_self(), "name") == 0; }).join();
         return ran;
       }},
      {"sockets", [] { return socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) >= 0; }},
      {"netlink", [] { return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0) >= 0; }},
      {"names of interfaces", [] { return if_nametoindex("lo") > 0; }},
      {"a resolver's libraries",
       [] {
         addrinfo* found = nullptr;
         return getaddrinfo("localhost", "53", nullptr, &found) == 0;
       }},
  };
  for (const auto& [what, attempt] : attempts) EXPECT_EQ(restricted(attempt), "worked") << what;
}

TEST(SystemCalls, EveryLaterThreadIsRestricted) {
  EXPECT_EQ(restricted([] {
              int error = 0;
              std::thread([&error] { error = kill(getppid(), 0) == 0 ? 0 : errno; }).join();
              errno = error;
              return error == 0;
            }),
            "EPERM");
}

TEST(SystemCalls, AnAbortIsStillOne) {
  EXPECT_EQ(restricted([]() -> bool { std::abort(); }), " (child ended with status 0x6)");
}

TEST(SystemCalls, ReportingRefusesNothing) {
  EXPECT_EQ(restricted([] { return kill(getppid(), 0) == 0; }, Refusal::kReportOnly), "worked");
  EXPECT_EQ(restricted([] { return syscall(SYS_setuid, getuid()) == 0; }, Refusal::kReportOnly), "worked");
}

}  // namespace
}  // namespace idetcd::sandbox
