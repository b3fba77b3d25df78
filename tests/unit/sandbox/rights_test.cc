#include "sandbox/confinement.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <regex>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "support/in_child.h"
#include "support/temporary_directory.h"

namespace idetcd::sandbox {
namespace {

constexpr const char* kOnlyBinding = "0000000000000400";
constexpr const char* kNone = "0000000000000000";
// CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_PERFMON and CAP_BPF, in <linux/capability.h>'s numbers.
constexpr uint64_t kStart = uint64_t{1} << 10 | uint64_t{1} << 12 | uint64_t{1} << 38 | uint64_t{1} << 39;

std::string statusOf(const std::string& field, const std::string& path = "/proc/thread-self/status") {
  std::smatch match;
  const std::string status = contentsOf(path);
  std::regex_search(status, match, std::regex(field + ":\\s*(\\S+)"));
  return match[1];
}

std::string allSets(const std::string& path = "/proc/thread-self/status") {
  std::string sets;
  for (const char* set : {"CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb"}) sets += statusOf(set, path) + " ";
  return sets;
}

// Those of the start that the process of the test has at all.
std::string rightsOfStart() { return fmt::format("{:016x}", std::stoull(statusOf("CapPrm"), nullptr, 16) & kStart); }

std::string programSays(const std::string& command, const std::string& out) {
  return std::system((command + " > " + out).c_str()) == 0 ? contentsOf(out) : "failed";
}

// A program of two instructions, for XDP: return XDP_PASS. Its descriptor.
bool loadsXdpProgram() {
  const std::array<bpf_insn, 2> code{
      {{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = XDP_PASS},
       {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0}}};
  bpf_attr attributes;
  std::memset(&attributes, 0, sizeof attributes);
  attributes.prog_type = BPF_PROG_TYPE_XDP;
  attributes.insn_cnt = code.size();
  attributes.insns = reinterpret_cast<uintptr_t>(code.data());
  attributes.license = reinterpret_cast<uintptr_t>("");
  return syscall(SYS_bpf, BPF_PROG_LOAD, &attributes, sizeof attributes) >= 0;
}

// As a service manager that gives capabilities to a user who is not root: inheritable too, and none to spare.
bool hasOnly(uint64_t capabilities) {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  const auto low = static_cast<uint32_t>(capabilities);
  const auto high = static_cast<uint32_t>(capabilities >> 32);
  const std::array<__user_cap_data_struct, 2> sets{{{low, low, low}, {high, high, high}}};
  return syscall(SYS_capset, &header, sets.data()) == 0;
}

std::string nameOf(bool worked) { return worked ? "worked" : strerrorname_np(errno); }

std::string bindsPort(uint16_t port) {
  const int fd = socket(AF_INET6, SOCK_DGRAM, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  address.sin6_port = htons(port);
  // Whoever else has the port: the right to have it is what is asked for.
  const bool may = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno == EADDRINUSE;
  return nameOf(may);
}

class RightsOfRootTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root has rights to give up";
  }
};

TEST_F(RightsOfRootTest, OneCapabilityIsLeftInEverySetThatHadIt) {
  const std::string expected = fmt::format("{0} {0} {0} {1} {1} ", kOnlyBinding, kNone);
  EXPECT_EQ(inChild([] {
              if (!keepOnlyBindingOfPorts()) return std::string("failed");
              std::string later;
              std::thread([&later] { later = allSets(); }).join();
              return allSets() + later;
            }),
            expected + expected);
}

TEST_F(RightsOfRootTest, APortBelow1024CanStillBeOpened) {
  EXPECT_EQ(inChild([] { return keepOnlyBindingOfPorts() ? bindsPort(853) : "failed"; }), "worked");
}

TEST_F(RightsOfRootTest, WhatNeedsAnotherCapabilityIsRefused) {
  const auto afterwards = [](const std::function<bool()>& attempt) {
    return inChild([&] { return keepOnlyBindingOfPorts() ? nameOf(attempt()) : "failed"; });
  };
  EXPECT_EQ(afterwards([] { return socket(AF_INET, SOCK_RAW, IPPROTO_ICMP) >= 0; }), "EPERM");
  EXPECT_EQ(afterwards([] { return syscall(SYS_setuid, 65534) == 0; }), "EPERM");
  EXPECT_EQ(afterwards([] { return chroot("/") == 0; }), "EPERM");
  EXPECT_EQ(afterwards([] { return sethostname("x", 1) == 0; }), "EPERM");
  const TemporaryDirectory directory;
  const std::string secret = directory / "secret";
  overwrite(secret, "");
  ASSERT_EQ(chown(secret.c_str(), 65534, 65534), 0);
  ASSERT_EQ(chmod(secret.c_str(), 0600), 0);
  EXPECT_EQ(afterwards([&] { return access(secret.c_str(), R_OK) == 0; }), "EACCES") << "root reads what its mode lets it";
}

TEST_F(RightsOfRootTest, AProgramHasNoMore) {
  const TemporaryDirectory directory;
  const std::string out = directory / "status";
  inChild([&] {
    if (!keepOnlyBindingOfPorts() || !noNewPrivileges()) return "failed";
    return std::system(("cat /proc/self/status > " + out).c_str()) == 0 ? "" : "failed";
  });
  EXPECT_EQ(statusOf("CapEff", out), kOnlyBinding);
  EXPECT_EQ(statusOf("CapBnd", out), kOnlyBinding);
  EXPECT_EQ(statusOf("NoNewPrivs", out), "1");
}

TEST_F(RightsOfRootTest, ThoseOfTheStartAreTheProcesssAloneAndGoWithTheSecondStep) {
  const std::string first = fmt::format("{0} {0} {1} {2} {2} ", rightsOfStart(), kOnlyBinding, kNone);
  const std::string second = fmt::format("{0} {0} {0} {1} {1} ", kOnlyBinding, kNone);
  EXPECT_EQ(inChild([] {
              if (!keepRightsOfStart()) return std::string("failed");
              const std::string at_start = allSets();
              return keepOnlyBindingOfPorts() ? at_start + allSets() : "failed";
            }),
            first + second);
}

TEST_F(RightsOfRootTest, AnXdpProgramCanBeLoadedBetweenTheSteps) {
  if (inChild([] { return nameOf(loadsXdpProgram()); }) != "worked") GTEST_SKIP() << "no XDP";
  EXPECT_EQ(inChild([] { return keepRightsOfStart() ? nameOf(loadsXdpProgram()) : "failed"; }), "worked");
  EXPECT_EQ(
      inChild([] { return keepRightsOfStart() && keepOnlyBindingOfPorts() ? nameOf(loadsXdpProgram()) : "failed"; }),
      "EPERM");
}

TEST_F(RightsOfRootTest, AProgramThatIsStartedBetweenTheStepsHasNoneOfTheStart) {
  const TemporaryDirectory directory;
  const std::string out = directory / "status";
  inChild([&] { return keepRightsOfStart() ? programSays("cat /proc/self/status", out) : "failed"; });
  EXPECT_EQ(allSets(out), fmt::format("{0} {0} {0} {1} {1} ", kOnlyBinding, kNone));
}

TEST_F(RightsOfRootTest, WhatAServiceManagerGaveIsNotInheritedEither) {
  const std::string rights = rightsOfStart();
  EXPECT_EQ(inChild([&] {
              if (!hasOnly(std::stoull(rights, nullptr, 16)) || statusOf("CapInh") != rights)
                return std::string("not given");
              if (!keepRightsOfStart()) return std::string("failed");
              return fmt::format("{} {} {}", statusOf("CapEff"), statusOf("CapInh"), statusOf("CapAmb"));
            }),
            fmt::format("{} {} {}", rights, kNone, kNone));
}

TEST(Rights, AProcessThatHasNoneGetsNone) {
  EXPECT_EQ(inChild([] {
              if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) return std::string("failed");
              if (!keepRightsOfStart() || !noNewPrivileges()) return std::string("failed");
              return statusOf("CapEff") + " " + statusOf("CapAmb") + " " + statusOf("NoNewPrivs");
            }),
            "0000000000000000 0000000000000000 1");
}

TEST(Rights, AProcessThatCrashesLeavesNoDumpAndIsNobodysToTrace) {
  const std::string said = inChild([] {
    if (!leaveNoDump()) return std::string("failed");
    return std::to_string(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
  });
  EXPECT_EQ(said, "0");
  const std::string died = inChild([]() -> std::string {
    constexpr rlimit kAny{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    if (geteuid() == 0) setrlimit(RLIMIT_CORE, &kAny);
    if (!leaveNoDump()) return "failed";
    std::abort();
  });
  EXPECT_EQ(died, " (child ended with status 0x6)") << "0x80 would say that it was dumped";
}

}  // namespace
}  // namespace idetcd::sandbox
