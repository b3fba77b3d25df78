// DNS over UDP on one socket of one loop (RFC 1035 §4.2.1, RFC 6891). Loop thread only.
//
// A wake-up takes at most kMaxBatches batches, so that TCP, timers and the answers of upstreams get their turn; the
// loop comes back for the rest. TCP calls serveWaiting() while it is busy: a datagram need not wait until all
// connections have had theirs.
#pragma once

#include "base/metrics.h"
#include "net/udp_socket.h"
#include "resolve/router.h"
#include "server/worker_context.h"

namespace idetcd::server {

class UdpService {
 public:
  UdpService(WorkerContext& context, net::UdpSocket socket, std::shared_ptr<const resolve::Router> router);
  ~UdpService();
  UdpService(const UdpService&) = delete;
  UdpService& operator=(const UdpService&) = delete;

  // From the next query on. Not within an answer.
  void setRouter(std::shared_ptr<const resolve::Router> router) { router_ = std::move(router); }
  const std::shared_ptr<const resolve::Router>& router() const { return router_; }

  void allowSharing() { socket_->allowSharing(); }
  // The socket outlives the process: a query leaves it when it is answered, or waits for its answer (net::UdpBatch).
  void keepUntilAnswered() { batch_.keepUntilFlush(*socket_); }
  // Nothing is read any more; what was read is answered. Not within an answer.
  void stopReading() { watcher_.reset(); }
  int fd() const { return socket_->fd(); }

  // One batch of every socket on this loop. Not within a ReadSection.
  static void serveWaiting(WorkerContext& context);

 private:
  static constexpr int kMaxBatches = 2;

  void onReadable();
  [[gnu::noinline]] size_t serveBatch();  // bench/load counts its instructions by its name
  resolve::BatchCounts answerBatch(size_t count, BootClock::time_point begin);

  WorkerContext& context_;
  std::shared_ptr<net::UdpSocket> socket_;
  metrics::CounterFunction overflowed_;
  std::shared_ptr<net::UdpReplies> replies_;  // the clients that wait for a later answer know it too
  SocketAddress local_;
  std::shared_ptr<const resolve::Router> router_;
  net::UdpBatch batch_;
  bool serving_ = false;
  std::vector<resolve::Job> jobs_;
  std::optional<net::ReadWatcher> watcher_;  // none: it reads no more
};

}  // namespace idetcd::server
