// The parts of `idetcd doctor` for a cluster that need no etcd and no machine.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "directive/idetcd/checks.h"

namespace idetcd::directive {
namespace {

using resolve::Finding;
using resolve::Findings;
using resolve::Severity;

EndpointAnswer member(const std::string& endpoint, uint64_t cluster, const std::string& version = "3.6.9") {
  EndpointAnswer answer{.endpoint = endpoint, .read = {}, .unused = {}};
  answer.status = etcd::MemberStatus{.id = 1, .cluster_id = cluster, .version = version, .leader = 1};
  return answer;
}

EndpointAnswer away(const std::string& endpoint) {
  EndpointAnswer answer{.endpoint = endpoint, .read = {}, .unused = {}};
  answer.status = tl::unexpected(store::StoreError(ErrorCode::kUnavailable, "Connection refused"));
  return answer;
}

Severity worst(const Findings& findings) {
  return std::ranges::max(findings, {}, &Finding::severity).severity;
}

TEST(ClusterChecks, EndpointsOfOneClusterAreGood) {
  const std::vector answers{member("http://a:2379", 7), member("http://b:2379", 7)};
  const Findings findings = judgeEndpoints(answers);
  EXPECT_EQ(worst(findings), Severity::kOk);
  EXPECT_EQ(findings[0].text, "http://a:2379 is etcd 3.6.9 of cluster 7");
}

TEST(ClusterChecks, OneEndpointThatIsAwayIsAWarningAllAreAnError) {
  EXPECT_EQ(worst(judgeEndpoints(std::vector{member("a", 7), away("b")})), Severity::kWarning);
  EXPECT_EQ(worst(judgeEndpoints(std::vector{away("a"), away("b")})), Severity::kError);
  EXPECT_EQ(worst(judgeEndpoints(std::vector{EndpointAnswer{.endpoint = "a", .read = {}, .unused = {}}})), Severity::kError);
}

TEST(ClusterChecks, EndpointsOfTwoClustersAreAnError) {
  const Findings findings = judgeEndpoints(std::vector{member("a", 7), member("b", 8)});
  EXPECT_EQ(worst(findings), Severity::kError);
  EXPECT_NE(findings.back().text.find("2 clusters"), std::string::npos);
}

TEST(ClusterChecks, AMemberThatCannotServe) {
  EndpointAnswer leaderless = member("a", 7);
  leaderless.status->leader = 0;
  EXPECT_EQ(worst(judgeEndpoints(std::vector{leaderless})), Severity::kError);
  EndpointAnswer full = member("a", 7);
  full.status->no_space = true;
  EXPECT_EQ(worst(judgeEndpoints(std::vector{full})), Severity::kError);
  EndpointAnswer guarded = member("a", 7);
  guarded.read = store::StoreError(ErrorCode::kPermissionDenied, "permission denied");
  const Findings findings = judgeEndpoints(std::vector{guarded});
  EXPECT_EQ(worst(findings), Severity::kError);
  EXPECT_NE(findings.back().fix.find("credentials"), std::string::npos);
  EndpointAnswer proxy = member("a", 7);
  proxy.unused = "it is etcd's grpc-proxy";
  EXPECT_EQ(worst(judgeEndpoints(std::vector{proxy})), Severity::kWarning);
}

TEST(ClusterChecks, KnownDefectsAreSaidOnceAVersion) {
  const Findings findings = judgeEndpoints(std::vector{member("a", 7, "3.4.23"), member("b", 7, "3.4.23")});
  EXPECT_EQ(findings.size(), 3u);
  EXPECT_EQ(findings.back().severity, Severity::kWarning);
  EXPECT_NE(findings.back().text.find("20418"), std::string::npos);
}

TEST(ClusterChecks, TheEndOfACertificate) {
  using std::chrono::hours;
  const auto now = std::chrono::system_clock::now();
  EXPECT_EQ(judgeCertificate("c.pem", now + hours(24 * 30), now).severity, Severity::kOk);
  EXPECT_EQ(judgeCertificate("c.pem", now + hours(30), now).text, "c.pem expires in 30 hours");
  EXPECT_EQ(judgeCertificate("c.pem", now + hours(30), now).severity, Severity::kWarning);
  EXPECT_EQ(judgeCertificate("c.pem", now - hours(1), now).severity, Severity::kError);
}

class AddressCheck : public testing::Test {
 protected:
  static IpAddress ip(const char* text) { return *IpAddress::parse(text); }
  static node::NetworkInterface interface(const std::string& name, const char* address) {
    node::NetworkInterface made{.name = name, .addresses = {ip(address)}};
    made.up = true;
    made.loopback = name == "lo";
    return made;
  }
  // A machine of which the first interface has the default route.
  static node::NetworkView machine(std::vector<node::NetworkInterface> interfaces) {
    node::NetworkView view;
    if (!interfaces.front().loopback) view.default_source_ipv4 = interfaces.front().addresses.front();
    view.interfaces = std::move(interfaces);
    return view;
  }
  static Findings published(const char* address) {
    node::AddressOptions options;
    options.addresses = {ip(address)};
    return judgeAddress(options, machine({eth0_, lo_}));
  }
  static Findings of(const char* name) {
    node::AddressOptions options;
    options.interface_name = name;
    return judgeAddress(options, machine({eth0_, ib0_, lo_}));
  }

  static inline const node::NetworkInterface lo_ = interface("lo", "127.0.0.1");
  static inline const node::NetworkInterface eth0_ = interface("eth0", "192.0.2.1");
  static inline const node::NetworkInterface ib0_ = interface("ib0", "198.51.100.1");
};

TEST_F(AddressCheck, SaysWhatWouldBePublished) {
  const Findings one = judgeAddress({}, machine({eth0_, lo_}));
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].text, "192.0.2.1 is published, of eth0");
  const Findings two = judgeAddress({}, machine({eth0_, ib0_, lo_}));
  EXPECT_EQ(worst(two), Severity::kNote);
  EXPECT_NE(two.back().text.find("ib0 (198.51.100.1)"), std::string::npos);
  EXPECT_EQ(worst(of("eth0")), Severity::kOk) << "it was chosen";
}

TEST_F(AddressCheck, WarnsOfWhatOthersDoNotReach) {
  EXPECT_EQ(worst(judgeAddress({}, machine({lo_}))), Severity::kWarning);
  EXPECT_EQ(worst(published("127.0.0.1")), Severity::kWarning);
  EXPECT_EQ(worst(published("203.0.113.1")), Severity::kNote) << "it may be translated";
  EXPECT_EQ(worst(of("eth1")), Severity::kError);
}

TEST(ClusterChecks, TheVersionThatEtcdPrints) {
  EXPECT_EQ(etcdVersionIn("etcd Version: 3.4.23\nGit SHA: Not provided\n"), "3.4.23");
  EXPECT_EQ(etcdVersionIn("etcd Version: 3.6.0-rc.1\n"), "3.6.0");
  EXPECT_EQ(etcdVersionIn("usage: etcd"), "");
}

}  // namespace
}  // namespace idetcd::directive
