#include "skydns/service.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace idetcd::skydns {
namespace {

Result<Service> parsed(std::string_view value) { return parseService("/test/example/a", value); }

std::string whyNot(std::string_view value) {
  const auto service = parsed(value);
  return service ? "" : service.error().message;
}

TEST(Service, Fields) {
  const auto service = parsed(
      R"({"host":"192.0.2.1","port":8080,"priority":20,"weight":50,"text":"t","mail":true,"ttl":60,"targetstrip":2,"group":"g"})");
  ASSERT_TRUE(service);
  EXPECT_EQ(service->key, "/test/example/a");
  EXPECT_EQ(service->address, IpAddress::parse("192.0.2.1"));
  EXPECT_TRUE(service->target.empty());
  EXPECT_EQ(service->port, 8080);
  EXPECT_EQ(service->priority, 20);
  EXPECT_EQ(service->weight, 50);
  EXPECT_EQ(service->text, "t");
  EXPECT_EQ(service->group, "g");
  EXPECT_TRUE(service->mail);
  EXPECT_EQ(service->ttl_seconds, 60u);
  EXPECT_EQ(service->target_strip, 2);
}

TEST(Service, Defaults) {
  const auto service = parsed(R"({"priority":0,"weight":0,"ttl":0,"host":null,"unknown":[1,{}]})");
  ASSERT_TRUE(service);
  EXPECT_FALSE(service->hasHost());
  EXPECT_EQ(service->priority, 10);
  EXPECT_EQ(service->weight, 100);
  EXPECT_EQ(service->ttl(), kDefaultTtl);
}

TEST(Service, Hosts) {
  EXPECT_EQ(parsed(R"({"host":"::ffff:192.0.2.1"})")->address, IpAddress::parse("192.0.2.1"));
  EXPECT_EQ(parsed(R"({"host":"2001:db8::1"})")->address, IpAddress::parse("2001:db8::1"));
  EXPECT_EQ(parsed(R"({"host":"Web.Example"})")->target, std::string("\3web\7example\0", 13));
  EXPECT_EQ(parsed(R"({"host":"web.example."})")->target, std::string("\3web\7example\0", 13));
  EXPECT_EQ(parsed(R"({"host":"192.0.2.256"})")->target, std::string("\3" "192\1" "0\1" "2\3" "256\0", 13)) << "a name";
}

TEST(Service, FieldsInAnyCaseAsGoReadsThem) { EXPECT_EQ(parsed(R"({"Host":"192.0.2.1","TTL":7})")->ttl(), 7u); }

TEST(Service, ValuesThatAreNone) {
  EXPECT_EQ(whyNot(""), "the value is no JSON object");
  EXPECT_EQ(whyNot("[]"), "the value is no JSON object");
  EXPECT_EQ(whyNot(R"({"host":1})"), "\"host\" is no text");
  EXPECT_EQ(whyNot(R"({"ttl":"60"})"), "\"ttl\" is no whole number");
  EXPECT_EQ(whyNot(R"({"ttl":-1})"), "\"ttl\" is out of range");
  EXPECT_EQ(whyNot(R"({"port":1.5})"), "\"port\" is no whole number");
  EXPECT_EQ(whyNot(R"({"weight":18446744073709551615})"), "\"weight\" is out of range");
  EXPECT_EQ(whyNot(R"({"mail":"yes"})"), "\"mail\" is neither true nor false");
  EXPECT_NE(whyNot(R"({"host":"a..b"})"), "");
  EXPECT_EQ(whyNot("{\"text\":\"" + std::string(60'000, 'x') + "\"}"), "the value has more than 60000 bytes");
  EXPECT_EQ(whyNot(std::string(50'000, '[')), "the value is no JSON object") << "and nothing overflows";
  EXPECT_FALSE(parseService("/test//a", "{}"));
  EXPECT_FALSE(parseService("/test/" + std::string(64, 'x'), "{}"));
}

TEST(Service, ALeaseBoundsTheTtl) {
  auto service = parsed(R"({"host":"192.0.2.1"})");
  const auto lease = std::make_shared<LeaseTtl>();
  lease->seconds = 30;
  service->lease = lease;
  EXPECT_EQ(service->ttl(), 30u);
  service->ttl_seconds = 10;
  EXPECT_EQ(service->ttl(), 10u);
  service->ttl_seconds = 100;
  EXPECT_EQ(service->ttl(), 30u);
}

TEST(Service, KeysAndNames) {
  const auto name = dns::Name::parse("a.web.example.test.").value();
  EXPECT_EQ(keyOf(name.wire()), "/test/example/web/a");
  EXPECT_EQ(nameOf("/test/example/web/a"), name);
  EXPECT_EQ(nameOf("/test/example/web/a/"), name) << "a folder of etcd 2";
  EXPECT_EQ(keyOf(dns::Name().wire()), "");
  EXPECT_EQ(keyOf(dns::Name::parse("a/b.test.").value().wire()), std::nullopt);
  EXPECT_EQ(nameOf("test"), std::nullopt);
  EXPECT_EQ(nameOf("/test/example//a"), std::nullopt);
  std::string long_key;
  for (int i = 0; i < 5; ++i) long_key += "/" + std::string(60, 'a');
  EXPECT_EQ(nameOf(long_key), std::nullopt);
}

}  // namespace
}  // namespace idetcd::skydns
