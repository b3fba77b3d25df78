// One server that is forwarded to: whether it is well, what it understands, and the connections to it. Loop thread
// only.
//
// A server that does not answer is probed until it does (`health_check`); after `max_fails` failures in a row it counts
// as down. Any answer, even a refusal, is a sign of life.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "net/deadline.h"
#include "net/secure_random.h"
#include "net/tcp.h"
#include "net/tls_stream.h"
#include "net/udp_client.h"
#include "resolve/forward.h"
#include "resolve/forward_message.h"
#include "resolve/stream_pool.h"
#include "resolve/upstream.h"

namespace idetcd::resolve {

// What the parts of one Forwarder share.
struct ForwardContext {
  ForwardContext(net::EventLoop& event_loop, Forwarder::Options forward_options, Logger logger);

  net::EventLoop& loop;
  const Forwarder::Options options;
  Logger log;
  Forwarder::Counters counters;
  net::SecureRandom random;
  net::UdpClients udp;
  net::TcpConnector tcp;
  std::shared_ptr<net::TlsContext> tls;  // null: no server needs it
  net::DeadlineQueue attempts;
  net::DeadlineQueue totals;
};

class UpstreamServer : private net::UdpClientHandler, private StreamWaiter {
 public:
  UpstreamServer(ForwardContext& context, const UpstreamAddress& address);

  const UpstreamAddress& address() const { return address_; }
  bool isStreamOnly() const { return address_.protocol == UpstreamProtocol::kTls || context_.options.force_tcp; }
  StreamPool& streams() { return streams_; }

  bool isDown() const { return context_.options.max_fails > 0 && fails_ >= context_.options.max_fails; }
  void noteAnswer();
  void noteFailure(const std::string& reason);

  // Whether it is worth sending an OPT; noteNoEdns() settles that for a while.
  bool knowsEdns() const { return BootClock::now() >= no_edns_until_; }
  void noteNoEdns();

 private:
  enum class Probing : uint8_t { kNo, kAsked, kWaits };

  Result<std::unique_ptr<net::Stream>> connect();
  void probe();
  void onProbeTimer();
  void onProbeFailed(const std::string& reason);
  void onProbeMessage(std::span<const uint8_t> message);
  void countFailure(const std::string& reason);

  void onDatagram(std::span<const uint8_t> datagram) override { onProbeMessage(datagram); }
  void onError(int error) override;
  void onStreamMessage(std::span<const uint8_t> message) override { onProbeMessage(message); }
  void onStreamFailed(const std::string& reason, bool used_before) override;

  ForwardContext& context_;
  const UpstreamAddress address_;
  std::unique_ptr<net::TlsPeer> tls_peer_;
  StreamPool streams_;
  BootClock::time_point no_edns_until_{};

  uint32_t fails_ = 0;
  Probing probing_ = Probing::kNo;
  net::Timer probe_timer_;
  ForwardMessage probe_message_;
  uint16_t probe_id_ = 0;
  net::UdpClient probe_client_;
  StreamPool::Ticket probe_ticket_;
};

}  // namespace idetcd::resolve
