#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "etcd/client.h"

namespace idetcd::etcd {
namespace {

TEST(Endpoint, AcceptsWhatCanBeConnectedTo) {
  for (const char* endpoint : {
           "http://localhost:2379",
           "http://localhost:2379/",
           "HTTP://LocalHost:2379",
           "localhost:2379",
           "etcd-1.example.com:2379",
           "etcd-1.example.com.:2379",
           "my_etcd:1",
           "127.0.0.1:65535",
           "http://192.0.2.1:2379",
           "http://[::1]:2379",
           "[2001:db8::1]:2379/",
           "https://localhost:2379",
           "HTTPS://[::1]:2379/",
       }) {
    const auto result = Client::validateEndpoint(endpoint);
    EXPECT_TRUE(result) << endpoint << ": " << result.error().message;
  }
}

TEST(Endpoint, HasAHost) {
  EXPECT_EQ(Client::endpointHost("http://etcd.internal:2379"), "etcd.internal");
  EXPECT_EQ(Client::endpointHost("etcd.internal.:2379"), "etcd.internal.");
  EXPECT_EQ(Client::endpointHost("https://192.0.2.1:2379/"), "192.0.2.1");
  EXPECT_EQ(Client::endpointHost("[2001:db8::1]:2379"), "2001:db8::1");
}

TEST(Endpoint, RefusesTheRestAndSaysWhy) {
  const struct {
    const char* endpoint;
    const char* why;
  } cases[] = {
      {"", "host is missing"},
      {"http://", "host is missing"},
      {":2379", "host is missing"},
      {"localhost", "port is missing"},
      {"http://localhost", "port is missing"},
      {"localhost:", "port is missing"},
      {"[::1]", "port is missing"},
      {"localhost:0", "not a port"},
      {"localhost:65536", "not a port"},
      {"localhost:-1", "not a port"},
      {"localhost:+1", "not a port"},
      {"localhost:23x", "not a port"},
      {"localhost:2379 ", "not a port"},
      {"https://localhost", "port is missing"},
      {"https://", "host is missing"},
      {"https:localhost:2379", "in brackets"},
      {"unix:///run/etcd.sock", "unknown scheme 'unix'"},
      {"ftp://localhost:2379", "unknown scheme"},
      {"http://localhost:2379/v3", "expected http(s)://host:port"},
      {"http://localhost:2379//", "expected http(s)://host:port"},
      {"https://localhost:2379?x=1", "expected http(s)://host:port"},
      {"::1:2379", "in brackets"},
      {"2001:db8::1", "in brackets"},
      {"[::1:2379", "']' is missing"},
      {"[127.0.0.1]:2379", "not an IPv6 address"},
      {"[::1]x:2379", "port is missing"},
      {"[fe80::1%eth0]:2379", "not an IPv6 address"},
      {"1.2.3:2379", "not a host name"},
      {"1.2.3.999:2379", "not a host name"},
      {"a..b:2379", "not a host name"},
      {".:2379", "not a host name"},
      {"a b:2379", "not a host name"},
      {"b\xc3\xbc:2379", "not a host name"},
  };
  for (const auto& test : cases) {
    const auto result = Client::validateEndpoint(test.endpoint);
    ASSERT_FALSE(result) << test.endpoint;
    EXPECT_NE(result.error().message.find(test.why), std::string::npos)
        << test.endpoint << ": " << result.error().message;
    EXPECT_NE(result.error().message.find(test.endpoint), std::string::npos) << "it does not name the endpoint";
  }
  for (const char* with_user : {"http://user:hunter2@localhost:2379", "hunter2@localhost:2379", "ftp://a:hunter2@b@localhost:2379"}) {
    const auto result = Client::validateEndpoint(with_user);
    ASSERT_FALSE(result) << with_user;
    EXPECT_NE(result.error().message.find("endpoint '...@localhost:2379'"), std::string::npos) << result.error().message;
    EXPECT_EQ(result.error().message.find("hunter2"), std::string::npos) << result.error().message;
  }
  const std::string long_label(64, 'a');
  EXPECT_FALSE(Client::validateEndpoint(long_label + ":1"));
  const std::string nul("a\0b:1", 5);
  EXPECT_FALSE(Client::validateEndpoint(nul));
}

TEST(Options, TlsIsAllOrNothing) {
  const auto problem = [](std::vector<std::string> endpoints, bool tls) {
    Client::Options options;
    options.endpoints = std::move(endpoints);
    if (tls) options.tls = TlsFiles{};
    const auto valid = Client::validateOptions(options);
    return valid ? std::string() : valid.error().message;
  };
  EXPECT_EQ(problem({"http://a:1", "b:1"}, false), "");
  EXPECT_EQ(problem({"https://a:1", "https://b:1"}, false), "");
  EXPECT_EQ(problem({"https://a:1", "b:1"}, true), "");
  EXPECT_NE(problem({}, false).find("no endpoint"), std::string::npos);
  EXPECT_NE(problem({"https://a:1", "http://b:1"}, false).find("with and without TLS"), std::string::npos);
  EXPECT_NE(problem({"https://a:1", "b:1"}, false).find("with and without TLS"), std::string::npos);
  EXPECT_NE(problem({"http://a:1"}, true).find("'http://a:1' is without TLS"), std::string::npos);
  EXPECT_NE(problem({"https://a:1", "http://b:1"}, true).find("'http://b:1' is without TLS"), std::string::npos);
}

TEST(Options, HalvesAreRefused) {
  Client::Options options;
  options.endpoints = {"https://a:1"};
  options.tls = TlsFiles{.ca_file = {}, .certificate_file = "c.pem", .key_file = {}};
  EXPECT_FALSE(Client::validateOptions(options));
  options.tls = TlsFiles{.ca_file = {}, .certificate_file = {}, .key_file = "k.pem"};
  EXPECT_FALSE(Client::validateOptions(options));
  options.tls = TlsFiles{.ca_file = {}, .certificate_file = "c.pem", .key_file = "k.pem"};
  EXPECT_TRUE(Client::validateOptions(options));
  options.credentials = Credentials{"", "secret"};
  EXPECT_FALSE(Client::validateOptions(options));
  options.credentials = Credentials{"user", ""};
  EXPECT_TRUE(Client::validateOptions(options));
}

}  // namespace
}  // namespace idetcd::etcd
