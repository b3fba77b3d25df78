// Where an endpoint listens, as a Corefile says it: "[HOST]:PORT". Any thread.
#pragma once

#include "base/ip_address.h"
#include "base/result.h"
#include "config/directive_cursor.h"

namespace idetcd::http {

struct ListenAddress {
  std::string host;  // empty: every address of the machine
  std::string port;  // a number, or the name of a service

  std::string toString() const;  // as it is written
};

// As Go's net.SplitHostPort: an IPv6 address is in brackets; whether there are such a host and port is not asked.
Result<ListenAddress> parseListenAddress(std::string_view text);

// The only argument of a directive's own line, or `otherwise` if there is none. The error is complete.
// REQUIRES: `otherwise` is one.
Result<void> readListenAddress(config::DirectiveCursor& cursor, std::string_view otherwise, ListenAddress& address);

// Of a name the first IPv4 address, or else the first one. May block: a name that is in no file is asked of DNS.
Result<std::vector<SocketAddress>> resolve(const ListenAddress& address);

}  // namespace idetcd::http
