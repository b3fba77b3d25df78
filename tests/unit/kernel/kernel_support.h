// Frames as they come in, and the program run on them (BPF_PROG_TEST_RUN), without an interface. Takes root, and a
// binary that has the program: what cannot be run is skipped, and says so.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <linux/bpf.h>
#include <memory>
#include <netinet/in.h>
#include <span>
#include <string_view>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "base/ip_address.h"
#include "dns/name.h"
#include "dns/wire.h"
#include "kernel/answer_feed.h"
#include "kernel/program.h"
#include "records/record_store.h"

namespace idetcd::kernel::test {

using Bytes = std::vector<uint8_t>;

inline dns::Name name(std::string_view text) { return dns::Name::parse(text).value(); }
inline IpAddress ip(std::string_view text) { return IpAddress::parse(text).value(); }

inline constexpr size_t kEthernet = 14;
inline constexpr size_t kUdp = 8;

// The ones' complement sum of 16-bit words (RFC 1071).
inline uint32_t sumOf(std::span<const uint8_t> bytes, uint32_t sum = 0) {
  for (size_t i = 0; i < bytes.size(); i += 2) {
    sum += static_cast<uint32_t>(bytes[i]) << 8;
    if (i + 1 < bytes.size()) sum += bytes[i + 1];
  }
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

struct Endpoints {
  IpAddress client = ip("127.0.0.1");
  IpAddress server = ip("127.0.0.1");
  uint16_t client_port = 40000;
  uint16_t server_port = 53;
};

inline uint32_t pseudoSum(const Endpoints& at, size_t udp_size) {
  uint32_t sum = sumOf({at.client.data(), at.client.size()});
  sum = sumOf({at.server.data(), at.server.size()}, sum);
  return sum + IPPROTO_UDP + static_cast<uint32_t>(udp_size);
}

// A frame with a UDP datagram from the client to the server, with its checksums.
inline Bytes frameOf(const Bytes& message, const Endpoints& at = {}) {
  const bool is_v4 = at.server.isV4();
  const size_t ip_size = is_v4 ? 20 : 40;
  const size_t udp_size = kUdp + message.size();
  Bytes frame(kEthernet + ip_size + kUdp);
  std::fill_n(frame.begin(), 6, 0x02);
  std::fill_n(frame.begin() + 6, 6, 0x04);
  dns::store16(&frame[12], is_v4 ? 0x0800 : 0x86dd);
  uint8_t* const header = &frame[kEthernet];
  if (is_v4) {
    header[0] = 0x45;
    dns::store16(header + 2, static_cast<uint16_t>(ip_size + udp_size));
    dns::store16(header + 4, 0x1234);
    header[8] = 17;
    header[9] = IPPROTO_UDP;
    std::copy_n(at.client.data(), 4, header + 12);
    std::copy_n(at.server.data(), 4, header + 16);
    dns::store16(header + 10, static_cast<uint16_t>(~sumOf({header, 20})));
  } else {
    header[0] = 0x60;
    dns::store16(header + 4, static_cast<uint16_t>(udp_size));
    header[6] = IPPROTO_UDP;
    header[7] = 17;
    std::copy_n(at.client.data(), 16, header + 8);
    std::copy_n(at.server.data(), 16, header + 24);
  }
  uint8_t* const udp = header + ip_size;
  dns::store16(udp, at.client_port);
  dns::store16(udp + 2, at.server_port);
  dns::store16(udp + 4, static_cast<uint16_t>(udp_size));
  frame.insert(frame.end(), message.begin(), message.end());
  const std::span<const uint8_t> datagram = std::span(frame).subspan(kEthernet + ip_size);
  const auto check = static_cast<uint16_t>(~sumOf(datagram, pseudoSum(at, udp_size)));
  dns::store16(&frame[kEthernet + ip_size + 6], check != 0 ? check : 0xffff);
  return frame;
}

// The message of a frame that frameOf() could have made; empty: it could not.
inline Bytes messageOf(const Bytes& frame, const Endpoints& at) {
  const bool is_v4 = at.server.isV4();
  const size_t ip_size = is_v4 ? 20 : 40;
  if (frame.size() < kEthernet + ip_size + kUdp) return {};
  const Bytes message(frame.begin() + static_cast<ptrdiff_t>(kEthernet + ip_size + kUdp), frame.end());
  Bytes expected = frameOf(message, at);
  const auto copy = [&](size_t offset, size_t size) { std::copy_n(&frame[offset], size, &expected[offset]); };
  if (is_v4) {
    copy(kEthernet + 4, 6);            // ID, fragments, TTL, protocol
    copy(kEthernet + 10, 2);           // checked by itself:
    copy(kEthernet + ip_size + 6, 2);  // none is allowed
    if (sumOf(std::span(frame).subspan(kEthernet, 20)) != 0xffff || frame[kEthernet + 9] != IPPROTO_UDP) return {};
    if (dns::load16(&frame[kEthernet + ip_size + 6]) != 0) return {};
  } else {
    copy(kEthernet + 7, 1);  // hop limit
  }
  std::copy_n(&frame[0], 12, &expected[0]);
  return expected == frame ? message : Bytes{};
}

class ProgramTest : public testing::Test {
 protected:
  static constexpr size_t kMaxNames = 64;

  void SetUp() override {
    if (!hasProgram()) GTEST_SKIP() << "XDP IS NOT TESTED: this binary was built without the program";
    auto attached = attach({.interfaces = {}, .mode = Mode::kAny, .max_names = kMaxNames});
    if (!attached && attached.error().code == ErrorCode::kPermissionDenied)
      GTEST_SKIP() << "XDP IS NOT TESTED: " << attached.error().message;
    ASSERT_TRUE(attached) << attached.error().message;
    program_ = std::move(*attached);
    maps().takeOver();
  }

  Maps& maps() { return *program_.maps; }

  // Has the server listen there, for zones[0].
  void listen(std::string_view address, uint8_t flags = kWhole, uint16_t port = 53, bool reverse = true) {
    ListenerKey key{};
    const IpAddress at = ip(address);
    if (at.isV4()) key.address[10] = key.address[11] = 0xff;
    std::copy_n(at.data(), at.size(), key.address + (16 - at.size()));
    key.interface = kLoopback;
    key.port = htons(port);
    Listener value{};
    value.zones[0] = value.reverse = {.zone = 0, .flags = flags, .meter = 0};
    value.zone_count = 1;
    value.has_reverse = reverse ? 1 : 0;
    std::fill_n(value.hardware_address, 6, 0x02);
    ASSERT_EQ(maps().listeners().put(key, value), PutOutcome::kDone);
  }

  struct Ran {
    uint32_t verdict;
    Bytes frame;
  };
  Ran run(const Bytes& frame) {
    Ran ran{.verdict = 0, .frame = Bytes(frame.size() + 256)};
    bpf_attr attributes;
    std::memset(&attributes, 0, sizeof(attributes));
    attributes.test.prog_fd = static_cast<uint32_t>(program_.program.get());
    attributes.test.data_in = reinterpret_cast<uint64_t>(frame.data());
    attributes.test.data_size_in = static_cast<uint32_t>(frame.size());
    attributes.test.data_out = reinterpret_cast<uint64_t>(ran.frame.data());
    attributes.test.data_size_out = static_cast<uint32_t>(ran.frame.size());
    attributes.test.repeat = 1;
    EXPECT_EQ(syscall(SYS_bpf, BPF_PROG_TEST_RUN, &attributes, sizeof(attributes)), 0) << std::strerror(errno);
    ran.verdict = attributes.test.retval;
    ran.frame.resize(attributes.test.data_size_out);
    return ran;
  }
  bool isAnswered(const Bytes& frame) { return run(frame).frame != frame; }
  // The response to `message`; empty: the program has passed it, and untouched.
  Bytes ask(const Bytes& message, const Endpoints& at = {}) {
    const Bytes frame = frameOf(message, at);
    const Ran ran = run(frame);
    EXPECT_EQ(ran.verdict, XDP_PASS);  // the test's frames come by the loopback interface: the response goes on there
    if (ran.frame == frame) return {};
    const Endpoints back{
        .client = at.server, .server = at.client, .client_port = at.server_port, .server_port = at.client_port};
    const Bytes response = messageOf(ran.frame, back);
    EXPECT_FALSE(response.empty()) << "its headers are wrong";
    EXPECT_TRUE(std::equal(&frame[0], &frame[kEthernet], &ran.frame[0])) << "it is to this machine as it was";
    return response;
  }

  Attachment program_;
};

// A plain query of class IN.
inline Bytes queryFor(const dns::Name& owner, uint16_t type, bool edns = false, uint16_t flags = dns::kFlagRd) {
  Bytes message(dns::kHeaderSize);
  dns::store16(&message[0], 0xbeef);
  dns::store16(&message[2], flags);
  dns::store16(&message[4], 1);
  message.insert(message.end(), owner.wire().begin(), owner.wire().end());
  const auto put = [&message](std::initializer_list<int> bytes) {
    for (const int byte : bytes) message.push_back(static_cast<uint8_t>(byte));
  };
  put({type >> 8, type & 0xff, 0, 1});
  if (edns) {
    dns::store16(&message[10], 1);
    put({0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0});
  }
  return message;
}
inline Bytes queryFor(std::string_view owner, uint16_t type, bool edns = false) {
  return queryFor(name(owner), type, edns);
}

}  // namespace idetcd::kernel::test
