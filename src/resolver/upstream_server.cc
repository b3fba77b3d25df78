#include "resolver/upstream_server.h"

#include <net/if.h>

#include "resolver/doh_stream.h"

namespace idetcd::resolver {

namespace {

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

ForwardContext::ForwardContext(net::EventLoop& event_loop, Forwarder::Options forward_options, Logger logger)
    : loop(event_loop),
      options(std::move(forward_options)),
      log(std::move(logger)),
      counters(options.metrics),
      room(*options.room),
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

}  // namespace idetcd::resolver
