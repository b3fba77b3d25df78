// The addresses of this machine's interfaces. Any thread.
#pragma once

#include <unordered_map>

#include "base/ip_address.h"
#include "base/result.h"

namespace idetcd::net {

// Every address of the interface `name` (scope_id of link-local IPv6, port 0). An error if it is missing or has none.
Result<std::vector<SocketAddress>> interfaceAddresses(std::string_view name);

// The addresses of all interfaces; empty if they cannot be listed.
std::vector<SocketAddress> localAddresses();

// Whether it is a valid name of an interface, which need not exist.
bool mayNameInterface(std::string_view text);

// An address of an interface.
struct AssignedAddress {
  IpAddress ip;
  uint32_t interface = 0;     // its index
  uint8_t prefix_length = 0;  // of its subnet, in bits; all of the address where there is none
};
// Of all interfaces.
Result<std::vector<AssignedAddress>> assignedAddresses();

// Ethernet addresses by the index of the interface; zeros where an interface has none (loopback).
using HardwareAddress = std::array<uint8_t, 6>;
// Of all interfaces.
Result<std::unordered_map<uint32_t, HardwareAddress>> hardwareAddresses();

// The addresses that stand for "everywhere": of both families, or of IPv4 alone on a host without IPv6. Two sockets
// rather than one for both, so that IPv4 stays free of mapped addresses.
std::vector<SocketAddress> anyAddresses(uint16_t port);

// Whether listeners of the two compete for a port: a wildcard and one of its addresses.
bool overlap(const SocketAddress& a, const SocketAddress& b);

}  // namespace idetcd::net
