#include "resolver/host_lookup.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "dns/own_query.h"
#include "dns/query.h"
#include "net/secure_random.h"
#include "resolver/forward_message.h"
#include "resolver/stored_response.h"

namespace idetcd::resolver {

namespace {

constexpr int kTries = 2;
constexpr std::chrono::milliseconds kTryTime{1000};

constexpr size_t kIpv4Size = 4;
constexpr size_t kIpv6Size = 16;

using Addresses = std::vector<IpAddress>;

// A socket that is connected to a server, so that nobody else is heard.
class Datagrams {
 public:
  explicit Datagrams(const SocketAddress& server)
      : fd_(::socket(server.ip.isV4() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_storage storage;
    const socklen_t length = server.toSockaddr(&storage);
    is_connected_ = fd_ >= 0 && ::connect(fd_, reinterpret_cast<const sockaddr*>(&storage), length) == 0;
  }
  ~Datagrams() {
    if (fd_ >= 0) ::close(fd_);
  }
  Datagrams(const Datagrams&) = delete;
  Datagrams& operator=(const Datagrams&) = delete;

  bool send(std::span<const uint8_t> message) const {
    return is_connected_ && ::send(fd_, message.data(), message.size(), 0) == static_cast<ssize_t>(message.size());
  }
  // The next one, or nothing until `deadline`, or if the server is not there.
  std::optional<std::span<const uint8_t>> receive(BootClock::time_point deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - BootClock::now());
    if (left.count() <= 0) return std::nullopt;
    pollfd readable{.fd = fd_, .events = POLLIN, .revents = 0};
    if (::poll(&readable, 1, static_cast<int>(left.count())) <= 0) return std::nullopt;
    const ssize_t size = ::recv(fd_, buffer_.data(), kMaxDatagram, 0);
    if (size < 0) return std::nullopt;
    return std::span<const uint8_t>(buffer_.data(), static_cast<size_t>(size));
  }

 private:
  static constexpr size_t kMaxDatagram = 4096;

  int fd_;
  bool is_connected_ = false;
  std::array<uint8_t, kMaxDatagram + dns::kReadSlack> buffer_{};
};

Addresses addressesIn(const dns::PackedResponse& response, dns::RrType type) {
  Addresses addresses;
  const std::span<const uint8_t> body = response.body();
  for (const uint16_t ttl : response.ttlOffsets().first(response.answers)) {
    const size_t size = dns::load16(&body[ttl + size_t{4}]);
    if (dns::load16(&body[ttl - size_t{4}]) != dns::code(type)) continue;
    if (size != (type == dns::RrType::kA ? kIpv4Size : kIpv6Size)) continue;
    const auto address = IpAddress::fromBytes(body.subspan(ttl + size_t{6}, size));
    if (!address.isUnspecified() && !address.isMulticast()) addresses.push_back(address);
  }
  return addresses;
}

// What the server says of the name; nothing: it does not.
std::optional<Addresses> ask(const SocketAddress& server, const dns::Name& host, dns::RrType type) {
  net::SecureRandom random;
  const dns::OwnQuery own(host, dns::code(type), dns::code(dns::RrClass::kIn), dns::kFlagRd, HashSeed{});
  ForwardMessage message;
  message.assign(own.query());
  message.setId(random.next16());
  Datagrams datagrams(server);
  if (!datagrams.send(message.bytes(ForwardMessage::Form::kPlain))) return std::nullopt;
  const auto deadline = BootClock::now() + kTryTime;
  while (const auto datagram = datagrams.receive(deadline)) {
    StoredResponse response;
    const auto verdict = readUpstreamResponse(*datagram, message.id(), own.query(), response);
    if (verdict == UpstreamVerdict::kMismatch) continue;
    if (verdict != UpstreamVerdict::kAccepted) return std::nullopt;
    const dns::Rcode rcode = response.packed->rcode;
    if (rcode != dns::Rcode::kNoError && rcode != dns::Rcode::kNxDomain) return std::nullopt;
    return addressesIn(*response.packed, type);
  }
  return std::nullopt;
}

}  // namespace

Result<std::vector<IpAddress>> lookUpHost(const dns::Name& host, std::span<const SocketAddress> resolvers) {
  for (int i = 0; i < kTries; ++i) {
    for (const SocketAddress& resolver : resolvers) {
      auto addresses = ask(resolver, host, dns::RrType::kA);
      if (!addresses) continue;
      const Addresses v6 = ask(resolver, host, dns::RrType::kAaaa).value_or(Addresses{});
      addresses->insert(addresses->end(), v6.begin(), v6.end());
      if (addresses->empty()) return fail(fmt::format("{} has no address", host.toString()));
      return std::move(*addresses);
    }
  }
  return fail(fmt::format("no resolver says what the address of {} is", host.toString()));
}

}  // namespace idetcd::resolver
