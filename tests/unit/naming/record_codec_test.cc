#include "naming/record_codec.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace idetcd::naming {
namespace {

IpAddress ip(std::string_view text) { return IpAddress::parse(text).value(); }

// --- values ---

TEST(EncodeRecord, WritesTheGoPluginsBytesAndTheId) {
  NodeRecord record{ip("192.0.2.2"), ip("fd00::2"), "53", {}};
  EXPECT_EQ(encodeRecord(record), R"({"ipv4":"192.0.2.2","ipv6":"fd00::2","port":"53"})");
  record.id = "6c3e1f0a-0000-4000-8000-000000000000";
  EXPECT_EQ(encodeRecord(record),
            R"({"ipv4":"192.0.2.2","ipv6":"fd00::2","port":"53","id":"6c3e1f0a-0000-4000-8000-000000000000"})");
}

TEST(EncodeRecord, ServicesComeLastAndComeBack) {
  NodeRecord record{.ipv4 = IpAddress::parse("192.0.2.2"), .ipv6 = {}, .port = "53", .id = "x", .slot = 1};
  record.services = {{.name = "http", .protocol = records::Service::Protocol::kTcp, .port = 8080, .weight = 1},
                     {.name = "x", .protocol = records::Service::Protocol::kUdp, .port = 9, .weight = 3}};
  const std::string value = encodeRecord(record);
  EXPECT_EQ(
      value,
      R"({"ipv4":"192.0.2.2","port":"53","id":"x","slot":1,"services":["http tcp 8080 weight 1","x udp 9 weight 3"]})");
  EXPECT_EQ(decodeRecord(value), record);
}

TEST(DecodeRecord, WhatIsNoServiceIsPassedOver) {
  const auto names = [](std::string_view value) {
    std::string all;
    const NodeRecord record = decodeRecord(value).value();
    for (const auto& service : record.services) all += service.name + " ";
    return all;
  };
  EXPECT_EQ(names(R"({"services":["a tcp 1",7,null,["c tcp 3"],{"x":"d tcp 4"},"bad","b udp 2"]})"), "a b ");
  EXPECT_EQ(names(R"({"services":"a tcp 1","x":["b tcp 2"]})"), "");
  EXPECT_EQ(names(R"({"services":["a tcp 1"],"Services":["b tcp 1"]})"), "b ") << "the last of two wins";
  EXPECT_EQ(names(R"({"services":["a tcp 1"],"services":null})"), "");
  std::string many = R"({"services":[)";
  for (int i = 0; i < 100; ++i) many += R"("a tcp 1",)";
  many.back() = ']';
  EXPECT_EQ(decodeRecord(many + "}").value().services.size(), records::kMaxServices);
}

TEST(RecordCodec, ThePlaceIsOneOrNone) {
  NodeRecord record;
  record.id = "x";
  record.place = "zone-1/rack_2/s.3:4";
  EXPECT_EQ(encodeRecord(record), R"({"id":"x","topology":"zone-1/rack_2/s.3:4"})");
  EXPECT_EQ(decodeRecord(encodeRecord(record)).value(), record);
  const auto place = [](std::string_view value) { return decodeRecord(value).value().place; };
  EXPECT_EQ(place(R"({"topology":"a"})"), "a");
  EXPECT_EQ(place(R"({"topology":"a","Topology":"b"})"), "b") << "the last of two wins";
  for (const std::string_view bad : {R"({"topology":"/a"})", R"({"topology":"a/"})", R"({"topology":"a//b"})", R"({"topology":"a b"})",
                                     R"({"topology":""})", R"({"topology":7})", R"({"topology":{"a":"b"}})", R"({"topology":"a","topology":null})"})
    EXPECT_EQ(place(bad), "") << bad;
  EXPECT_EQ(place(fmt::format(R"({{"topology":"{}"}})", std::string(128, 'a'))).size(), 128u);
  EXPECT_EQ(place(fmt::format(R"({{"topology":"{}"}})", std::string(129, 'a'))), "");
}

TEST(EncodeRecord, LeavesOutWhatIsAbsent) {
  EXPECT_EQ(encodeRecord({}), "{}");
  EXPECT_EQ(encodeRecord({ip("192.0.2.2"), {}, {}, {}}), R"({"ipv4":"192.0.2.2"})");
  EXPECT_EQ(encodeRecord({{}, ip("fd00::2"), "53", {}}), R"({"ipv6":"fd00::2","port":"53"})");
}

TEST(EncodeRecord, AnyTextSurvives) {
  const NodeRecord record{{}, {}, "a\"\\\n", "é"};
  EXPECT_EQ(decodeRecord(encodeRecord(record)).value(), record);
}

struct ValueCase {
  std::string value;
  NodeRecord record;
};

TEST(DecodeRecord, AcceptsWhatGoAccepts) {
  const NodeRecord v4{ip("192.0.2.2"), {}, {}, {}};
  const std::vector<ValueCase> cases = {
      {R"({"ipv4":"192.0.2.2","ipv6":"fd00::2","port":"53"})", {ip("192.0.2.2"), ip("fd00::2"), "53", {}}},
      {R"({"ipv4":"192.0.2.2","ipv6":"fd00::2","port":"53","id":"x"})", {ip("192.0.2.2"), ip("fd00::2"), "53", "x"}},
      {"\n\t {  \"port\" : \"53\" , \"ipv4\" : \"192.0.2.2\" } \n", {ip("192.0.2.2"), {}, "53", {}}},
      {"{}", {}},
      {R"({"ipv4":"","ipv6":""})", {}},
      {R"({"ipv4":"192.0.2.2","ipv6":null,"port":null})", v4},
      {R"({"IPv4":"192.0.2.2"})", v4},
      {R"({"ipv4":"192.0.2.9","ipv4":"192.0.2.2"})", v4},
      {R"({"ipv4":"192.0.2.2","more":[1,2.5,true,null,{"ipv4":7,"ipv6":["x"]}],"ttl":60,"x":{}})", v4},
      {R"({"outer":{"ipv4":"192.0.2.9"},"ipv4":"192.0.2.2"})", v4},
      {R"({"ipv4":"\u0031\u00392.0.2.2"})", v4},
  };
  for (const ValueCase& c : cases) {
    const Result<NodeRecord> record = decodeRecord(c.value);
    ASSERT_TRUE(record) << c.value << ": " << record.error().message;
    EXPECT_EQ(*record, c.record) << c.value;
  }
}

TEST(DecodeRecord, RefusesEverythingElseWithAReason) {
  const std::vector<std::string> cases = {
      "",
      " ",
      "x",
      "null",
      "true",
      "7",
      "1.5",
      R"("192.0.2.2")",
      "[]",
      R"([{"ipv4":"192.0.2.2"}])",
      "{",
      R"({"ipv4":"192.0.2.2")",
      R"({"ipv4":"192.0.2.2"}x)",
      R"({"ipv4":"192.0.2.2"}{})",
      R"({"ipv4":"192.0.2.2",})",
      R"({'ipv4':'192.0.2.2'})",
      R"({"ipv4":1})",
      R"({"ipv4":true})",
      R"({"ipv4":["192.0.2.2"]})",
      R"({"ipv4":{"x":"192.0.2.2"}})",
      R"({"port":53})",
      R"({"id":{}})",
      R"({"ipv4":"fd00::2"})",
      R"({"ipv6":"192.0.2.2"})",
      R"({"ipv4":"192.0.2"})",
      R"({"ipv4":"192.0.2.256"})",
      R"({"ipv4":"192.0.2.2 "})",
      R"({"ipv4":"192.0.2.2/24"})",
      R"({"ipv4":"192.0.2.2:53"})",
      R"({"ipv6":"fe80::1%eth0"})",
      R"({"ipv6":"[fd00::2]"})",
      R"({"ipv4":"192.0.2.2","ipv6":"nonsense"})",
      std::string("{\"ipv4\":\"192.0.2.2\"}\0", 21),
      std::string("{\"ipv4\":\"192.0.2.2\"}\0garbage", 28),
      std::string("\0", 1),
      "{\"ipv4\":\"\xff\"}",
      "{\"x\":\"\xc3\x28\"}",
      "{\"x\":\"a\nb\"}",
      R"({"x":"\ud800"})",
  };
  for (const std::string& value : cases) {
    const Result<NodeRecord> record = decodeRecord(value);
    ASSERT_FALSE(record) << value;
    EXPECT_FALSE(record.error().message.empty()) << value;
  }
}

TEST(DecodeRecord, SizeIsBounded) {
  const std::string head = R"({"ipv4":"192.0.2.2","x":")";
  const std::string largest = head + std::string(kMaxValueBytes - head.size() - 2, 'a') + "\"}";
  ASSERT_EQ(largest.size(), kMaxValueBytes);
  EXPECT_TRUE(decodeRecord(largest));
  EXPECT_FALSE(decodeRecord(largest + " "));
  EXPECT_FALSE(decodeRecord(std::string(1'500'000, '[')));
}

TEST(DecodeRecord, DeepNestingDoesNoHarm) {
  constexpr size_t kDepth = 1900;
  const std::string deep = R"({"x":)" + std::string(kDepth, '[') + std::string(kDepth, ']') + R"(,"ipv4":"192.0.2.2"})";
  EXPECT_EQ(decodeRecord(deep).value().ipv4, ip("192.0.2.2"));
  EXPECT_FALSE(decodeRecord(R"({"x":)" + std::string(kMaxValueBytes - 5, '[')));
  std::string objects;
  for (int i = 0; i < 800; ++i) objects += R"({"a":)";
  EXPECT_FALSE(decodeRecord(objects));
}

// --- keys ---

TEST(DecodeKey, AcceptsCanonicalNames) {
  const std::string longest_label(63, 'a');
  const std::string longest_name =
      longest_label + "." + longest_label + "." + longest_label + "." + std::string(61, 'b') + ".";
  ASSERT_EQ(longest_name.size(), 254u);
  for (const std::string& key : {std::string("worker1.tf.local."), std::string("a."), std::string("0.x."),
                                 std::string("1-2_3.tf.local."), longest_label + ".x.", longest_name}) {
    const Result<dns::Name> name = decodeKey(key);
    ASSERT_TRUE(name) << key << ": " << name.error().message;
    EXPECT_EQ(name->toString(), key);
  }
}

TEST(DecodeKey, RefusesEverythingElseWithAReason) {
  const std::string label(63, 'a');
  const std::vector<std::string> cases = {
      "",
      ".",
      "worker1.tf.local",
      "worker1..tf.local.",
      ".worker1.",
      "worker1.tf.local..",
      "Worker1.tf.local.",
      "worker 1.tf.local.",
      "worker\\1.tf.local.",
      "worker\\049.tf.local.",
      "m\xc3\xbcnchen.tf.local.",
      "*.tf.local.",
      "a/b.tf.local.",
      "/idetcd/queue/x/y.",
      std::string("a\0b.tf.local.", 13),
      std::string("a.tf.local.\0", 12),
      "a\n.tf.local.",
      std::string(64, 'a') + ".x.",
      label + "." + label + "." + label + "." + std::string(62, 'b') + ".",
      std::string(1'000'000, 'a') + ".",
  };
  for (const std::string& key : cases) {
    const Result<dns::Name> name = decodeKey(key);
    ASSERT_FALSE(name) << key;
    EXPECT_FALSE(name.error().message.empty()) << key;
  }
  EXPECT_NE(decodeKey("Worker1.tf.local.").error().message.find("lower case"), std::string::npos);
}

TEST(DecodeRecord, ATokenThatIsNoneCountsAsNone) {
  EXPECT_EQ(encodeRecord({{}, {}, {}, "me", 4711}), R"({"id":"me","token":4711})");
  EXPECT_EQ(decodeRecord(R"({"id":"me","token":4711})")->token, 4711);
  EXPECT_EQ(encodeRecord({{}, {}, {}, "me", 4711, 12}), R"({"id":"me","token":4711,"slot":12})");
  EXPECT_EQ(*decodeRecord(R"({"slot":7,"id":"me","token":4711,"SLOT":12})"), (NodeRecord{{}, {}, {}, "me", 4711, 12}));
  EXPECT_EQ(decodeRecord(R"({"slot":12,"slot":"1"})")->slot, 0);
  EXPECT_EQ(decodeRecord(R"({"Token":9007199254740991})")->token, kMaxToken);
  for (const char* none :
       {R"({"token":9007199254740992})", R"({"token":-1})", R"({"token":"7"})", R"({"token":7.5})", R"({"token":null})",
        R"({"token":[7]})", R"({"a":{"token":7}})", R"({"token":7,"token":{}})"}) {
    const Result<NodeRecord> record = decodeRecord(none);
    ASSERT_TRUE(record) << none;
    EXPECT_EQ(record->token, 0) << none;
  }
}

TEST(RecordCodec, NetworksAreReadAndWhatIsNoneIsLeftOut) {
  NodeRecord record;
  record.networks = {{.name = "fabric", .addresses = {IpAddress::parse("10.0.0.1"), IpAddress::parse("fd00::1")}},
                     {.name = "storage", .addresses = {IpAddress::parse("10.1.0.1"), {}}}};
  const std::string value = encodeRecord(record);
  EXPECT_EQ(value, R"({"networks":["fabric 10.0.0.1 fd00::1","storage 10.1.0.1"]})");
  EXPECT_EQ(decodeRecord(value).value(), record);
  record.networks = {{.name = "fabric", .addresses = {}}};
  EXPECT_EQ(encodeRecord(record), "{}") << "the machine has none there";
  const auto names = [](const std::string& text) {
    std::string all;
    const NodeRecord decoded = decodeRecord(text).value();
    for (const records::Network& network : decoded.networks) all += toString(network) + ";";
    return all;
  };
  EXPECT_EQ(names(R"({"networks":["a 10.0.0.1",7,"b","C 10.0.0.2",["d 10.0.0.3"],"a 10.0.0.4","e fd00::5"]})"),
            "a 10.0.0.1;e fd00::5;");
  EXPECT_EQ(names(R"({"networks":["a 10.0.0.1"],"networks":null})"), "");
  std::string many = R"({"networks":[)";
  for (int i = 0; i < 20; ++i) many += fmt::format(R"({}"n{} 10.0.0.1")", i > 0 ? "," : "", i);
  EXPECT_EQ(decodeRecord(many + "]}").value().networks.size(), records::kMaxNetworks);
}

}  // namespace
}  // namespace idetcd::naming
