// The parts of `idetcd doctor` that need no machine.
#include "app/machine_checks.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace idetcd::app {
namespace {

using resolve::Finding;
using resolve::Findings;
using resolve::Severity;

Finding resolverFinding(const std::string& text, const std::vector<SocketAddress>& served) {
  const std::vector<SocketAddress> own{{.ip = *IpAddress::parse("192.0.2.1")}, {.ip = *IpAddress::parse("127.0.0.1")}};
  return judgeResolver(node::parseResolverConfig(text), served, own).front();
}

TEST(MachineChecks, WhoIsAskedByTheMachine) {
  const std::vector<SocketAddress> loopback{{.ip = *IpAddress::parse("127.0.0.1"), .port = 53}};
  const std::vector<SocketAddress> all{{.ip = *IpAddress::parse("0.0.0.0"), .port = 53}};
  const std::vector<SocketAddress> elsewhere{{.ip = *IpAddress::parse("127.0.0.1"), .port = 1053}};
  EXPECT_EQ(resolverFinding("nameserver 127.0.0.1", loopback).severity, Severity::kOk);
  EXPECT_EQ(resolverFinding("", loopback).severity, Severity::kOk) << "127.0.0.1 is asked where none is named";
  EXPECT_EQ(resolverFinding("nameserver 127.0.0.1", elsewhere).severity, Severity::kNote);
  EXPECT_EQ(resolverFinding("nameserver 127.0.0.1", {}).severity, Severity::kNote);
  EXPECT_EQ(resolverFinding("nameserver 192.0.2.1", loopback).severity, Severity::kNote);
  for (const char* address : {"192.0.2.1", "127.0.0.7"})
    EXPECT_EQ(resolverFinding(std::string("nameserver ") + address, all).severity, Severity::kOk) << address;
  EXPECT_EQ(resolverFinding("nameserver 192.0.2.2", all).severity, Severity::kNote) << "of another machine";
  EXPECT_EQ(resolverFinding("nameserver ::1", all).severity, Severity::kNote) << "of the other family";
  const Finding second = resolverFinding("nameserver 192.0.2.2\nnameserver 127.0.0.1", loopback);
  EXPECT_EQ(second.severity, Severity::kWarning);
  EXPECT_NE(second.text.find("192.0.2.2 first"), std::string::npos) << second.text;
  EXPECT_EQ(resolverFinding("nameserver 192.0.2.2\nnameserver 192.0.2.3\nnameserver 192.0.2.4\nnameserver 127.0.0.1", loopback).severity,
            Severity::kWarning);
}

TEST(MachineChecks, NdotsAreNotedWhereThereIsASearchList) {
  const auto count = [](const char* text) { return judgeResolver(node::parseResolverConfig(text), {}, {}).size(); };
  EXPECT_EQ(count("search a.org b.org\noptions ndots:5"), 2u);
  EXPECT_EQ(count("options ndots:5"), 1u);
  EXPECT_EQ(count("search a.org b.org"), 1u);
}

TEST(MachineChecks, TheStatusOfAServer) {
  const auto judge = [](const char* text) { return judgeStatus(nlohmann::json::parse(text), "1.0.0"); };
  const Findings good = judge(R"({"version":"1.0.0","pid":7,"ready":true,"not_ready":[],"degraded":[]})");
  ASSERT_EQ(good.size(), 1u);
  EXPECT_EQ(good[0].severity, Severity::kOk);
  EXPECT_EQ(good[0].text, "idetcd 1.0.0, process 7, ready");
  const Findings bad = judge(R"({"version":"0.9.0","pid":7,"ready":false,"not_ready":["idetcd: own name"],"degraded":["etcd is away"]})");
  ASSERT_EQ(bad.size(), 4u);
  EXPECT_EQ(bad[1].severity, Severity::kNote);
  EXPECT_EQ(bad[2].severity, Severity::kError);
  EXPECT_EQ(bad[2].text, "not ready: idetcd: own name");
  EXPECT_EQ(bad[3].severity, Severity::kWarning);
  EXPECT_EQ(judge("{}").size(), 3u) << "of a stranger";
}

TEST(MachineChecks, TheLimitOfOpenFiles) {
  EXPECT_EQ(maxOpenFiles("Max cpu time  unlimited  unlimited  seconds\nMax open files            1024   4096   files\n"), 1024u);
  EXPECT_EQ(maxOpenFiles("Max open files            unlimited   unlimited   files\n"), std::nullopt);
  EXPECT_EQ(maxOpenFiles(""), std::nullopt);
}

}  // namespace
}  // namespace idetcd::app
