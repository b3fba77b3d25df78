// One question on its way through the upstreams, until one answers or the time is over. Loop thread only.
//
// A server that says one of the `failover` rcodes, or nothing that can be used, is followed by the next one; where all
// do, the last answer counts. A datagram that is not answered within the server's usual time (RoundTrip) is taken for
// lost: once a question, and within the budget of ExtraDatagrams, another one is sent: to the same server, or to
// another one where the policy holds them to be equals. What has been sent goes on waiting: whichever answer comes
// first counts. After `attempt_time` it is the next server's turn; where there is none, the same server is asked over
// TCP.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "dns/query.h"
#include "net/deadline.h"
#include "net/udp_client.h"
#include "resolve/forward.h"
#include "resolve/forward_message.h"
#include "resolve/stream_pool.h"
#include "resolve/upstream_choice.h"
#include "resolve/upstream_set.h"

namespace idetcd::resolve {

class ForwardExchange : private StreamWaiter {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // The last call; destroys the exchange.
    virtual void onExchangeDone(ForwardExchange& exchange, const ForwardResult& result) = 0;
    // There is no socket or port left. Whether another exchange was ended to free one.
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
  // A message on its way to a server.
  struct Attempt {
    Attempt() = default;
    Attempt(UpstreamServer& to, uint8_t to_index) : server(&to), index(to_index), edns(to.knowsEdns()) {}

    UpstreamServer* server = nullptr;
    uint8_t index = 0;  // the server's
    bool edns = true;
    bool edns_refused = false;
    bool repeated = false;  // an answer may be to either copy
    uint16_t id = 0;
    BootClock::time_point sent_at;
  };
  struct Datagram : Attempt, net::UdpClientHandler {
    explicit Datagram(ForwardExchange& owner) : exchange(owner) {}
    void onDatagram(std::span<const uint8_t> datagram) override { exchange.onMessage(*this, datagram); }
    void onError(int error) override { exchange.onDatagramError(*this, error); }

    ForwardExchange& exchange;
    net::UdpClient client;
  };

  void proceed();
  std::optional<uint8_t> choose();
  std::optional<uint8_t> chooseAny();
  std::optional<uint8_t> chooseEqual() const;
  bool mayBeAsked(uint8_t index) const { return ((tried_ | failed_) & bit(index)) == 0; }
  void onNobodyLeft();
  bool waitForEarlier();
  bool askOverTcp();

  Datagram& freeDatagram();
  Datagram& begin(uint8_t index);
  int sendDatagram(Datagram& datagram);
  bool attempt(uint8_t index);
  bool attemptStream();
  bool trustsAd(const UpstreamServer& server) const {
    return context_.options.trust_ad || server.address().protocol == UpstreamProtocol::kTls;
  }
  bool attemptDatagram(Datagram& datagram);
  void againWithoutEdns(Attempt& attempt);
  void againOverTcp(Attempt& attempt);
  void giveUp(Attempt& attempt);
  void giveServerUp(const Attempt& attempt, dns::EdeCode ede, const std::string& reason);
  void noteReason(const Attempt* attempt, dns::EdeCode ede, const std::string& reason);

  void onTime();
  bool sendExtra(Datagram& lost);
  bool askEqual(uint8_t index);
  void onAttemptTime();
  void onMessage(Attempt& attempt, std::span<const uint8_t> message);
  void onAnswer(Attempt& attempt, std::shared_ptr<const StoredResponse> response, BootClock::time_point now);
  void onUseless(Attempt& attempt);
  void onDatagramError(Datagram& datagram, int error);
  void onStreamMessage(std::span<const uint8_t> message) override { onMessage(stream_, message); }
  void onStreamFailed(const std::string& reason, bool used_before) override;

  void fail();
  void finishWith(std::shared_ptr<const StoredResponse> response);
  void finish(const ForwardResult& result) { owner_.onExchangeDone(*this, result); }
  static uint16_t bit(uint8_t index) { return static_cast<uint16_t>(1u << index); }

  ForwardContext& context_;
  Owner& owner_;
  dns::Query query_;  // its message is in message_
  ForwardMessage message_;
  const std::shared_ptr<const UpstreamServers> servers_;
  const UpstreamChoice::Order order_;
  // Bits of servers. For good, as far as this question is concerned: those that were asked; those that have failed;
  // those that gave an answer of no use.
  uint16_t tried_ = 0;
  uint16_t failed_ = 0;
  uint16_t rejected_ = 0;

  std::array<Datagram, 2> datagrams_{Datagram(*this), Datagram(*this)};
  Attempt stream_;
  StreamPool::Ticket ticket_;
  Attempt* current_ = nullptr;  // of these: the latest
  bool may_be_lost_ = false;    // the current one is a datagram, in its usual time
  bool extra_spent_ = false;
  bool tcp_tried_ = false;  // as the last resort
  uint8_t reconnects_ = 0;

  bool stream_first_;
  bool overloaded_ = false;  // it was for want of our own resources that it failed
  net::Deadline attempt_time_;
  net::Deadline total_time_;
  std::shared_ptr<const StoredResponse> refusal_;  // the last answer with a `failover` rcode
  dns::EdeCode ede_ = dns::EdeCode::kNoReachableAuthority;
  std::string reason_;
};

}  // namespace idetcd::resolve
