#include "resolver/forward_files.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
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

// The server's answer for the name; nothing: there is none.
std::optional<Addresses> ask(const SocketAddress& server, const dns::Name& host, dns::RrType type) {
  SecureRandom random;
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

bool isOver(const UpstreamTarget& target, UpstreamProtocol protocol) {
  return (target.server && target.server->protocol == protocol) || (target.host && target.host->protocol == protocol);
}

bool needs(const Forwarder::Options& options, UpstreamProtocol protocol) {
  return std::any_of(options.to.begin(), options.to.end(),
                     [protocol](const UpstreamTarget& target) { return isOver(target, protocol); });
}

// Files that are named are looked at, whether a server needs them or not.
bool needsTls(const Forwarder::Options& options) {
  return !options.tls.certificate_file.empty() || !options.tls.ca_file.empty() ||
         needs(options, UpstreamProtocol::kTls);
}

Result<std::shared_ptr<net::TlsContext>> makeContext(const Forwarder::Tls& tls, std::string application_protocol) {
  return net::TlsContext::make({.certificate_file = tls.certificate_file,
                                .key_file = tls.key_file,
                                .ca_file = tls.ca_file,
                                .application_protocol = std::move(application_protocol)});
}

constexpr const char* kSystemResolvers = "/etc/resolv.conf";

Result<std::vector<SocketAddress>> resolversOf(const Forwarder::Options& options) {
  if (!options.resolvers.empty()) return options.resolvers;
  const auto text = WatchedFile(kSystemResolvers).readIfChanged();
  if (!text) return fail(fmt::format("cannot read {}: {}", kSystemResolvers, text.error().message));
  std::vector<SocketAddress> resolvers;
  for (const UpstreamAddress& server : parseResolvConf(text->value_or(""))) resolvers.push_back(server.address);
  return resolvers;
}

// Over TLS, the name of the host is the one that its certificate must have, if no other is named.
Result<std::vector<UpstreamAddress>> serversOf(const UpstreamHost& host, const Forwarder::Options& options) {
  const auto resolvers = resolversOf(options);
  if (!resolvers) return tl::unexpected(resolvers.error());
  const auto addresses = lookUpHost(host.name, *resolvers);
  if (!addresses) return tl::unexpected(addresses.error());
  std::string name = host.name.toString();
  name.pop_back();
  const bool is_named_here = isEncrypted(host.protocol) && options.tls.server_name.empty();
  std::vector<UpstreamAddress> servers;
  for (const IpAddress& ip : *addresses) {
    servers.push_back({.address = {.ip = ip, .port = host.port},
                       .protocol = host.protocol,
                       .server_name = is_named_here ? name : std::string()});
  }
  return servers;
}

}  // namespace

Result<std::shared_ptr<UpstreamFile>> UpstreamFile::open(const std::string& path, std::chrono::milliseconds interval,
                                                         Executor& executor) {
  WatchedFile file(path);
  const auto text = file.readIfChanged();
  if (!text) return fail(fmt::format("cannot read {}: {}", path, text.error().message), text.error().code);
  std::shared_ptr<UpstreamFile> opened(new UpstreamFile);
  opened->shared_->set(parseResolvConf(text->value_or("")));
  opened->watch_.emplace(executor, std::move(file), FileWatch::Options{.interval = interval},
                         [shared = opened->shared_](const auto& content) { shared->onRead(content); });
  return opened;
}

void UpstreamFile::Shared::onRead(const Result<std::optional<std::string>>& content) {
  if (!content || !*content || (*content)->empty()) return;
  auto servers = parseResolvConf(**content);
  if (servers != *newest()) set(std::move(servers));
}

void UpstreamFile::Shared::set(std::vector<UpstreamAddress> servers) {
  auto now = std::make_shared<const std::vector<UpstreamAddress>>(std::move(servers));
  const std::lock_guard lock(mutex_);
  servers_ = std::move(now);
  for (const auto& [subscription, on_change] : subscriptions_) on_change();
}

UpstreamFile::Servers UpstreamFile::Shared::newest() const {
  const std::lock_guard lock(mutex_);
  return servers_;
}

void UpstreamFile::Shared::add(const Subscription* subscription, std::function<void()> on_change) {
  const std::lock_guard lock(mutex_);
  subscriptions_.emplace_back(subscription, std::move(on_change));
}

void UpstreamFile::Shared::remove(const Subscription* subscription) {
  const std::lock_guard lock(mutex_);
  std::erase_if(subscriptions_, [subscription](const auto& entry) { return entry.first == subscription; });
}

UpstreamFile::Subscription::Subscription(const UpstreamFile& file, std::function<void()> on_change)
    : shared_(file.shared_) {
  shared_->add(this, std::move(on_change));
}

UpstreamFile::Subscription::~Subscription() { shared_->remove(this); }

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

Result<std::shared_ptr<const ForwardFiles>> ForwardFiles::read(const Forwarder::Options& options, Executor& executor) {
  auto files = std::make_shared<ForwardFiles>();
  if (needsTls(options)) {
    auto made = makeContext(options.tls, {});
    if (!made) return tl::unexpected(made.error());
    files->tls = std::move(*made);
  }
  if (needs(options, UpstreamProtocol::kHttps)) {
    auto made = makeContext(options.tls, "h2");
    if (!made) return tl::unexpected(made.error());
    files->https = std::move(*made);
  }
  for (const UpstreamTarget& target : options.to) {
    auto& list = files->lists.emplace_back();
    auto& addresses = files->hosts.emplace_back();
    if (target.server) continue;
    if (target.host) {
      auto found = serversOf(*target.host, options);
      if (!found) return tl::unexpected(found.error());
      addresses = std::move(*found);
      continue;
    }
    auto opened = UpstreamFile::open(target.file, options.file_interval, executor);
    if (!opened) return tl::unexpected(opened.error());
    list = std::move(*opened);
  }
  return files;
}

}  // namespace idetcd::resolver
