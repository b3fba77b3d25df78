#include <cctype>
#include <cstdlib>

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "base/ip_address.h"
#include "base/random.h"
#include "base/text.h"
#include "etcd/endpoints_internal.h"
#include "etcd/errors_internal.h"
#include "etcd/self_signed_internal.h"

namespace idetcd::etcd {
namespace {

constexpr int kMaxAnswerBytes = 64 << 20;
constexpr int kPingTimeoutMs = 5'000;
constexpr int kLookaheadBytes = 1 << 20;
// Of a cluster that founds itself: machines that start at once may keep a processor busy for longer than a call waits. A
// handshake that each call breaks off begins anew, and costs as much again.
constexpr std::chrono::milliseconds kConnectPatience{10'000};
// How soon a change of certificates is noticed, if nothing asks for a connection before.
constexpr std::chrono::seconds kTlsLookInterval{1};

// `prefix`: in lower case.
bool consumePrefixIgnoringCase(std::string_view* text, std::string_view prefix) {
  if (lowerCase(text->substr(0, prefix.size())) != prefix) return false;
  text->remove_prefix(prefix.size());
  return true;
}

bool isHostName(std::string_view text) {
  if (text.ends_with('.')) text.remove_suffix(1);
  if (text.empty() || text.size() > 253) return false;
  size_t label_length = 0;
  for (const char c : text) {
    if (c == '.') {
      if (label_length == 0) return false;
      label_length = 0;
      continue;
    }
    const bool allowed = std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
    if (!allowed || ++label_length > 63) return false;
  }
  return label_length > 0;
}

// "1.2.3" or "1.2.3.999" is a mistyped address, not a name: no top-level domain is all digits (RFC 3696 §2).
bool looksLikeIpv4(std::string_view text) {
  const std::string_view last = text.substr(text.rfind('.') + 1);
  return !last.empty() && std::all_of(last.begin(), last.end(), isDigit);
}

Result<void> checkHost(std::string_view host, bool bracketed) {
  const auto address = IpAddress::parse(host);
  if (bracketed) {
    if (!address || !address->isV6()) return fail(fmt::format("'{}' is not an IPv6 address", host));
    return {};
  }
  if (host.find(':') != std::string_view::npos) return fail("more than one ':'; an IPv6 address must be in brackets");
  if (address || (isHostName(host) && !looksLikeIpv4(host))) return {};
  return fail(host.empty() ? "the host is missing" : fmt::format("'{}' is not a host name or an address", host));
}

Result<EndpointAddress> parseHostPort(std::string_view rest) {
  const bool bracketed = rest.starts_with('[');
  std::string_view host;
  if (bracketed) {
    const size_t end = rest.find(']');
    if (end == std::string_view::npos) return fail("']' is missing");
    host = rest.substr(1, end - 1);
    rest.remove_prefix(end + 1);
  } else {
    host = rest.substr(0, rest.rfind(':'));
    rest.remove_prefix(host.size());
  }
  if (const auto checked = checkHost(host, bracketed); !checked) return tl::unexpected(checked.error());
  if (!rest.starts_with(':') || rest.size() == 1) return fail("the port is missing");
  rest.remove_prefix(1);

  const uint16_t port = parseNumber<uint16_t>(rest).value_or(0);
  if (port == 0) return fail(fmt::format("'{}' is not a port", rest));

  EndpointAddress address;
  address.name = bracketed ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
  // gRPC's DNS resolver takes addresses as they are, without a query; but it makes all of a connection's TLS anew with
  // each attempt, so IPv4 addresses are left to the resolver that does nothing. gRPC compares the text with the addresses
  // in the server's certificate, which it writes in the canonical form (RFC 5952).
  if (bracketed) {
    address.target = fmt::format("dns:///[{}]:{}", IpAddress::parse(host)->toString(), port);
  } else {
    address.target = (IpAddress::parse(host) ? "ipv4:" : "dns:///") + address.name;
  }
  return address;
}

grpc::ChannelArguments channelArguments(const Client::Options& options) {
  const auto milliseconds = [](std::chrono::milliseconds value) {
    return static_cast<int>(std::clamp<int64_t>(value.count(), 1, 3'600'000));
  };
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxAnswerBytes);
  if (options.pinned) arguments.SetString(GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, kSelfSignedName);
  // A fail-over must make a connection of its own, not find one that another channel shares.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // http_proxy in the environment is for the web; etcd is in the same network.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // gRPC sends each request once: Client::Impl::call() alone decides whether it is repeated.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // No TXT query for a service configuration with every look-up of the name.
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_DNS_ARES_QUERY_TIMEOUT_MS, milliseconds(options.call_timeout));
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, milliseconds(options.reconnect_max));

  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, milliseconds(options.reconnect_min));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, milliseconds(options.reconnect_max));
  // In spite of its name: how long one attempt to connect may take.
  arguments.SetInt(
      GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
      milliseconds(options.self_founded ? std::max(options.call_timeout, kConnectPatience) : options.call_timeout));

  // With each answer gRPC would ping to find how much may be on the way, more than a node at rest sends otherwise. The
  // machines of such a cluster have short ways: so much always may.
  if (options.self_founded) {
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes);
  }

  // After a GOAWAY for too many pings gRPC doubles this for the endpoint's next connections.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, milliseconds(options.ping_interval));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0);
  // A quiet watch exchanges pings and nothing else for as long as it takes.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return arguments;
}

// For messages: who writes a password into an address has not understood it, but it is one.
std::string withoutUser(std::string_view text) {
  const size_t at = text.rfind('@');
  return at == std::string_view::npos ? std::string(text) : fmt::format("...{}", text.substr(at));
}

}  // namespace

Result<EndpointAddress> EndpointAddress::parse(std::string_view text) {
  std::string_view rest = text;
  const std::string shown = withoutUser(text);
  Scheme scheme = Scheme::kNone;
  if (consumePrefixIgnoringCase(&rest, "https://")) {
    scheme = Scheme::kHttps;
  } else if (consumePrefixIgnoringCase(&rest, "http://")) {
    scheme = Scheme::kHttp;
  } else if (rest.find("://") != std::string_view::npos) {
    return fail(fmt::format("endpoint '{}': unknown scheme '{}'", shown, rest.substr(0, rest.find("://"))));
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.find_first_of("/?#@") != std::string_view::npos)
    return fail(fmt::format("endpoint '{}': expected http(s)://host:port or host:port", shown));
  auto address = parseHostPort(rest);
  if (!address) return fail(fmt::format("endpoint '{}': {}", shown, address.error().message));
  address->scheme = scheme;
  return address;
}

Endpoints::Endpoints(const Client::Options& options, std::shared_ptr<Counters> counters, Logger log)
    : options_(options),
      arguments_(channelArguments(options)),
      resolve_interval_(options.reconnect_max),
      counters_(std::move(counters)),
      log_(std::move(log)),
      random_(KernelRandom().next()) {
  set(options.endpoints);
}

bool Endpoints::set(const std::vector<std::string>& list) {
  const std::vector<Endpoint>::difference_type placed = std::ssize(endpoints_);
  for (Endpoint& endpoint : endpoints_) endpoint.was_listed = std::exchange(endpoint.is_listed, false);
  for (const std::string& text : list) {
    auto address = EndpointAddress::parse(text);
    if (!address) std::abort();  // REQUIRES of Client
    if (address->usesTls(options_) && !tls_ && !options_.pinned) {
      tls_.emplace(options_.tls.value_or(TlsFiles{}), options_.executor);
      lookAtTlsFiles();
    }
    const auto end = endpoints_.begin() + placed;
    auto found = std::find_if(endpoints_.begin(), end,
                              [&](const Endpoint& one) { return one.address.target == address->target; });
    if (found == end) found = endpoints_.insert(endpoints_.end(), Endpoint{.address = std::move(*address)});
    found->is_listed = true;
    found->text = text;
    if (!found->was_listed) found->configured = ++configured_;
  }
  if (options_.spread) std::shuffle(endpoints_.begin() + placed, endpoints_.end(), random_);
  count_ = static_cast<size_t>(std::ranges::count(endpoints_, true, &Endpoint::is_listed));
  for (Endpoint& endpoint : endpoints_) {
    if (endpoint.is_listed) continue;
    endpoint = {.address = endpoint.address, .is_listed = false};
  }
  if (count_ == 0) {
    publishUnused();
    return true;
  }
  if (!endpoints_[home_].is_listed) home_ = anyListed();
  if (!endpoints_[current()].is_listed) settleHome();
  judgeStrangers();
  return isKnown(current());
}

size_t Endpoints::anyListed() {
  std::vector<size_t> listed;
  visit([&listed](size_t index) { listed.push_back(index); });
  return listed[options_.spread ? random_() % listed.size() : 0];
}

void Endpoints::visit(const std::function<void(size_t)>& each) const {
  for (size_t i = 0; i < endpoints_.size(); ++i) {
    if (endpoints_[i].is_listed) each(i);
  }
}

size_t Endpoints::after(size_t index) const {
  size_t next = index;
  do {
    next = (next + 1) % endpoints_.size();
  } while (next != index && !endpoints_[next].is_listed);
  return next;
}

// The options decide between TLS and plain, never whether certificates are usable: without usable certificates this is
// a channel that fails every call (see errors.cc).
std::shared_ptr<grpc::Channel> Endpoints::makeChannel(const Endpoint& endpoint) const {
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  if (options_.pinned) {
    credentials = grpc::SslCredentials({options_.pinned->certificate, "", ""});
  } else if (!tls_) {
    credentials = grpc::InsecureChannelCredentials();
  } else if (const auto& material = tls_->material()) {
    credentials = grpc::SslCredentials({material->ca_certificates, material->key, material->certificates});
  }
  return grpc::CreateCustomChannel(endpoint.address.target, credentials, arguments_);
}

void Endpoints::lookAtTlsFiles() {
  const bool first = tls_looked_at_ == BootClock::time_point{};
  const bool had_some = tls_->material().has_value();
  tls_looked_at_ = BootClock::now();
  const auto look = tls_->look();
  if (!look) return;
  switch (look->change) {
    case TlsSource::Change::kNone:
      break;
    case TlsSource::Change::kNew:
      if (!first) {
        counters_->tls_reloads.add();
        log_.info("new TLS certificates: they hold from the next connection to etcd on");
      }
      break;
    case TlsSource::Change::kUnusable:
      counters_->tls_failures.add();
      log_.error("TLS certificates that cannot be used: {}{}", look->message,
                 had_some ? "; those read before stay in use" : "; etcd is away until they can");
      break;
  }
  if (!look->warning.empty()) log_.warning("{}", look->warning);
}

const std::shared_ptr<grpc::Channel>& Endpoints::channel(size_t index) {
  Endpoint& endpoint = endpoints_[index];
  const grpc_connectivity_state state = stateOf(endpoint);
  if (tls_) {
    const bool connected = state == GRPC_CHANNEL_READY;
    // Before every new connection, and now and then: what is wrong is better known before it is needed.
    if (!connected || BootClock::now() - tls_looked_at_ >= kTlsLookInterval) lookAtTlsFiles();
    if (!connected && endpoint.tls_generation != tls_->generation()) endpoint.channel.reset();
  }
  if (!endpoint.channel) {
    endpoint.channel = makeChannel(endpoint);
    endpoint.tls_generation = tls_ ? tls_->generation() : 0;
  }
  // The back-off of connections is bounded by us, but not that of the look-up of names (up to two minutes): a machine
  // whose resolver comes up late would wait for long. Only for look-ups: it would end the back-off of connections too.
  if (endpoint.unresolved && state == GRPC_CHANNEL_TRANSIENT_FAILURE) {
    const auto now = BootClock::now();
    if (now >= endpoint.resolve_at) {
      std::uniform_real_distribution<double> jitter(0.75, 1.25);
      endpoint.resolve_at =
          now + std::chrono::duration_cast<std::chrono::nanoseconds>(resolve_interval_ * jitter(random_));
      grpc::experimental::ChannelResetConnectionBackoff(endpoint.channel.get());
    }
  }
  return endpoint.channel;
}

bool Endpoints::isIdentified(size_t index) const {
  const Endpoint& endpoint = endpoints_[index];
  return endpoint.is_proxy || (endpoint.is_identified && stateOf(endpoint) == GRPC_CHANNEL_READY);
}

void Endpoints::identified(size_t index, uint64_t cluster_id) {
  if (!endpoints_[index].is_listed) return;
  endpoints_[index].is_identified = true;
  if (cluster_id == 0 || std::exchange(endpoints_[index].cluster_id, cluster_id) == cluster_id) return;
  judgeStrangers();
}

void Endpoints::foundProxy(size_t index) {
  Endpoint& endpoint = endpoints_[index];
  if (!endpoint.is_listed) return;
  endpoint.channel.reset();
  if (!std::exchange(endpoint.is_proxy, true)) {
    log_.error("etcd endpoint {} is etcd's grpc-proxy, which delays keepalives and says nothing of a watch's progress: "
               "it is not used; list the members themselves",
               endpoint.address.name);
    publishUnused();
  }
  leave(index);
}

void Endpoints::leave(size_t index) {
  size_t expected = index;
  size_t next = after(index);
  while (isStranger(next) && next != index) next = after(next);
  current_.compare_exchange_strong(expected, next, std::memory_order_relaxed);
}

void Endpoints::judgeStrangers() {
  const auto rank = [this](const Endpoint& endpoint) {
    const auto same = std::ranges::count(endpoints_, endpoint.cluster_id, &Endpoint::cluster_id);
    return std::pair(endpoint.cluster_id == 0 ? 0 : same, -endpoint.configured);
  };
  const Endpoint& ours = *std::ranges::max_element(endpoints_, {}, rank);
  for (Endpoint& endpoint : endpoints_) {
    const bool is_stranger = endpoint.cluster_id != 0 && endpoint.cluster_id != ours.cluster_id;
    if (std::exchange(endpoint.is_stranger, is_stranger) == is_stranger) continue;
    if (is_stranger) {
      endpoint.channel.reset();
      log_.error("etcd endpoint {} is of another cluster, {:x} instead of {:x} of {}: it is not used",
                 endpoint.address.name, endpoint.cluster_id, ours.cluster_id, ours.address.name);
    } else {
      log_.info("etcd endpoint {} is of the same cluster as {}", endpoint.address.name, ours.address.name);
    }
  }
  publishUnused();
  if (endpoints_[current()].is_stranger)
    current_.store(static_cast<size_t>(&ours - endpoints_.data()), std::memory_order_relaxed);
}

void Endpoints::publishUnused() {
  const std::lock_guard lock(unused_mutex_);
  unused_.clear();
  visit([this](size_t index) {
    const Endpoint& endpoint = endpoints_[index];
    if (!isStranger(index)) return;
    const std::string reason = endpoint.is_proxy ? "it is etcd's grpc-proxy" : "it is of another cluster";
    unused_.emplace_back(Store::UnusedEndpoint{.endpoint = endpoint.text, .reason = reason},
                         counters_->scope().with("endpoint", endpoint.address.name));
  });
}

std::vector<Store::UnusedEndpoint> Endpoints::unused() const {
  const std::lock_guard lock(unused_mutex_);
  std::vector<Store::UnusedEndpoint> all;
  for (const Unused& one : unused_) all.push_back(one.said);
  return all;
}

void Endpoints::succeeded(size_t index) {
  Endpoint& endpoint = endpoints_[index];
  endpoint.unresolved = false;
  if (options_.self_founded && index == current()) {
    for (size_t i = 0; i < endpoints_.size(); ++i) disconnect(i);
  }
  if (std::exchange(endpoint.reported, Reported::kNothing) == Reported::kNothing) return;
  log_.info("etcd endpoint {} is back", endpoint.address.name);
}

void Endpoints::failed(size_t index, const StoreError& error) {
  counters_->endpoint_failures.add();
  if (error.sent && error.code == ErrorCode::kUnavailable) broke();
  Endpoint& endpoint = endpoints_[index];
  if (!endpoint.is_listed) return;
  leave(index);
  endpoint.is_identified = false;
  endpoint.unresolved = lookUpFailed(error);
  // That etcd answers but TLS fails is logged even of an endpoint that was away.
  const Reported failure = tls_ && handshakeFailed(error) ? Reported::kTlsFails : Reported::kAway;
  if (endpoint.reported >= failure) return;
  endpoint.reported = failure;
  log_.warning("etcd endpoint {} is away: {}", endpoint.address.name, error.message);
}

}  // namespace idetcd::etcd
