// One question on its way through the upstreams, until one answers or the time is over. Loop thread only.
//
// A server that says one of the `failover` rcodes, or nothing that can be used, is followed by the next one; where all
// do, the last answer counts. A datagram that is not answered within the server's usual time (RoundTrip) is taken for
// lost: once a question, and within the budget of ExtraDatagrams, another one is sent: to the same server, or to
// another one where the policy holds them to be equals. What has been sent goes on waiting: whichever answer comes
// first counts. Where there is no other server to ask and the second one is lost too, or must not be sent, the question
// goes over TCP, which repeats what is lost until it has come: within a budget too, since it may just be a hard
// question. After `attempt_time` it is the next server's turn; where there is none, the same server is asked over TCP,
// or over another connection where the one that was used is silent, which may have died while it was idle; within the
// budget that is found out after twice the usual time. Where nothing is left to be done, an answer is waited for as
// long as the client waits.
//
// Datagrams from the server's address and port that are no answer to what was asked may be somebody's guesses (RFC 5452
// §9.2). Who sends them has found the port, and guesses an ID right with 1 in 65,536. With kMaxNearMisses of them the
// question goes over TCP, where no guess counts, and over nothing else from then on: if that cannot be, it fails. So
// the chance of a forgery ends at 4 in 65,536 for each question that is attacked (0.006 %), which would be 14 % with
// the 10,000 guesses that fit into the time of a slow answer. Fewer may be strays: a datagram that the network has
// doubled, or one that is late.
//
// With `use_caps_for_id` the letters of the name are in random case in datagrams, and an answer over UDP must have them
// so: as many bits more to guess. One that has the name in another case is a guess, or from a server that changes the
// case: the question goes over TCP at once.
#pragma once

#include "dns/query.h"
#include "net/deadline.h"
#include "net/udp_query_socket.h"
#include "resolver/forward_message.h"
#include "resolver/forwarder.h"
#include "resolver/stream_pool.h"
#include "resolver/upstream_choice.h"

namespace idetcd::resolver {

class ForwardExchange {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // The last call; destroys the exchange.
    virtual void onExchangeDone(ForwardExchange& exchange, const ForwardResult& result) = 0;
    // There is no socket or port left. Whether another exchange, of this owner or another, was ended to free one.
    virtual bool makeRoom(ForwardExchange& exchange) = 0;
  };

  // `stream_first`: over TCP where a server is not known to want something else.
  ForwardExchange(ForwardContext& context, Owner& owner, const dns::Query& query,
                  std::shared_ptr<const UpstreamServers> servers, const UpstreamChoice::Order& order,
                  bool stream_first);

  // May end, and destroy this, before it returns.
  void start();
  const dns::Query& query() const { return query_; }

 private:
  // A question on its way to a server, which is what goes over to another way to the same one.
  struct Target {
    UpstreamServer* server = nullptr;
    uint8_t index = 0;  // the server's
    bool edns = true;
    bool edns_refused = false;
    bool cookie_refused = false;
    bool cookie_renewed = false;  // by BADCOOKIE
  };
  // A message on its way.
  struct Attempt {
    virtual ~Attempt() = default;
    virtual bool isStream() const = 0;
    virtual bool isWaiting() const = 0;
    virtual void giveUp() = 0;  // nothing more is expected of it

    Target to;
    std::optional<UpstreamCookie::Client> cookie;  // that the message carries
    bool repeated = false;                         // an answer may be to either copy
    uint16_t id = 0;
    BootClock::time_point sent_at;
  };
  struct Datagram final : Attempt, net::UdpQueryHandler {
    explicit Datagram(ForwardExchange& owner) : exchange(owner) {}
    bool isStream() const override { return false; }
    bool isWaiting() const override { return client.isOpen(); }
    void giveUp() override { client.close(); }
    void onDatagram(std::span<const uint8_t> datagram) override { exchange.onMessage(*this, datagram); }
    void onError(int error) override { exchange.onDatagramError(*this, error); }
    // The question no longer waits for it, but how long the server takes is worth knowing all the same.
    void awaitLate() { to.server->awaitLate(std::move(client), id, sent_at, repeated); }

    ForwardExchange& exchange;
    net::UdpQuerySocket client;
  };
  struct Stream final : Attempt, StreamWaiter {
    explicit Stream(ForwardExchange& owner) : exchange(owner) {}
    bool isStream() const override { return true; }
    bool isWaiting() const override { return ticket.isWaiting(); }
    void giveUp() override { ticket.drop(); }
    void onStreamMessage(std::span<const uint8_t> message) override { exchange.onMessage(*this, message); }
    void onStreamFailed(const std::string& reason, bool used_before) override {
      exchange.onStreamFailed(reason, used_before);
    }

    ForwardExchange& exchange;
    StreamPool::Ticket ticket;
    uint8_t reconnects = 0;
    bool cookie_missing = false;  // in an answer over UDP: the server is asked here whether that is its own
  };

  void proceed();
  std::optional<uint8_t> choose();
  void onNobodyLeft();
  bool waitForRest();
  bool waitForEarlier();
  bool askOverTcp();
  bool askOverTcpSoon();
  bool askOverNewConnection();
  bool leaveSilentConnection();
  bool isWaiting() const;

  Target targetOf(uint8_t index) const;
  Datagram& begin(uint8_t index);
  int sendDatagram(Datagram& datagram);
  bool attempt(uint8_t index);
  bool attemptStream(BootClock::time_point proven = {});
  bool trustsAd(const UpstreamServer& server) const {
    return context_.options.trust_ad || isEncrypted(server.address().protocol);
  }
  bool attemptDatagram(Datagram& datagram);
  std::span<const uint8_t> messageFor(Attempt& attempt);
  void noteOwnAddress(const Datagram& datagram);
  bool takeCookie(Attempt& attempt, std::span<const uint8_t> message, BootClock::time_point now);
  void onBadCookie(Attempt& attempt, bool has_new);
  void onHopFailure(Attempt& attempt, dns::Rcode rcode);
  void again(Attempt& attempt);
  void againWithoutEdns(Attempt& attempt);
  void againOverTcp(Attempt& attempt);
  void giveServerUp(const Attempt& attempt, dns::EdeCode ede, const std::string& reason);
  void noteStreamFailed();
  void leaveServer(const Attempt& attempt);
  void noteReason(dns::EdeCode ede, const std::string& reason);
  void noteReason(const Attempt& attempt, dns::EdeCode ede, const std::string& reason);
  void noteWantOfResources(const Attempt& attempt, const std::string& reason);

  void onTime();
  void onTotalTime();
  bool onUsualTime();
  bool onRepetitionTime();
  bool sendExtra(Datagram& lost);
  bool askEqual(uint8_t index);
  void onAttemptTime();
  void noteSilentBefore();
  bool mayUseDatagrams(const UpstreamServer& server) const {
    return !server.isStreamOnly() && transport_ == Transport::kDatagrams;
  }
  void onNearMiss(Attempt& attempt);
  bool isInOtherCase(const Attempt& attempt, std::span<const uint8_t> message) const;
  void readMessage(Attempt& attempt, std::span<const uint8_t> message);
  void onMessage(Attempt& attempt, std::span<const uint8_t> message);
  void onAnswer(Attempt& attempt, std::shared_ptr<const StoredResponse> response, BootClock::time_point now);
  void onUseless(Attempt& attempt);
  void onDatagramError(Datagram& datagram, int error);
  void onStreamFailed(const std::string& reason, bool used_before);

  void fail();
  void finishWith(std::shared_ptr<const StoredResponse> response);
  void finish(const ForwardResult& result) { owner_.onExchangeDone(*this, result); }

  ForwardContext& context_;
  Owner& owner_;
  dns::Query query_;  // its message is in message_
  ForwardMessage message_;
  Candidates candidates_;

  std::array<Datagram, 2> datagrams_{Datagram(*this), Datagram(*this)};
  Stream stream_{*this};
  Attempt* current_ = nullptr;  // of these: the latest
  // Of the current attempt, what the timer ends. A datagram's usual time, that of its repetition, or of a message over
  // a connection that was there before; then the attempt's.
  enum class Time : uint8_t { kUsual, kRepetition, kAttempt };
  Time time_ = Time::kAttempt;
  // Of servers that take both.
  enum class Transport : uint8_t {
    kDatagrams,
    kStreamFirst,  // the client came over TCP; where that fails, datagrams
    kStreamOnly    // after too many near misses
  };
  Transport transport_;
  bool extra_spent_ = false;
  bool tcp_tried_ = false;  // as the last resort
  uint8_t near_misses_ = 0;

  net::Deadline attempt_time_;
  net::Deadline total_time_;
  std::shared_ptr<const StoredResponse> refusal_;  // the last answer with a `failover` rcode
  ForwardResult failure_{
      .response = nullptr, .rcode = dns::Rcode::kServFail, .ede = dns::EdeCode::kNoReachableAuthority, .reason = {}};
};

}  // namespace idetcd::resolver
