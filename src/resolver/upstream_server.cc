#include "resolver/upstream_server.h"

#include <net/if.h>

#include "resolver/doh_stream.h"

namespace idetcd::resolver {

namespace {

constexpr RoundTrip::Time kHalfLife = std::chrono::seconds(30);
constexpr int kMaxDoublings = 6;  // from the minimum past the maximum

constexpr std::chrono::milliseconds kProbeTime{1000};
constexpr std::chrono::milliseconds kMinProbeInterval{10};  // whatever is configured, a dead server is no busy loop
constexpr std::chrono::minutes kNoEdnsTime{15};
constexpr std::chrono::milliseconds kSuspicionTime{2000};
constexpr std::chrono::nanoseconds kMinTrialTime = std::chrono::seconds(1);
constexpr std::chrono::nanoseconds kMaxTrialTime = std::chrono::seconds(30);

std::chrono::nanoseconds minTimeout(const Forwarder::Options& options) {
  return std::max<std::chrono::nanoseconds>(RoundTrip::kMinTimeout, options.least_timeout);
}

// As CoreDNS calls them.
const char* protoLabel(UpstreamProtocol protocol) {
  switch (protocol) {
    case UpstreamProtocol::kTls:
      return "tcp-tls";
    case UpstreamProtocol::kHttps:
      return "https";
    case UpstreamProtocol::kDns:
      break;
  }
  return "tcp";
}

// Answers over HTTP/2 need not wait for each other.
size_t preferredPipelined(UpstreamProtocol protocol) { return protocol == UpstreamProtocol::kHttps ? 64 : 8; }

// Two transmissions, and the time to hear from the second, fit into an attempt.
std::chrono::nanoseconds maxTimeout(const Forwarder::Options& options) {
  return std::max(minTimeout(options),
                  std::min<std::chrono::nanoseconds>(RoundTrip::kMaxTimeout, options.attempt_time / 2));
}

}  // namespace

void RoundTrip::sample(Time time, BootClock::time_point now) {
  time = std::max(time, Time(1));
  if (srtt_ == Time(0)) {
    srtt_ = time;
    rttvar_ = time / 2;
  } else {
    const Time difference = srtt_ > time ? srtt_ - time : time - srtt_;
    rttvar_ += (difference - rttvar_) / 4;
    srtt_ += (time - srtt_) / 8;
  }
  doublings_ = 0;
  changed_at_ = now;
}

void RoundTrip::backOff(BootClock::time_point now) {
  if (doublings_ > 0 && now - changed_at_ < timeout()) return;
  doublings_ = std::min(doublings_ + 1, kMaxDoublings);
  changed_at_ = now;
}

RoundTrip::Time RoundTrip::timeout() const {
  const Time first = srtt_ == Time(0) ? kInitialTimeout : std::clamp(srtt_ + 4 * rttvar_, kMinTimeout, kMaxTimeout);
  return std::min(first * (1 << doublings_), kMaxTimeout);
}

RoundTrip::Time RoundTrip::expected(BootClock::time_point now) const {
  const Time known = doublings_ > 0 ? timeout() : srtt_;
  const auto half_lives = (now - changed_at_) / kHalfLife;
  return half_lives >= 32 ? Time(0) : known / (int64_t{1} << std::max<int64_t>(half_lives, 0));
}

ForwardContext::ForwardContext(net::EventLoop& event_loop, Forwarder::Options forward_options, Logger logger)
    : loop(event_loop),
      options(std::move(forward_options)),
      log(std::move(logger)),
      counters(options.metrics),
      room((assert(options.room), *options.room)),
      random(room.random()),
      tcp(event_loop),
      timeouts(event_loop, minTimeout(options), maxTimeout(options)),
      attempts(event_loop, options.attempt_time),
      totals(event_loop, options.total_time) {}

Result<void> ForwardContext::openSource() {
  if (!options.source_address) return {};
  auto sockets = room.udpFrom(*options.source_address);
  if (!sockets) return tl::unexpected(sockets.error());
  source_udp = std::move(*sockets);
  return {};
}

UpstreamServer::UpstreamServer(ForwardContext& context, const UpstreamAddress& address)
    : context_(context),
      address_(address),
      report_(std::make_shared<ServerReport>(address.toString())),
      counters_(context.options.metrics.with("proxy_name", "forward").with("to", address.address.toString())),
      connection_counters_(counters_.scope().with("proto", protoLabel(address.protocol))),
      streams_(context.loop, context.random,
               {.expire = context.options.expire,
                .max_age = context.options.max_age,
                .max_idle = context.options.max_idle_conns,
                .preferred_pipelined = preferredPipelined(address.protocol)},
               [this] { return connect(); }),
      cookie_(context.options.cookies),
      suspicion_(context.loop, [this] { is_suspect_ = false; }),
      late_(*this),
      probe_timer_(context.loop, [this] { onProbeTimer(); }) {
  if (isEncrypted(address.protocol)) {
    const auto& tls = address.protocol == UpstreamProtocol::kTls ? context.tls : context.https;
    tls_peer_ = std::make_unique<net::TlsPeer>(tls, serverName(), address.address.ip);
  }
  context_.room.add(streams_);
  setUp(true);
}

UpstreamServer::~UpstreamServer() { context_.room.remove(streams_); }

Result<std::unique_ptr<net::Stream>> UpstreamServer::connect() {
  auto lease = context_.room.leaseConnection(streams_);
  if (!lease) return failWith(EMFILE);
  auto connection = context_.tcp.connect(address_.address, context_.sourceOf(address_.address.ip));
  if (!connection) return tl::unexpected(connection.error());
  (*connection)->hold(std::move(lease));
  if (!tls_peer_) return std::move(*connection);
  auto tls = std::make_unique<net::TlsStream>(*tls_peer_, std::move(*connection));
  if (address_.protocol == UpstreamProtocol::kTls) return tls;
  return std::make_unique<DohStream>(
      std::move(tls), DohStream::Options{.authority = authority(), .method = context_.options.doh_method});
}

const std::string& UpstreamServer::serverName() const {
  return address_.server_name.empty() ? context_.options.tls.server_name : address_.server_name;
}

// RFC 9110 §4.2.2: without the port that is understood.
std::string UpstreamServer::authority() const {
  constexpr uint16_t kHttpsPort = 443;
  const SocketAddress& at = address_.address;
  const std::string name = serverName().empty() ? at.ip.toString() : serverName();
  const std::string host = name.find(':') != std::string::npos ? fmt::format("[{}]", name) : name;
  return at.port == kHttpsPort ? host : fmt::format("{}:{}", host, at.port);
}

void UpstreamServer::noteAnswer(BootClock::time_point now) {
  answered_at_ = now;
  is_suspect_ = false;
  if (fails_ == 0 && probing_ == Probing::kNo) [[likely]]
    return;
  if (isDown()) context_.log.info("{} answers again", address_.toString());
  fails_ = 0;
  setUp(true);
  probing_ = Probing::kNo;
  probe_timer_.stop();
  probe_client_.close();
  probe_ticket_.drop();
}

void UpstreamServer::noteResponse(dns::Rcode rcode, std::chrono::nanoseconds duration) {
  auto& answers = answers_[dns::code(rcode) % answers_.size()];
  if (!answers) [[unlikely]]
    answers =
        std::make_unique<UpstreamAnswers>(counters_.scope().with("rcode", dns::kRcodeNames.toString(dns::code(rcode))));
  answers->duration.observe(static_cast<uint64_t>(std::max<int64_t>(duration.count(), 0)));
}

// While it is probed only the probes count: of a thousand questions that were asked in the same second a thousand fail
// in the same second too, and say no more than one.
void UpstreamServer::noteFailure(const std::string& reason) {
  findInterface();
  if (context_.options.max_fails == 0 || probing_ != Probing::kNo) return;
  countFailure(reason);
  probe();
}

// An interface may come, and come back with another index.
void UpstreamServer::findInterface() {
  if (!address_.interface.empty()) address_.address.scope_id = if_nametoindex(address_.interface.c_str());
}

void UpstreamServer::countFailure(const std::string& reason) {
  const bool was_down = isDown();
  ++fails_;
  if (!isDown() || was_down) return;
  setUp(false);
  context_.log.warning("{} does not answer: {}", address_.toString(), reason);
}

void UpstreamServer::setUp(bool up) {
  report_->setUp(up);
  counters_.up.set(up ? 1 : 0);
}

void UpstreamServer::noteSilence(BootClock::time_point sent_at, BootClock::time_point now) {
  round_trip_.backOff(now);
  if (is_suspect_ || hasAnsweredSince(sent_at)) return;
  is_suspect_ = true;
  suspicion_.start(kSuspicionTime);
}

void UpstreamServer::noteRejected(BootClock::time_point now) {
  if (++rejections_ < kMaxRejections) return;
  const bool is_first = rejections_ == kMaxRejections;
  trial_time_ = is_first ? kMinTrialTime : std::min(trial_time_ * 2, kMaxTrialTime);
  trial_at_ = now + trial_time_;
  if (is_first) context_.log.warning("{} refuses what others answer", address_.toString());
}

// One question is a trial: others wait for what becomes of it.
void UpstreamServer::noteAsked(BootClock::time_point now) {
  if (asked_at_ <= answered_at_) asked_at_ = now;
  if (rejections_ >= kMaxRejections) trial_at_ = now + trial_time_;
}

void UpstreamServer::awaitLate(net::UdpQuerySocket&& client, uint16_t id, BootClock::time_point sent_at,
                               bool repeated) {
  if (late_.client.isOpen()) return;  // one is enough
  late_.client = std::move(client);
  late_.client.handOver(late_);
  late_.id = id;
  late_.sent_at = sent_at;
  late_.repeated = repeated;
  late_.timer.start(context_.options.attempt_time);
}

UpstreamServer::Late::Late(UpstreamServer& owner) : server(owner), timer(owner.context_.loop, [this] { onTimer(); }) {}

void UpstreamServer::Late::onDatagram(std::span<const uint8_t> datagram) {
  if (datagram.size() < dns::kHeaderSize || dns::load16(datagram.data()) != id) return;
  if ((dns::load16(&datagram[2]) & dns::kFlagQr) == 0) return;
  client.close();
  timer.stop();
  const auto now = BootClock::now();
  server.noteAnswer(now);
  if (!repeated) server.noteRoundTrip(sent_at, now);
}

void UpstreamServer::Late::onError(int error) {
  client.close();
  timer.stop();
  server.noteFailure(std::strerror(error));
}

void UpstreamServer::Late::onTimer() {
  client.close();
  if (!server.hasAnsweredSince(sent_at)) server.noteFailure("i/o timeout");
}

void UpstreamServer::noteNoEdns() { no_edns_until_ = BootClock::now() + kNoEdnsTime; }

void UpstreamServer::probe() {
  const Forwarder::HealthCheck& check = context_.options.health_check;
  findInterface();
  probing_ = Probing::kAsked;
  probe_message_.assignProbe(check.domain, check.recursion_desired);
  probe_timer_.start(kProbeTime);
  if (isStreamOnly()) {
    const bool with_edns = isEncrypted(address_.protocol) && knowsEdns();  // there is padding in it
    const auto id = streams_.send(probe_message_.bytes(form(with_edns)), *this, probe_ticket_);
    if (!id && id.error().code == ErrorCode::kNoResources) return probeAgainLater();
    if (!id) return onProbeFailed(id.error().message);
    probe_id_ = *id;
    return;
  }
  probe_id_ = context_.random.next16();
  probe_message_.setId(probe_id_);
  const auto message = probe_message_.bytes(ForwardMessage::Form::kPlain);
  const int error = context_.send(address_.address, message, *this, probe_client_);
  if (isWantOfResources(error)) return probeAgainLater();
  if (error != 0) onProbeFailed(std::strerror(error));
}

// A local resource is short.
void UpstreamServer::probeAgainLater() {
  probing_ = Probing::kWaits;
  probe_timer_.start(std::max(context_.options.health_check.interval, kMinProbeInterval));
}

void UpstreamServer::onProbeTimer() {
  if (probing_ == Probing::kWaits) return probe();
  probe_ticket_.noteLate();
  onProbeFailed("i/o timeout");
}

void UpstreamServer::onProbeFailed(const std::string& reason) {
  probe_client_.close();
  probe_ticket_.drop();
  counters_.healthcheck_failures.add();
  countFailure(reason);
  probeAgainLater();
}

void UpstreamServer::onProbeMessage(std::span<const uint8_t> message) {
  if (message.size() < dns::kHeaderSize || dns::load16(message.data()) != probe_id_) return;
  if ((dns::load16(&message[2]) & dns::kFlagQr) != 0) noteAnswer(BootClock::now());
}

void UpstreamServer::onError(int error) { onProbeFailed(std::strerror(error)); }

void UpstreamServer::onStreamFailed(const std::string& reason, bool) { onProbeFailed(reason); }

UpstreamSet::UpstreamSet(ForwardContext& context) : context_(context), retry_(context.loop, [this] { onChange(); }) {}

Result<void> UpstreamSet::start() {
  for (const auto& list : context_.options.files->lists) {
    if (list) follow(list);
  }
  return use();
}

// The loop outlives the subscription, and so what it calls back.
void UpstreamSet::follow(const std::shared_ptr<UpstreamFile>& file) {
  const auto on_change = [this, &loop = context_.loop, seen = std::weak_ptr<bool>(alive_)] {
    loop.post([this, seen] {
      if (!seen.expired()) onChange();
    });
  };
  subscriptions_.push_back(std::make_unique<UpstreamFile::Subscription>(*file, on_change));
}

Result<std::vector<UpstreamAddress>> UpstreamSet::collect() const {
  std::vector<UpstreamAddress> addresses;
  const auto add = [&addresses](const UpstreamAddress& server) {
    if (std::find(addresses.begin(), addresses.end(), server) == addresses.end()) addresses.push_back(server);
  };
  const Forwarder::Options& options = context_.options;
  for (size_t i = 0; i < options.to.size(); ++i) {
    if (options.to[i].server) {
      add(*options.to[i].server);
    } else if (options.to[i].host) {
      for (const UpstreamAddress& server : options.files->hosts[i]) add(server);
    } else {
      for (const UpstreamAddress& server : *options.files->lists[i]->servers()) add(server);
    }
  }
  if (addresses.size() > Forwarder::kMaxTargets) {
    return fail(fmt::format("more than {} TOs configured: {}", Forwarder::kMaxTargets, addresses.size()));
  }
  return addresses;
}

void UpstreamSet::onChange() {
  const auto done = use();
  if (done) return;
  if (done.error().code == ErrorCode::kNoResources) return retry_.start(context_.options.file_interval);
  context_.log.warning("the servers stay as they are: {}", done.error().message);
}

// Goes over to what is named and listed now. An error changes nothing.
Result<void> UpstreamSet::use() {
  const auto addresses = collect();
  if (!addresses) return tl::unexpected(addresses.error());
  std::vector<bool> own;
  for (const UpstreamAddress& address : *addresses) {
    const auto is_own = isOwn(address);
    if (!is_own) return tl::unexpected(is_own.error());
    own.push_back(*is_own);
  }
  set(*addresses, own);
  return {};
}

void UpstreamSet::set(const std::vector<UpstreamAddress>& addresses, const std::vector<bool>& own) {
  auto servers = std::make_shared<UpstreamServers>();
  ourselves_.clear();
  for (size_t i = 0; i < addresses.size(); ++i) {
    const UpstreamAddress& address = addresses[i];
    if (own[i]) {
      context_.log.warning("{} is this server itself and is not forwarded to", address.toString());
      ourselves_.push_back(address);
      continue;
    }
    const auto same = [&address](const auto& server) { return server->address() == address; };
    const auto known = std::find_if(servers_->begin(), servers_->end(), same);
    servers->push_back(known != servers_->end() ? *known : std::make_shared<UpstreamServer>(context_, address));
  }
  if (servers->empty()) context_.log.warning("there is no server to forward to");
  private_ = !servers->empty() && std::all_of(servers->begin(), servers->end(), [](const auto& server) {
    return server->address().address.ip.isPrivate();
  });
  ServerReports::All reports;
  for (const auto& server : *servers) reports.push_back(server->report());
  reports_->set(std::move(reports));
  servers_ = std::move(servers);
}

Result<bool> UpstreamSet::isOwn(const UpstreamAddress& server) const {
  if (server.protocol != UpstreamProtocol::kDns) return false;
  const SocketAddress& address = server.address;
  for (const SocketAddress& own : context_.options.own) {
    if (own.port != address.port) continue;
    if (own.ip == address.ip) return true;
    if (!own.ip.isUnspecified()) continue;
    if (const auto local = net::isLocalAddress(address.ip); !local || *local) return local;
  }
  return false;
}

}  // namespace idetcd::resolver
