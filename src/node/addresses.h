// The addresses that this node publishes under its name, and in further networks: of each at most one of each family,
// never link-local.
//
// Without configuration: the source address of the default route of each family. Then, without a default route, an
// address of an interface that is up, of real hardware before virtual ones (bridges, container networks), and loopback
// as the last resort, so that one machine without a network works too. Any thread; called at start.
#pragma once

#include "base/ip_address.h"
#include "base/result.h"
#include "records/member_data.h"

namespace idetcd::node {

// One network interface as the kernel describes it.
struct NetworkInterface {
  std::string name;
  bool up = false;
  bool loopback = false;
  bool is_virtual = false;  // bridge, veth, tunnel, …: not hardware
  std::vector<IpAddress> addresses;
};

// The inputs of the choice besides the configuration.
struct NetworkView {
  std::optional<IpAddress> default_source_ipv4;  // source address of the default route
  std::optional<IpAddress> default_source_ipv6;
  std::vector<NetworkInterface> interfaces;  // in the kernel's order
};

// The directives `address IP… as NETWORK` and `interface NAME as NETWORK`: one of them.
struct NetworkOptions {
  std::string name;
  std::vector<IpAddress> addresses;
  std::string interface_name;
  bool operator==(const NetworkOptions&) const = default;
};

// The directives `address IP…` and `interface NAME`. At most one of them; neither: see above.
struct AddressOptions {
  std::vector<IpAddress> addresses{};
  std::string interface_name{};
  std::vector<NetworkOptions> networks{};  // at most records::kMaxNetworks, of different names

  // Whether they do not depend on the machine.
  bool areFixed() const;
  bool operator==(const AddressOptions&) const = default;
};

struct NodeAddresses {
  records::MemberAddresses addresses;  // with all networks of the options, also those of which the machine has none
  std::string warning;                 // for the operator; empty: nothing to say
  std::string missing_networks;        // the same, of those that are without an address
};

// Pure: the choice.
Result<NodeAddresses> selectNodeAddresses(const AddressOptions& options, const NetworkView& view);

// The machine as it is now. Sends nothing; what the kernel does not report is left out.
NetworkView readNetworkView();

}  // namespace idetcd::node
