// DNS over TCP on one listener of one loop (RFC 7766, RFC 9210), over TLS (RFC 7858) or over HTTPS (RFC 8484):
// pipelined, kept open. Loop thread only.
//
// A connection without a whole query for idleTimeout() is closed (before the first: `of_clients.firstTime()`). Beyond
// `max_connections` or the descriptors, the longest idle connection of the client with most gives way
// (client_connections.h); beyond `max_per_client`, off loopback, the client's own. RFC 7828's option tells the time. A
// client that does not read is not read from. A late answer is put off while more than kMaxQueued bytes wait or a
// WriteBudget is used up: its question is kept, and answered anew when the client has read. A reply of many messages is made
// as its client reads it. Nothing read for
// `of_clients.writeTime()`, or kScarceStall while the budget is scarce: closed. Beyond `max_input` bytes of unfinished
// queries, the longest is closed.
#pragma once

#include <list>

#include "base/file_descriptor.h"
#include "net/tcp.h"
#include "net/tls_stream.h"
#include "resolve/router.h"
#include "resolve/tcp_limits.h"
#include "server/client_connections.h"
#include "server/worker_context.h"

namespace idetcd::server {

// What the messages of a listener's connections travel in.
struct Carrier {
  std::shared_ptr<const net::TlsServer> tls{};  // null: plain TCP
  bool is_https = false;                        // else DNS over TLS
};

class TcpService {
 public:
  struct Limits {
    resolve::TcpLimits of_clients = {};
    size_t max_connections = 16384;       // of the loop, over all listeners
    size_t max_input = size_t{16} << 20;  // bytes of all connections that have been read, but not answered
  };
  // Bytes of one connection that may be queued, with the largest message behind them: 96 KB + 64 KB.
  static constexpr size_t kMaxQueued = size_t{96} << 10;
  static constexpr size_t kMaxPending = 128;  // queries of one connection whose answers come later
  static constexpr std::chrono::milliseconds kScarceStall{2000};

  static Result<std::unique_ptr<TcpService>> listen(WorkerContext& context, const SocketAddress& address,
                                                    bool reuse_port, std::shared_ptr<const resolve::Router> router,
                                                    Limits limits, Carrier carrier = {});
  // On a socket that listens already.
  static std::unique_ptr<TcpService> adopt(WorkerContext& context, FileDescriptor listening,
                                           std::shared_ptr<const resolve::Router> router, Limits limits,
                                           Carrier carrier = {});
  ~TcpService();
  TcpService(const TcpService&) = delete;
  TcpService& operator=(const TcpService&) = delete;

  // From the next query on. Not within an answer.
  void setRouter(std::shared_ptr<const resolve::Router> router) { router_ = std::move(router); }
  const std::shared_ptr<const resolve::Router>& router() const { return router_; }
  void setLimits(const resolve::TcpLimits& of_clients) { limits_.of_clients = of_clients; }
  // From the next connection on. REQUIRES: it was encrypted before if and only if it is now.
  void setCarrier(Carrier carrier) { carrier_ = std::move(carrier); }

  SocketAddress localAddress() const { return listener_->localAddress(); }
  void allowSharing() { listener_->allowSharing(); }
  // No more connections; those that there are go on.
  void stopAccepting() { listener_->pause(); }
  int fd() const { return listener_->fd(); }

 private:
  class Session;
  using Sessions = std::list<std::shared_ptr<Session>>;

  TcpService(WorkerContext& context, std::shared_ptr<const resolve::Router> router, Limits limits, Carrier carrier);
  std::unique_ptr<net::BoundedStream> streamOver(std::unique_ptr<net::TcpConnection> connection) const;
  void spend(size_t work);
  void accept(std::unique_ptr<net::TcpConnection> connection);
  bool makeRoom(Session& newcomer);
  bool evict(ClientConnections::Connection* connection);
  enum class Crowd : uint8_t { kFew, kMany, kTooMany };
  Crowd crowd() const;
  std::chrono::milliseconds shortened(std::chrono::milliseconds timeout) const;
  std::chrono::milliseconds idleTimeout() const { return shortened(limits_.of_clients.idle); }
  void noteKeepalive();
  void notePadding();
  void touch(Session& session);
  void close(Session& session);
  resolve::QueryOutcome answer(std::span<const uint8_t> query, Session& session);
  void watchReaders();
  void boundInput();
  void onTick();
  void closeIdle();
  void closeIdle(const Sessions& sessions, std::chrono::milliseconds timeout);
  std::shared_ptr<Session> largestInput() const;

  WorkerContext& context_;
  Limits limits_;
  Carrier carrier_;
  std::shared_ptr<const resolve::Router> router_;
  std::unique_ptr<net::TcpListener> listener_;
  size_t input_bytes_ = 0;  // of all sessions
  Sessions sessions_;       // longest idle first
  Sessions new_sessions_;   // those that have not completed a query yet, the oldest first
  resolve::Job job_;
  net::Timer idle_tick_;  // runs while there are sessions
  net::Timer tick_;       // runs while some client has something to read
  bool ticking_ = false;
  size_t work_since_udp_ = 0;
  std::vector<uint8_t> message_;  // the query being answered, then its response
};

}  // namespace idetcd::server
