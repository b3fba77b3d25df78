// One server that is forwarded to: whether it is well, what it understands, and the connections to it. Loop thread
// only.
//
// A server that does not answer is probed until it does (`health_check`); after `max_fails` failures in a row it counts
// as down. Any answer, even a refusal, is a sign of life. A server that refuses again and again what another one
// answers is left out for a second, then for two, up to half a minute, and tried with one question after each.
#pragma once

#include "base/clock.h"
#include "base/log.h"
#include "dns/types.h"
#include "net/deadline.h"
#include "net/tcp.h"
#include "net/tls_stream.h"
#include "net/udp_query_socket.h"
#include "resolver/counters.h"
#include "resolver/forward_files.h"
#include "resolver/forward_message.h"
#include "resolver/forwarder.h"
#include "resolver/stream_pool.h"
#include "resolver/upstream.h"
#include "resolver/upstream_cookie.h"

namespace idetcd::resolver {

// How many datagrams may be sent a second time, or how many questions over TCP as well: less than a tenth of the
// questions, whatever is lost. A server that is gone is not sent twice what it was sent before, and loss that comes
// from too much traffic does not make more of it. A token bucket that is filled by questions. One thread.
class ExtraDatagrams {
 public:
  // For each question.
  void earn() { tokens_ = std::min(tokens_ + kEarned, kMax); }
  // False: not now.
  bool take() {
    if (tokens_ < kPrice) return false;
    tokens_ -= kPrice;
    return true;
  }

 private:
  // With what it starts with, no more than a tenth once there were 500 questions.
  static constexpr int32_t kPrice = 100;
  static constexpr int32_t kEarned = 9;
  static constexpr int32_t kInitial = 5 * kPrice;
  static constexpr int32_t kMax = 100 * kPrice;
  int32_t tokens_ = kInitial;
};

// How long one server takes to answer: the estimator of RFC 6298 §2, with what DNS needs beside it. One thread.
//
// A sample is the time from a message to its answer. An answer to a message that was sent twice says nothing (Karn's
// rule, RFC 6298 §3), so the timeout that has doubled stays until an unambiguous one comes.
class RoundTrip {
 public:
  using Time = std::chrono::nanoseconds;

  static constexpr Time kInitialTimeout = std::chrono::milliseconds(400);  // of a server that has not answered yet
  static constexpr Time kMinTimeout = std::chrono::milliseconds(50);
  static constexpr Time kMaxTimeout = std::chrono::milliseconds(2000);

  void sample(Time time, BootClock::time_point now);
  // There was no answer within timeout(), which doubles; at most once in its own time, because the messages of one
  // burst are lost together (RFC 6298 §5.5 has one timer for all).
  void backOff(BootClock::time_point now);

  // After which a message counts as lost: SRTT + 4 * RTTVAR, within the bounds above.
  Time timeout() const;
  // SRTT. Zero: there was no sample.
  Time smoothed() const { return srtt_; }
  // The expected time of the next message. Zero: nothing is known. An old estimate fades, so that a server that was slow
  // once is measured again.
  Time expected(BootClock::time_point now) const;

 private:
  Time srtt_{0};
  Time rttvar_{0};
  int doublings_ = 0;
  BootClock::time_point changed_at_{};
};

// Data that the parts of one Forwarder share.
struct ForwardContext {
  // REQUIRES: the options have a room.
  ForwardContext(net::EventLoop& event_loop, Forwarder::Options forward_options, Logger logger);

  // As net::UdpQuerySockets::send(). The sockets are counted.
  int send(const SocketAddress& to, std::span<const uint8_t> datagram, net::UdpQueryHandler& handler,
           net::UdpQuerySocket& client) {
    net::UdpQuerySockets& sockets = sourceOf(to.ip) ? *source_udp : room.udp();
    return sockets.send(to, datagram, handler, client, &datagrams);
  }
  // The address that is named for what is sent there.
  std::optional<IpAddress> sourceOf(const IpAddress& to) const {
    const auto& source = options.source_address;
    return source && source->family() == to.family() ? source : std::nullopt;
  }
  // Makes the sockets that are bound to Options::source_address, if there is one.
  Result<void> openSource();

  net::EventLoop& loop;
  const Forwarder::Options options;
  Logger log;
  ForwardCounters counters;
  UpstreamBudget& room;
  std::shared_ptr<net::UdpQuerySockets> source_udp;  // null: no source is named
  SecureRandom& random;
  size_t datagrams = 0;  // open sockets
  net::TcpConnector tcp;
  std::shared_ptr<net::TlsContext> tls;    // null: no server needs it
  std::shared_ptr<net::TlsContext> https;  // the same
  ExtraDatagrams extra;
  ExtraDatagrams extra_over_tcp;  // questions asked over TCP before the server has had its time
  net::DeadlineLadder timeouts;   // after which a datagram counts as lost
  net::DeadlineQueue attempts;
  net::DeadlineQueue totals;
};

class UpstreamServer : private net::UdpQueryHandler, private StreamWaiter {
 public:
  UpstreamServer(ForwardContext& context, const UpstreamAddress& address);
  ~UpstreamServer() override;
  UpstreamServer(const UpstreamServer&) = delete;
  UpstreamServer& operator=(const UpstreamServer&) = delete;

  const UpstreamAddress& address() const { return address_; }
  const std::shared_ptr<ServerReport>& report() const { return report_; }
  bool isStreamOnly() const { return isEncrypted(address_.protocol) || context_.options.force_tcp; }
  // Whether a message over a stream asks how long the connection may be idle. HTTP has its own ways to end one.
  bool asksKeepalive() const { return address_.protocol != UpstreamProtocol::kHttps; }
  StreamPool& streams() { return streams_; }

  bool isDown() const { return context_.options.max_fails > 0 && fails_ >= context_.options.max_fails; }
  void noteAnswer(BootClock::time_point now);
  void noteFailure(const std::string& reason);
  // For the metrics: an answer with this rcode (of the header), and how long it took; a question over a connection.
  void noteResponse(dns::Rcode rcode, std::chrono::nanoseconds duration);
  void noteConnection(bool was_open) { (was_open ? connection_counters_.hits : connection_counters_.misses).add(); }

  const RoundTrip& roundTrip() const { return round_trip_; }
  // An answer to what was sent once only, and then.
  void noteRoundTrip(BootClock::time_point sent_at, BootClock::time_point now) {
    round_trip_.sample(now - sent_at, now);
    report_->setRoundTrip(round_trip_.smoothed());
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
  // How long it has said nothing since it was asked; zero: it has answered, or was not asked.
  std::chrono::nanoseconds silence(BootClock::time_point now) const {
    return asked_at_ > answered_at_ ? now - asked_at_ : std::chrono::nanoseconds(0);
  }
  // Known to fail: down, about to be, or always refusing and not due for a trial.
  bool isAvoided(BootClock::time_point now) const {
    return (fails_ > 0 && probing_ != Probing::kNo) || isDown() || (rejections_ >= kMaxRejections && now < trial_at_);
  }

  // The question was answered by another server, but this one may still say how long it takes.
  void awaitLate(net::UdpQuerySocket&& client, uint16_t id, BootClock::time_point sent_at, bool repeated);

  // The form of a message to it: padded where it is encrypted.
  ForwardMessage::Form form(bool with_edns) const {
    if (!with_edns) return ForwardMessage::Form::kPlain;
    return isEncrypted(address_.protocol) ? ForwardMessage::Form::kPadded : ForwardMessage::Form::kEdns;
  }
  // Of messages whose form is kEdns.
  UpstreamCookie& cookie() { return cookie_; }
  // Whether it is worth sending an OPT; noteNoEdns() settles that for a while.
  bool knowsEdns() const { return BootClock::now() >= no_edns_until_; }
  void noteNoEdns();

 private:
  enum class Probing : uint8_t { kNo, kAsked, kWaits };
  static constexpr uint32_t kMaxRejections = 4;  // in a row

  // Waits for one answer that comes too late for its question.
  struct Late : net::UdpQueryHandler {
    explicit Late(UpstreamServer& owner);
    void onDatagram(std::span<const uint8_t> datagram) override;
    void onError(int error) override;
    void onTimer();

    UpstreamServer& server;
    net::UdpQuerySocket client;
    uint16_t id = 0;
    bool repeated = false;
    BootClock::time_point sent_at;
    net::Timer timer;
  };

  Result<std::unique_ptr<net::Stream>> connect();
  // The name in its certificate; empty: its address.
  const std::string& serverName() const;
  std::string authority() const;
  void findInterface();
  void probe();
  void onProbeTimer();
  void onProbeFailed(const std::string& reason);
  void probeAgainLater();
  void onProbeMessage(std::span<const uint8_t> message);
  void countFailure(const std::string& reason);
  void setUp(bool up);

  void onDatagram(std::span<const uint8_t> datagram) override { onProbeMessage(datagram); }
  void onError(int error) override;
  void onStreamMessage(std::span<const uint8_t> message) override { onProbeMessage(message); }
  void onStreamFailed(const std::string& reason, bool used_before) override;

  ForwardContext& context_;
  UpstreamAddress address_;
  const std::shared_ptr<ServerReport> report_;
  UpstreamCounters counters_;
  UpstreamConnectionCounters connection_counters_;
  std::array<std::unique_ptr<UpstreamAnswers>, 16> answers_;  // by rcode, once there was one
  std::unique_ptr<net::TlsPeer> tls_peer_;
  StreamPool streams_;
  BootClock::time_point no_edns_until_{};
  UpstreamCookie cookie_;

  RoundTrip round_trip_;
  BootClock::time_point answered_at_{};  // last
  BootClock::time_point asked_at_{};     // first since then
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
  net::UdpQuerySocket probe_client_;
  StreamPool::Ticket probe_ticket_;
};

using UpstreamServers = std::vector<std::shared_ptr<UpstreamServer>>;

// The servers of one `forward`, in the order of its TOs: those named there, and those of the files named there, as they
// change. Servers that stay keep their health and their connections. Loop thread only.
class UpstreamSet {
 public:
  explicit UpstreamSet(ForwardContext& context);

  // Begins to follow the files. An error if there are too many servers.
  Result<void> start();

  // Never null; may be empty. Immutable: a holder is not disturbed by a change.
  const std::shared_ptr<const UpstreamServers>& servers() const { return servers_; }
  // Whether there are some, each at a private address: what is named by none of the world's servers, they may know.
  bool isPrivate() const { return private_; }
  // Of servers(), at any time.
  std::shared_ptr<const ServerReports> reports() const { return reports_; }
  // Named as a target, but this process itself.
  const std::vector<UpstreamAddress>& ourselves() const { return ourselves_; }

 private:
  Result<std::vector<UpstreamAddress>> collect() const;
  void follow(const std::shared_ptr<UpstreamFile>& file);
  void onChange();
  Result<void> use();
  void set(const std::vector<UpstreamAddress>& addresses, const std::vector<bool>& own);
  Result<bool> isOwn(const UpstreamAddress& server) const;

  ForwardContext& context_;
  std::shared_ptr<const UpstreamServers> servers_ = std::make_shared<UpstreamServers>();
  const std::shared_ptr<ServerReports> reports_ = std::make_shared<ServerReports>();
  std::vector<UpstreamAddress> ourselves_;
  bool private_ = false;
  net::Timer retry_;                                            // of what could not be used without free descriptors
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for what is posted
  std::vector<std::unique_ptr<UpstreamFile::Subscription>> subscriptions_;
};

}  // namespace idetcd::resolver
