#include "resolve/upstream_server.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace idetcd::resolve {

namespace {

constexpr std::chrono::milliseconds kProbeTime{1000};
constexpr std::chrono::milliseconds kMinProbeInterval{10};  // whatever is configured, a dead server is no busy loop
constexpr std::chrono::minutes kNoEdnsTime{15};

}  // namespace

ForwardContext::ForwardContext(net::EventLoop& event_loop, Forwarder::Options forward_options, Logger logger)
    : loop(event_loop),
      options(std::move(forward_options)),
      log(std::move(logger)),
      udp(event_loop, random, options.descriptors),
      tcp(event_loop),
      attempts(event_loop, options.attempt_time),
      totals(event_loop, options.total_time) {}

UpstreamServer::UpstreamServer(ForwardContext& context, const UpstreamAddress& address)
    : context_(context),
      address_(address),
      streams_(context.loop, context.random, {.expire = context.options.expire}, [this] { return connect(); }),
      probe_timer_(context.loop, [this] { onProbeTimer(); }) {
  if (address.protocol == UpstreamProtocol::kTls) {
    tls_peer_ = std::make_unique<net::TlsPeer>(context.tls, context.options.tls.server_name, address.address.ip);
  }
}

Result<std::unique_ptr<net::Stream>> UpstreamServer::connect() {
  auto connection = context_.tcp.connect(address_.address);
  if (!connection) return tl::unexpected(connection.error());
  if (tls_peer_) return std::make_unique<net::TlsStream>(*tls_peer_, std::move(*connection));
  return std::move(*connection);
}

void UpstreamServer::noteAnswer() {
  if (fails_ == 0 && probing_ == Probing::kNo) [[likely]]
    return;
  if (isDown()) context_.log.info("{} answers again", address_.toString());
  fails_ = 0;
  probing_ = Probing::kNo;
  probe_timer_.stop();
  probe_client_.close();
  probe_ticket_.drop();
}

// While it is probed only the probes count: of a thousand questions that were asked in the same second a thousand fail
// in the same second too, and say no more than one.
void UpstreamServer::noteFailure(const std::string& reason) {
  if (context_.options.max_fails == 0 || probing_ != Probing::kNo) return;
  countFailure(reason);
  probe();
}

void UpstreamServer::countFailure(const std::string& reason) {
  const bool was_down = isDown();
  ++fails_;
  if (isDown() && !was_down) context_.log.warning("{} does not answer: {}", address_.toString(), reason);
}

void UpstreamServer::noteNoEdns() { no_edns_until_ = BootClock::now() + kNoEdnsTime; }

void UpstreamServer::probe() {
  const Forwarder::HealthCheck& check = context_.options.health_check;
  probing_ = Probing::kAsked;
  probe_message_.assignProbe(check.domain, check.recursion_desired);
  probe_timer_.start(kProbeTime);
  if (isStreamOnly()) {
    const auto id = streams_.send(probe_message_.octets(false), *this, probe_ticket_);
    if (!id) return onProbeFailed(id.error().message);
    probe_id_ = *id;
    return;
  }
  probe_id_ = context_.random.next16();
  probe_message_.setId(probe_id_);
  const int error = context_.udp.send(address_.address, probe_message_.octets(false), *this, probe_client_);
  if (error != 0) onProbeFailed(std::strerror(error));
}

void UpstreamServer::onProbeTimer() {
  if (probing_ == Probing::kWaits) return probe();
  probe_ticket_.dropLate();
  onProbeFailed("timed out");
}

void UpstreamServer::onProbeFailed(const std::string& reason) {
  probing_ = Probing::kWaits;
  probe_client_.close();
  probe_ticket_.drop();
  ++context_.counters.healthcheck_failures;
  countFailure(reason);
  probe_timer_.start(std::max(context_.options.health_check.interval, kMinProbeInterval));
}

void UpstreamServer::onProbeMessage(std::span<const uint8_t> message) {
  if (message.size() < dns::kHeaderSize || dns::load16(message.data()) != probe_id_) return;
  if ((dns::load16(&message[2]) & dns::kFlagQr) != 0) noteAnswer();
}

void UpstreamServer::onError(int error) { onProbeFailed(std::strerror(error)); }

void UpstreamServer::onStreamFailed(const std::string& reason, bool) { onProbeFailed(reason); }

}  // namespace idetcd::resolve
