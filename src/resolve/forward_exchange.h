// One question on its way through the upstreams: attempt after attempt until one answers or the time is over. Loop
// thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "dns/query.h"
#include "net/deadline.h"
#include "net/udp_client.h"
#include "resolve/forward.h"
#include "resolve/forward_message.h"
#include "resolve/stream_pool.h"
#include "resolve/upstream_set.h"

namespace idetcd::resolve {

class ForwardExchange : private net::UdpClientHandler, private StreamWaiter {
 public:
  // In which order servers are asked: indices, each once.
  using Order = std::array<uint8_t, Forwarder::kMaxTargets>;

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
                  std::shared_ptr<const UpstreamServers> servers, const Order& order, bool stream_first);

  // May end, and destroy this, before it returns.
  void start();
  const dns::Query& query() const { return query_; }

 private:
  using Reason = std::string;

  void proceed();
  UpstreamServer* choose();
  UpstreamServer* chooseAny();
  bool attempt();
  bool attemptStream();
  bool attemptDatagram();
  void again();
  void giveServerUp(dns::EdeCode ede, const std::string& reason);
  void noteReason(dns::EdeCode ede, const std::string& reason);
  bool trustsAd() const { return context_.options.trust_ad || server_->address().protocol == UpstreamProtocol::kTls; }
  bool isUsable(uint8_t index) const { return (failed_ & (1u << index)) == 0; }

  void onMessage(std::span<const uint8_t> message);
  void onAnswer(std::shared_ptr<const StoredResponse> response);
  void onAttemptTime();
  void fail();
  void finish(const ForwardResult& result) { owner_.onExchangeDone(*this, result); }

  void onDatagram(std::span<const uint8_t> datagram) override { onMessage(datagram); }
  void onError(int error) override;
  void onStreamMessage(std::span<const uint8_t> message) override { onMessage(message); }
  void onStreamFailed(const std::string& reason, bool used_before) override;

  ForwardContext& context_;
  Owner& owner_;
  dns::Query query_;  // its message is in message_
  ForwardMessage message_;
  const std::shared_ptr<const UpstreamServers> servers_;
  const Order order_;
  uint8_t position_ = 0;  // in order_
  uint16_t failed_ = 0;   // bits of servers that have failed for good, as far as this question is concerned

  // The attempt.
  UpstreamServer* server_ = nullptr;
  uint8_t server_index_ = 0;
  bool stream_ = false;
  bool edns_ = true;
  bool edns_refused_ = false;
  uint8_t reconnects_ = 0;
  uint16_t id_ = 0;
  net::UdpClient client_;
  StreamPool::Ticket ticket_;

  bool stream_first_;
  bool overloaded_ = false;  // it was for want of our own resources that it failed
  net::Deadline attempt_time_;
  net::Deadline total_time_;
  dns::EdeCode ede_ = dns::EdeCode::kNoReachableAuthority;
  std::string reason_;
};

}  // namespace idetcd::resolve
