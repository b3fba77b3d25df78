#include "records/member_data.h"

#include <gtest/gtest.h>

namespace idetcd::records {
namespace {

constexpr const char* kUuid = "6c3e0f1a-0000-4000-8000-0123456789ab";

Result<Service> parse(const std::vector<std::string>& words) { return parseService(words); }

TEST(Service, IsReadAsItIsWritten) {
  const auto plain = parse({"HTTP", "tcp", "8080"});
  ASSERT_TRUE(plain);
  EXPECT_EQ(*plain, (Service{.name = "http", .protocol = Service::Protocol::kTcp, .port = 8080, .weight = 1}));
  EXPECT_EQ(toString(*plain), "http tcp 8080 weight 1");
  const auto heavy = parse({"dns-over-x", "udp", "65535", "weight", "0"});
  ASSERT_TRUE(heavy);
  EXPECT_EQ(toString(*heavy), "dns-over-x udp 65535 weight 0");
}

TEST(Service, WhatIsNoneIsRefusedWithAReason) {
  const auto why = [](const std::vector<std::string>& words) {
    const auto service = parse(words);
    return service ? "" : service.error().message;
  };
  EXPECT_EQ(why({"http", "tcp"}), "a service is NAME tcp|udp PORT [weight W]");
  EXPECT_EQ(why({"http", "tcp", "1", "weight"}), "a service is NAME tcp|udp PORT [weight W]");
  EXPECT_EQ(why({"_http", "tcp", "1"}), "'_http' is no name of a service: 1 to 62 letters, digits and '-'");
  for (const std::string name : {"", "-a", "a-", "a.b", "é"}) EXPECT_NE(why({name, "tcp", "1"}), "") << name;
  EXPECT_EQ(why({std::string(62, 'a'), "tcp", "1"}), "");
  EXPECT_NE(why({std::string(63, 'a'), "tcp", "1"}), "");
  EXPECT_EQ(why({"http", "sctp", "1"}), "'sctp' is neither tcp nor udp");
  for (const std::string port : {"0", "65536", "-1", "x", ""}) EXPECT_NE(why({"http", "tcp", port}), "") << port;
  EXPECT_EQ(why({"http", "tcp", "1", "heavy", "2"}), "'heavy 2' is no weight: write weight W, from 0 to 65535");
  EXPECT_NE(why({"http", "tcp", "1", "weight", "65536"}), "");
}

std::string text(const std::vector<uint8_t>& data, int64_t generation = 0) {
  std::array<uint8_t, MemberView::kMaxTextSize> to;
  const size_t size = MemberView(data).writeText(generation, to);
  return {to.begin(), to.begin() + static_cast<ptrdiff_t>(size)};
}

TEST(MemberData, SaysWhoAndWhat) {
  const std::vector<Service> services{*parse({"http", "tcp", "80", "weight", "3"}), *parse({"x", "udp", "9"})};
  const auto data = memberData(kUuid, 4711, services);
  EXPECT_EQ(text(data), std::string("\x29uuid=") + kUuid + "\x0atoken=4711");
  EXPECT_EQ(text(data, 4712), std::string("\x29uuid=") + kUuid + "\x0atoken=4711\x0fgeneration=4712");
  std::vector<std::string> seen;
  MemberView(data).visitServices([&seen](const MemberView::ServiceView& service) {
    seen.push_back(fmt::format("{} {} {} {}", service.name, service.protocol, service.port, service.weight));
  });
  EXPECT_EQ(seen, (std::vector<std::string>{"http 6 80 3", "x 17 9 1"}));
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(text(memberData(kUuid, kLargest, {}), kLargest).size(), 42u + 26u + 31u);
}

TEST(MemberData, WhoHasNoUuidIsNoMember) {
  EXPECT_TRUE(memberData("", 1, {}).empty());
  EXPECT_TRUE(memberData("released", 1, {}).empty());
  EXPECT_TRUE(memberData("6c3e0f1a-0000-4000-8000-0123456789aX", 1, {}).empty());
  EXPECT_TRUE(memberData("6c3e0f1a00000-4000-8000-0123456789ab", 1, {}).empty());
}

TEST(MemberData, ThatIsCutOffAnywhereIsReadSafely) {
  const std::vector<Service> services{*parse({"http", "tcp", "80"})};
  const auto data = memberData(kUuid, 1, services);
  for (size_t size = 0; size < data.size(); ++size) {
    const std::vector<uint8_t> cut(data.begin(), data.begin() + static_cast<ptrdiff_t>(size));
    size_t seen = 0;
    MemberView(cut).visitServices([&seen](const MemberView::ServiceView&) { ++seen; });
    EXPECT_EQ(seen, 0u) << size;
    EXPECT_EQ(MemberView(cut).isValid(), size == 24) << size;
    EXPECT_EQ(text(cut).empty(), size < 24) << size;
  }
}

TEST(MemberData, WhatNobodyMakesIsNotValid) {
  const std::vector<Service> services{*parse({"http", "tcp", "80"})};
  const auto data = memberData(kUuid, 1, services);
  EXPECT_TRUE(MemberView(data).isValid());
  const auto changed = [&data](size_t at, uint8_t value) {
    auto bytes = data;
    bytes[at] = value;
    return bytes;
  };
  EXPECT_FALSE(MemberView(changed(24, 7)).isValid()) << "neither TCP nor UDP";
  EXPECT_FALSE(MemberView(changed(29, 3)).isValid()) << "a rest";
  EXPECT_FALSE(MemberView(changed(30, 'H')).isValid());
  auto long_name = data;
  long_name[29] = 80;
  long_name.resize(30 + 80, 'a');
  EXPECT_FALSE(MemberView(long_name).isValid());
  auto many = data;
  for (int i = 0; i < 16; ++i) many.insert(many.end(), data.begin() + 24, data.end());
  EXPECT_FALSE(MemberView(many).isValid());
}

TEST(MemberData, SaysInWhichNetworksItIs) {
  const std::vector<Service> services{*parse({"http", "tcp", "80"})};
  const auto networkOf = [](const std::vector<std::string>& words) { return parseNetwork(words).value(); };
  const std::vector<Network> networks{networkOf({"fabric", "fd00::1", "10.0.0.1"}), networkOf({"storage", "fd00::2"})};
  const auto data = memberData(kUuid, 1, services, networks);
  EXPECT_TRUE(MemberView(data).isValid());
  std::vector<std::string> seen;
  MemberView(data).visitServices([&seen](const MemberView::ServiceView& service) { seen.emplace_back(service.name); });
  MemberView(data).visitNetworks([&seen](const MemberView::NetworkView& network) {
    seen.push_back(toString(Network{std::string(network.name), network.addresses}));
  });
  EXPECT_EQ(seen, (std::vector<std::string>{"http", "fabric 10.0.0.1 fd00::1", "storage fd00::2"}));
  const size_t first = memberData(kUuid, 1, services).size();
  const size_t second = memberData(kUuid, 1, services, {networks.data(), 1}).size();
  for (size_t size = first; size < data.size(); ++size) {
    const std::vector<uint8_t> cut(data.begin(), data.begin() + static_cast<ptrdiff_t>(size));
    size_t count = 0;
    MemberView(cut).visitNetworks([&count](const MemberView::NetworkView&) { ++count; });
    EXPECT_EQ(count, size < second ? 0u : 1u) << size;
    EXPECT_EQ(MemberView(cut).isValid(), size == first || size == second) << size;
  }
  auto upper_case = data;
  upper_case[first + 3] = 'F';
  EXPECT_FALSE(MemberView(upper_case).isValid());
}

TEST(Network, IsReadAsItIsWritten) {
  const auto read = [](const std::vector<std::string>& words) {
    const auto network = parseNetwork(words);
    return network ? toString(*network) : "-";
  };
  EXPECT_EQ(read({"fabric", "fd00::1", "10.0.0.1"}), "fabric 10.0.0.1 fd00::1");
  EXPECT_EQ(read({"fabric", "10.0.0.1", "10.0.0.2"}), "-");
  EXPECT_EQ(read({"fabric", "x"}), "-");
  for (const std::string label : {"", "-a", "a-", "a.b", "A", "_a"}) EXPECT_EQ(read({label, "10.0.0.1"}), "-") << label;
}

}  // namespace
}  // namespace idetcd::records
