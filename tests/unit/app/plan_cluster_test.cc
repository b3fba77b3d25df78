#include <string>

#include <gtest/gtest.h>

#include "app/plan.h"
#include "directive/idetcd/settings.h"

namespace idetcd::app {
namespace {

Result<Plan> planOf(const std::string& options) {
  const std::string text = ".:0 {\n  idetcd {\n    pattern worker{{.ID}}.tf.local.\n" + options + "\n  }\n}\n";
  return makePlan("Corefile", text, 53);
}

directive::ClusterSettings accepted(const std::string& options) {
  const auto plan = planOf(options);
  if (!plan) {
    ADD_FAILURE() << options << ": " << plan.error().message;
    return {};
  }
  return *plan->blocks.at(0).settings<directive::ClusterSettings>();
}

testing::AssertionResult refused(const std::string& options, const std::string& why) {
  const auto plan = planOf(options);
  if (plan) return testing::AssertionFailure() << "it was accepted";
  if (plan.error().message.find(why) == std::string::npos) return testing::AssertionFailure() << plan.error().message;
  return testing::AssertionSuccess();
}

TEST(PlanCluster, TlsTakesUpToThreeFiles) {
  EXPECT_EQ(accepted("").tls, std::nullopt);
  const std::string endpoint = "endpoint https://etcd.test:2379\n";
  EXPECT_EQ(accepted(endpoint + "tls").tls, etcd::TlsFiles{});
  EXPECT_EQ(accepted(endpoint + "tls ca.pem").tls, (etcd::TlsFiles{"ca.pem", "", ""}));
  EXPECT_EQ(accepted(endpoint + "tls cert.pem key.pem").tls, (etcd::TlsFiles{"", "cert.pem", "key.pem"}));
  EXPECT_EQ(accepted(endpoint + "tls cert.pem key.pem ca.pem").tls, (etcd::TlsFiles{"ca.pem", "cert.pem", "key.pem"}));
  EXPECT_TRUE(refused(endpoint + "tls a b c d", "Wrong argument count"));
}

TEST(PlanCluster, TlsIsNeverLostByMistake) {
  EXPECT_EQ(accepted("endpoint https://a:1 https://b:1").tls, std::nullopt);
  EXPECT_TRUE(accepted("tls ca.pem\nendpoint a:1 https://b:1").tls);
  EXPECT_TRUE(refused("endpoint http://a:1\ntls ca.pem", "without TLS"));
  EXPECT_TRUE(refused("tls ca.pem\nendpoint https://a:1 http://b:1", "'http://b:1' is without TLS"));
  EXPECT_TRUE(refused("endpoint https://a:1 http://b:1", "with and without TLS"));
  EXPECT_TRUE(refused("tls", "'http://localhost:2379' is without TLS")) << "the default endpoint";
}

TEST(PlanCluster, CredentialsAreUserAndPassword) {
  EXPECT_EQ(accepted("").credentials, std::nullopt);
  EXPECT_EQ(accepted("credentials node \"a secret\"").credentials, (etcd::Credentials{"node", "a secret"}));
  for (const char* text : {"credentials", "credentials node", "credentials node secret more"})
    EXPECT_TRUE(refused(text, "Wrong argument count")) << text;
  EXPECT_TRUE(refused("credentials \"\" secret", "name is empty"));
}

TEST(PlanCluster, PeersTakeThePlaceOfEndpoints) {
  EXPECT_FALSE(accepted("").peers);
  const auto settings =
      accepted("limit 20\npeers nodes.test 10.0.0.0/24 10.0.1.1:53\npeers [::1]:7\nsecret /etc/secret");
  ASSERT_TRUE(settings.peers);
  EXPECT_EQ(settings.endpoints, std::vector<std::string>());
  EXPECT_EQ(settings.peers->where, (std::vector<std::string>{"nodes.test", "10.0.0.0/24", "10.0.1.1:53", "[::1]:7"}));
  EXPECT_EQ(settings.peers->expect, 20) << "the limit";
  EXPECT_EQ(settings.peers->port, 2390);
  EXPECT_EQ(settings.peers->program, "etcd");
  ASSERT_EQ(settings.endpointNames().size(), 1u) << "this machine may ask itself for them";
  EXPECT_EQ(settings.endpointNames().front().toString(), "nodes.test.");
  const auto all = accepted("peers nodes.test\nexpect 5\npeers-port 7000\netcd-program /opt/etcd\ninsecure").peers;
  ASSERT_TRUE(all);
  EXPECT_EQ(std::tuple(all->expect, all->port, all->program, all->insecure), std::tuple(5, 7000, "/opt/etcd", true));

  EXPECT_TRUE(refused("peers nodes.test\nsecret s\ntls ca.pem", "tls is for an etcd of `endpoint`"));
  EXPECT_TRUE(refused("peers nodes.test\nsecret s\ncredentials a b", "credentials is for an etcd of `endpoint`"));
  EXPECT_TRUE(refused("peers", "Wrong argument count"));
  EXPECT_TRUE(refused("peers http://a:1\nsecret s", "not a host name, an address or a network: 'http://a:1'"));
  EXPECT_TRUE(refused("peers 10.0.0.0/8\nsecret s", "at most a /22"));
  EXPECT_TRUE(refused("expect 5", "expect is for machines that found a cluster; write: peers"));
  EXPECT_TRUE(refused("insecure", "insecure is for machines that found a cluster"));
  EXPECT_TRUE(refused("peers nodes.test\nsecret s\nexpect 0", "from 1 to 4096: '0'"));
  EXPECT_TRUE(refused("limit 5000\npeers nodes.test\nsecret s", "write: expect N, up to 4096"));
  EXPECT_TRUE(refused("peers nodes.test\nsecret s\npeers-port 65534", "from 1 to 65533: '65534'"));
}

TEST(PlanCluster, AClusterMovesFromTheStoreThatStandsFirst) {
  const std::string peers = "peers nodes.test\nsecret s\n";
  const std::string endpoint = "endpoint http://a:1\ncredentials a b\n";
  EXPECT_EQ(accepted(peers).movesTo(), nullptr);
  EXPECT_EQ(accepted(endpoint).movesTo(), nullptr);
  const auto to_etcd = accepted(peers + endpoint);
  EXPECT_EQ(std::string(to_etcd.movesTo()), "endpoint");
  EXPECT_EQ(to_etcd.endpoints, std::vector<std::string>{"http://a:1"});
  EXPECT_TRUE(to_etcd.startsAtPeers() && !to_etcd.endsAtPeers());
  const auto to_peers = accepted(endpoint + peers);
  EXPECT_EQ(std::string(to_peers.movesTo()), "peers");
  EXPECT_TRUE(!to_peers.startsAtPeers() && to_peers.endsAtPeers());
  EXPECT_FALSE(to_peers.isSameMember(to_etcd));

  using Step = directive::ClusterSettings::Step;
  EXPECT_EQ(accepted(peers).stepTo(to_etcd), Step::kAddSecond);
  EXPECT_EQ(accepted(endpoint).stepTo(to_peers), Step::kAddSecond);
  EXPECT_EQ(to_etcd.stepTo(accepted(endpoint)), Step::kKeepSecond);
  EXPECT_EQ(to_etcd.stepTo(accepted(peers)), Step::kKeepFirst);
  EXPECT_EQ(to_peers.stepTo(accepted(peers)), Step::kKeepSecond);
  EXPECT_EQ(accepted(endpoint).stepTo(to_etcd), Step::kNone) << "the names are not at peers";
  EXPECT_EQ(accepted(peers).stepTo(accepted(endpoint)), Step::kNone) << "both have to stand there meanwhile";
  EXPECT_EQ(to_etcd.stepTo(to_peers), Step::kNone);
  EXPECT_EQ(accepted(peers).stepTo(accepted("lease 30s\n" + peers + endpoint)), Step::kNone) << "more changes";
  EXPECT_EQ(to_etcd.stepTo(accepted("endpoint http://b:1\n")), Step::kNone) << "another store";
}

TEST(PlanCluster, PeersBeyondThisMachineNeedASecret) {
  EXPECT_TRUE(refused("peers nodes.test", "peers needs a secret"));
  EXPECT_TRUE(refused("peers 127.0.0.2 10.0.0.1\naddress 127.0.0.2", "peers needs a secret"));
  EXPECT_TRUE(refused("peers 127.0.0.2", "peers needs a secret")) << "its own address is seen by others";
  EXPECT_TRUE(accepted("peers 127.0.0.2 127.0.0.0/30 ::1\naddress 127.0.0.2").peers);
  EXPECT_TRUE(refused("peers nodes.test\nsecret s\ninsecure", "contradict each other"));
}

TEST(PlanCluster, StateIsOneDirectory) {
  EXPECT_EQ(accepted("").state_directory, "");
  EXPECT_EQ(accepted("state /var/lib/idetcd").state_directory, "/var/lib/idetcd");
  EXPECT_TRUE(refused("state", "Wrong argument count"));
  EXPECT_TRUE(refused("state a b", "Wrong argument count"));
  EXPECT_TRUE(refused("state \"\"", "needs a directory"));
}

TEST(PlanCluster, ServicesAreSeveral) {
  EXPECT_TRUE(accepted("").services.empty());
  const auto services = accepted("service http tcp 80\nservice DNS udp 53 weight 0").services;
  ASSERT_EQ(services.size(), 2u);
  EXPECT_EQ(toString(services[0]), "http tcp 80 weight 1");
  EXPECT_EQ(toString(services[1]), "dns udp 53 weight 0");
  EXPECT_TRUE(refused("service", "Wrong argument count"));
  EXPECT_TRUE(refused("service http tcp", "a service is NAME tcp|udp PORT [weight W]"));
  EXPECT_TRUE(refused("service http sctp 80", "'sctp' is neither tcp nor udp"));
  std::string many;
  for (int i = 0; i < 17; ++i) many += "service http tcp 80\n";
  EXPECT_TRUE(refused(many, "a node offers 16 services at most"));
}

TEST(PlanCluster, OnClaimIsAProgramAndItsArguments) {
  EXPECT_TRUE(accepted("").on_claim.empty());
  EXPECT_EQ(accepted("on-claim /bin/sh -c \"echo $IDETCD_NAME\"").on_claim,
            (std::vector<std::string>{"/bin/sh", "-c", "echo $IDETCD_NAME"}));
  EXPECT_TRUE(refused("on-claim", "Wrong argument count"));
  EXPECT_TRUE(refused("on-claim \"\"", "needs a program"));
}

TEST(PlanCluster, NoMessageQuotesAPassword) {
  for (const char* options : {"credentials hunter2", "credentials root hunter2 hunter2", "credential root hunter2",
                              "credentials root hunter2 { }", "endpoint http://root:hunter2@localhost:2379"}) {
    const auto plan =
        makePlan("Corefile", std::string(". {\n  idetcd {\n    pattern a{{.ID}}.\n    ") + options + "\n  }\n}\n", 53);
    ASSERT_FALSE(plan) << options;
    EXPECT_EQ(plan.error().message.find("hunter2"), std::string::npos) << plan.error().message;
  }
  const std::string secret = "0123456789abcdef0123456789abcdef";
  for (const std::string& cookies :
       {"{ secret " + secret + "0 }", "{ secret " + secret + " " + secret + " x" + secret + " " + secret + " }", secret,
        "{ secrets " + secret + " }"}) {
    const auto plan = makePlan("Corefile", ". {\n  cookies " + cookies + "\n}\n", 53);
    ASSERT_FALSE(plan) << cookies;
    EXPECT_EQ(plan.error().message.find(secret), std::string::npos) << plan.error().message;
  }
}

TEST(PlanCluster, SeveralAreToldApart) {
  EXPECT_TRUE(accepted("").only);
  const auto block = [](int port, const std::string& pattern) {
    return ".:" + std::to_string(port) + " {\n  idetcd {\n    pattern " + pattern + "\n  }\n}\n";
  };
  const auto several = makePlan("Corefile", block(1, "a{{.ID}}.") + block(2, "b{{.ID}}.") + block(3, "a{{.ID}}."), 53);
  ASSERT_TRUE(several) << several.error().message;
  for (const auto& one : several->blocks) EXPECT_FALSE(one.settings<directive::ClusterSettings>()->only);
  const auto shared = makePlan("Corefile", block(1, "a{{.ID}}.") + block(2, "a{{.ID}}."), 53);
  ASSERT_TRUE(shared) << shared.error().message;
  for (const auto& one : shared->blocks) EXPECT_TRUE(one.settings<directive::ClusterSettings>()->only);
}

TEST(PlanCluster, AddressesAndInterfacesMayBeOfFurtherNetworks) {
  const auto options = accepted("interface eth0\ninterface ib0 as fabric\naddress 10.0.0.1 fd00::1 as storage").address;
  EXPECT_EQ(options.interface_name, "eth0");
  ASSERT_EQ(options.networks.size(), 2u);
  EXPECT_EQ(options.networks[0], (node::NetworkOptions{.name = "fabric", .addresses = {}, .interface_name = "ib0"}));
  EXPECT_EQ(options.networks[1].name, "storage");
  EXPECT_EQ(options.networks[1].addresses.size(), 2u);
  EXPECT_EQ(accepted("interface as").address.interface_name, "as");
  EXPECT_TRUE(refused("interface eth0 as Fabric", "'Fabric' is no name of a network"));
  EXPECT_TRUE(refused("interface eth0 as a.b", "'a.b' is no name of a network"));
  EXPECT_TRUE(refused("interface eth0 eth1", "interface is NAME, or NAME as NETWORK"));
  EXPECT_TRUE(refused("interface eth0 as", "interface is NAME, or NAME as NETWORK"));
  EXPECT_TRUE(refused("interface ib0 as a\naddress 10.0.0.1 as a", "the network a has its addresses already"));
  EXPECT_TRUE(refused("address 10.0.0.1 10.0.0.2 as a", "more than one IPv4 address"));
  EXPECT_TRUE(refused("address as fabric", "not an IP address: 'as'"));
  EXPECT_TRUE(refused("address 192.0.2.1\ninterface eth0", "both an address and an interface"));
  std::string many;
  for (int i = 0; i < 9; ++i) many += "interface ib" + std::to_string(i) + " as n" + std::to_string(i) + "\n";
  EXPECT_TRUE(refused(many, "a node is in 8 further networks at most"));
}

}  // namespace
}  // namespace idetcd::app
