// One server that is forwarded to: whether it is well, what it understands, and the connections to it. Loop thread
// only.
//
// A server that does not answer is probed until it does (`health_check`); after `max_fails` failures in a row it counts
// as down. Any answer, even a refusal, is a sign of life. A server that refuses again and again what another one
// answers is left out for a second, then for two, up to half a minute, and tried with one question after each.
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
#include "resolve/extra_datagrams.h"
#include "resolve/forward.h"
#include "resolve/forward_message.h"
#include "resolve/round_trip.h"
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
  ExtraDatagrams extra;
  net::DeadlineLadder timeouts;  // after which a datagram counts as lost
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
  void noteAnswer(BootClock::time_point now);
  void noteFailure(const std::string& reason);

  const RoundTrip& roundTrip() const { return round_trip_; }
  // An answer to what was sent once only, and then.
  void noteRoundTrip(BootClock::time_point sent_at, BootClock::time_point now) {
    round_trip_.sample(now - sent_at, now);
  }
  // No answer within its usual time.
  void noteSilence(BootClock::time_point sent_at, BootClock::time_point now);
  // It would not answer what another server then answered; it answered.
  void noteRejected(BootClock::time_point now);
  void noteUseful() { rejections_ = 0; }
  // A question goes to it, be it as a trial.
  void noteAsked(BootClock::time_point now);

  // Silent for the last two seconds or less, whatever it was asked: to be asked if there is no other.
  bool isSuspect() const { return is_suspect_; }
  bool hasAnsweredSince(BootClock::time_point when) const { return answered_at_ > when; }
  // Known to fail: down, about to be, or always refusing and not due for a trial.
  bool isAvoided(BootClock::time_point now) const {
    return (fails_ > 0 && probing_ != Probing::kNo) || isDown() || (rejections_ >= kMaxRejections && now < trial_at_);
  }

  // The question was answered by another server, but this one may still say how long it takes.
  void awaitLate(net::UdpClient&& client, uint16_t id, BootClock::time_point sent_at, bool repeated);

  // What a message to it looks like: padded where it is encrypted.
  ForwardMessage::Form form(bool with_edns) const {
    if (!with_edns) return ForwardMessage::Form::kPlain;
    return address_.protocol == UpstreamProtocol::kTls ? ForwardMessage::Form::kPadded : ForwardMessage::Form::kEdns;
  }
  // Whether it is worth sending an OPT; noteNoEdns() settles that for a while.
  bool knowsEdns() const { return BootClock::now() >= no_edns_until_; }
  void noteNoEdns();

 private:
  enum class Probing : uint8_t { kNo, kAsked, kWaits };
  static constexpr uint32_t kMaxRejections = 4;  // in a row

  // Waits for one answer that comes too late for its question.
  struct Late : net::UdpClientHandler {
    explicit Late(UpstreamServer& owner);
    void onDatagram(std::span<const uint8_t> datagram) override;
    void onError(int error) override;
    void onTimer();

    UpstreamServer& server;
    net::UdpClient client;
    uint16_t id = 0;
    bool repeated = false;
    BootClock::time_point sent_at;
    net::Timer timer;
  };

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

  RoundTrip round_trip_;
  BootClock::time_point answered_at_{};  // last
  bool is_suspect_ = false;
  net::Timer suspicion_;  // ends it
  uint32_t rejections_ = 0;
  std::chrono::nanoseconds trial_time_{0};
  BootClock::time_point trial_at_{};
  Late late_;

  uint32_t fails_ = 0;
  Probing probing_ = Probing::kNo;
  net::Timer probe_timer_;
  ForwardMessage probe_message_;
  uint16_t probe_id_ = 0;
  net::UdpClient probe_client_;
  StreamPool::Ticket probe_ticket_;
};

}  // namespace idetcd::resolve
