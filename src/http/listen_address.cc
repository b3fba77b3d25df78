#include "http/listen_address.h"

#include <netdb.h>

#include "net/local_addresses.h"

namespace idetcd::http {

std::string ListenAddress::toString() const {
  return host.find(':') != host.npos ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<ListenAddress> parseListenAddress(std::string_view text) {
  const auto wrong = [text](std::string_view what) {
    return fail(fmt::format("'{}': {}; write [HOST]:PORT", text, what));
  };
  const size_t colon = text.rfind(':');
  if (colon == text.npos) return wrong("no port");
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[')) {
    if (!host.ends_with(']')) return wrong(host.find(']') == host.npos ? "no ']'" : "no port");
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != host.npos) {
    return wrong("too many colons in address");
  }
  if (host.find_first_of("[]") != host.npos) return wrong("a bracket that is not expected");
  return ListenAddress{.host = std::string(host), .port = std::string(text.substr(colon + 1))};
}

Result<void> readListenAddress(config::DirectiveCursor& cursor, std::string_view otherwise, ListenAddress& address) {
  const auto words = cursor.args(0, 1);
  if (!words) return tl::unexpected(words.error());
  auto read = parseListenAddress(words->empty() ? otherwise : words->front());
  if (!read) return cursor.error(read.error().message);
  address = std::move(*read);
  return {};
}

Result<std::vector<SocketAddress>> resolve(const ListenAddress& address) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const char* const host = address.host.empty() ? nullptr : address.host.c_str();
  const char* const port = address.port.empty() ? "0" : address.port.c_str();
  if (const int error = getaddrinfo(host, port, &hints, &list); error != 0) {
    return fail(fmt::format("{}: {}", address.toString(), gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  std::vector<SocketAddress> found;
  for (const addrinfo* i = list; i != nullptr; i = i->ai_next) {
    if (const auto one = SocketAddress::fromSockaddr(i->ai_addr)) found.push_back(*one);
  }
  if (found.empty()) return fail(fmt::format("{}: no IP address", address.toString()));
  if (host == nullptr) return net::anyAddresses(found.front().port);
  std::stable_partition(found.begin(), found.end(), [](const SocketAddress& one) { return one.ip.isV4(); });
  found.resize(1);
  return found;
}

}  // namespace idetcd::http
