// What a member of a cluster says of itself besides its addresses: who it is, the services that it offers, and its
// addresses in further networks. One record of its entry, of kMemberType. Any thread.
//
//   RDATA: UUID (16) token (8), then for each service: protocol (1) port (2) weight (2) size (1) name
//          then for each network: 0 (1) families (1: IPv4, 2: IPv6) size (1) name, and 4 and 16 bytes of addresses
#pragma once

#include "base/result.h"
#include "dns/name.h"
#include "records/rrset.h"

namespace idetcd::records {

struct Service {
  enum class Protocol : uint8_t { kTcp = 6, kUdp = 17 };  // as IANA numbers them
  std::string name;                                       // lower case, without the '_' (RFC 2782)
  Protocol protocol = Protocol::kTcp;
  uint16_t port = 0;
  uint16_t weight = 1;  // RFC 2782
  bool operator==(const Service&) const = default;
};
inline constexpr size_t kMaxServices = 16;     // of one member
inline constexpr size_t kMaxServiceName = 62;  // with its '_' it is a label

// A network in which a member has addresses besides those of its name.
struct Network {
  std::string name;  // a label: lower case
  HostAddresses addresses;
  bool operator==(const Network&) const = default;
};
inline constexpr size_t kMaxNetworks = 8;  // of one member
inline constexpr size_t kMaxNetworkName = 63;
// 1 to kMaxNetworkName letters, digits and '-', which is at neither end; lower case.
bool isNetworkName(std::string_view name);

// The name of `member` in a network: the label stands between the member's own labels and the zone. None: it is not in
// the zone, or would be too long. REQUIRES: isNetworkName().
std::optional<dns::Name> nameInNetwork(const dns::Name& member, const dns::Name& zone, std::string_view network);

// All addresses of a member: those of its name, and of each network in the order in which they are configured.
struct MemberAddresses : HostAddresses {
  std::vector<Network> networks{};
  bool operator==(const MemberAddresses&) const = default;
};

// `NAME tcp|udp PORT [weight W]`, as an option of the Corefile and a member's value have it.
Result<Service> parseService(std::span<const std::string> words);
std::string toString(const Service& service);

// `NAME IP [IP]`, as a member's value has it: one address of a family at most.
std::optional<Network> parseNetwork(std::span<const std::string> words);
std::string toString(const Network& network);

// `uuid`: 36 characters in their usual form; empty data if it is something else. REQUIRES: at most kMaxServices, and
// kMaxNetworks, whose names are such.
std::vector<uint8_t> memberData(std::string_view uuid, int64_t token, std::span<const Service> services,
                                std::span<const Network> networks = {});

// A view of such data, whole or cut off.
class MemberView {
 public:
  explicit MemberView(Rdata data) : data_(data) {}

  struct ServiceView {
    uint8_t protocol;
    uint16_t port;
    uint16_t weight;
    std::string_view name;
  };
  template <typename Visit>
  void visitServices(Visit visit) const {
    for (Rdata rest = items(); rest.size() > kServiceSize && rest[0] != kIsNetwork;) {
      const size_t size = rest[5];
      if (rest.size() < kServiceSize + size) return;
      visit(ServiceView{rest[0],
                        dns::load16(&rest[1]),
                        dns::load16(&rest[3]),
                        {reinterpret_cast<const char*>(&rest[kServiceSize]), size}});
      rest = rest.subspan(kServiceSize + size);
    }
  }

  struct NetworkView {
    std::string_view name;
    HostAddresses addresses;
  };
  template <typename Visit>
  void visitNetworks(Visit visit) const {
    Rdata rest = items();
    visitServices([&rest](const ServiceView& service) { rest = rest.subspan(kServiceSize + service.name.size()); });
    while (rest.size() > kNetworkSize && rest[0] == kIsNetwork) {
      const size_t name_end = kNetworkSize + rest[2];
      const bool has_ipv4 = (rest[1] & kHasIpv4) != 0;
      const size_t ipv6_begin = name_end + (has_ipv4 ? 4 : 0);
      const bool has_ipv6 = (rest[1] & kHasIpv6) != 0;
      const size_t end = ipv6_begin + (has_ipv6 ? 16 : 0);
      if (rest.size() < end) return;
      NetworkView network{.name = {reinterpret_cast<const char*>(&rest[kNetworkSize]), rest[2]}, .addresses = {}};
      if (has_ipv4) network.addresses.ipv4 = IpAddress::v4(bytesAt<4>(rest, name_end));
      if (has_ipv6) network.addresses.ipv6 = IpAddress::v6(bytesAt<16>(rest, ipv6_begin));
      visit(network);
      rest = rest.subspan(end);
    }
  }

  // As memberData() makes it. What was read from a file has to be asked.
  bool isValid() const;

  // RDATA of TXT: `uuid=…`, `token=…` and, if it is known, `generation=…`, of the cluster's membership. Returns its size.
  static constexpr size_t kMaxTextSize = 1 + 5 + 36 + 1 + 6 + 20 + 1 + 11 + 20;
  // `generation`: 0: not known.
  size_t writeText(int64_t generation, std::array<uint8_t, kMaxTextSize>& to) const;

 private:
  friend std::vector<uint8_t> memberData(std::string_view, int64_t, std::span<const Service>,
                                         std::span<const Network>);
  static constexpr size_t kUuidSize = 16;
  static constexpr size_t kHeadSize = kUuidSize + 8;
  static constexpr size_t kServiceSize = 6;  // without its name
  static constexpr size_t kNetworkSize = 3;  // without its name and addresses
  static constexpr uint8_t kIsNetwork = 0;   // in the place of a service's protocol
  static constexpr uint8_t kHasIpv4 = 1;
  static constexpr uint8_t kHasIpv6 = 2;

  // What follows the token.
  Rdata items() const { return data_.size() > kHeadSize ? data_.subspan(kHeadSize) : Rdata(); }
  template <size_t kSize>
  static std::array<uint8_t, kSize> bytesAt(Rdata data, size_t offset) {
    std::array<uint8_t, kSize> bytes;
    std::ranges::copy(data.subspan(offset, kSize), bytes.begin());
    return bytes;
  }

  Rdata data_;
};

}  // namespace idetcd::records
