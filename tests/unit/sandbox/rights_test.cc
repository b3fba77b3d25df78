#include "sandbox/rights.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <netinet/in.h>
#include <regex>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "support/in_child.h"
#include "support/temporary_directory.h"

namespace idetcd::sandbox {
namespace {

constexpr const char* kOnlyBinding = "0000000000000400";

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
  const std::string none = "0000000000000000";
  const std::string expected = fmt::format("{0} {0} {0} {1} {1} ", kOnlyBinding, none);
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
  EXPECT_EQ(afterwards([] { return setuid(65534) == 0; }), "EPERM");
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

TEST(Rights, AProcessThatHasNoneGetsNone) {
  EXPECT_EQ(inChild([] {
              if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) return std::string("failed");
              if (!keepOnlyBindingOfPorts() || !noNewPrivileges()) return std::string("failed");
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
