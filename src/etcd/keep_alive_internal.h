// The LeaseKeepAlive stream that all leases of a client share. For etcd/*.cc only; completion thread only.
#pragma once

#include "etcd/bidi_stream_internal.h"
#include "etcd/client.h"
#include "etcd/client_internal.h"

namespace idetcd::etcd {

class KeepAliveStream final : public BidiStream<pb::LeaseKeepAliveRequest, pb::LeaseKeepAliveResponse> {
 public:
  static std::shared_ptr<KeepAliveStream> open(CompletionThread::Impl& thread,
                                               const std::shared_ptr<Endpoints>& endpoints, size_t endpoint,
                                               const std::string& token);

  // One request and its answer. A time-out retires the stream: its endpoint is taken for dead, and an answer that is
  // late must not be taken for that of a later request, whose sent_at would promise too much.
  static Task<StoreResult<Lease>> exchange(std::shared_ptr<KeepAliveStream> stream, int64_t id,
                                           std::optional<BootClock::time_point> deadline);

  bool usable() const { return !retired_ && !ended(); }
  // No new requests: it ends when no caller waits for an answer any more.
  void retire();
  size_t endpoint() const { return endpoint_; }

 private:
  struct Exchange {
    int64_t id;
    Suspension* waiter;  // null: given up
    BootClock::time_point sent_at;
    std::optional<StoreResult<Lease>> result;
  };

  KeepAliveStream(CompletionThread::Impl& thread, std::shared_ptr<Endpoints> endpoints, size_t endpoint)
      : BidiStream<pb::LeaseKeepAliveRequest, pb::LeaseKeepAliveResponse>(thread),
        endpoints_(std::move(endpoints)),
        endpoint_(endpoint) {}

  void onSend(const pb::LeaseKeepAliveRequest& request) override;
  void onMessage(pb::LeaseKeepAliveResponse& response) override;
  void onEnd(const StoreError& error) override;

  const std::shared_ptr<Endpoints> endpoints_;
  const size_t endpoint_;
  bool retired_ = false;
  // Both in the order of sending, which is the order of etcd's answers.
  std::deque<std::shared_ptr<Exchange>> unsent_;
  std::deque<std::shared_ptr<Exchange>> awaited_;
};

}  // namespace idetcd::etcd
