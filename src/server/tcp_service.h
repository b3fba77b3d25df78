// DNS over TCP on one listener of one loop (RFC 7766, RFC 9210). Loop thread only.
//
// Connections are kept open and pipelined. One that has not completed a query for `idle` is closed, and so is the
// longest idle one when there would be more than `max_connections`.
//
// A client that does not read its answers is not read from either. Answers that come late are put off while more than
// kMaxQueued bytes wait for it, or while it, or the process, uses up its WriteBudget: of such a query the question is
// kept, and answered anew when the client has read (by then from the cache; if there is none, the upstream is asked
// again, for one question at a time). So no answer is lost for a client that reads. One that has not read anything for
// `idle`, or for kScarceStall while the budget is scarce, is closed.
#pragma once

#include <chrono>
#include <list>
#include <memory>
#include <vector>

#include "net/tcp.h"
#include "resolve/resolver.h"
#include "server/worker_context.h"

namespace idetcd::server {

class TcpService {
 public:
  struct Limits {
    std::chrono::milliseconds idle{10'000};
    size_t max_connections = 4096;  // or an eighth of the descriptors that the process may have, if that is less
    size_t max_pending = 128;       // queries of one connection whose answers come later
  };
  // Bytes of one connection that may be queued, with the largest message behind them: 96 KB + 64 KB.
  static constexpr size_t kMaxQueued = size_t{96} << 10;
  static constexpr std::chrono::milliseconds kScarceStall{2000};

  static Result<std::unique_ptr<TcpService>> listen(WorkerContext& context, const SocketAddress& address,
                                                    bool reuse_port, std::shared_ptr<const resolve::Resolver> resolver,
                                                    Limits limits);
  ~TcpService();
  TcpService(const TcpService&) = delete;
  TcpService& operator=(const TcpService&) = delete;

  // From the next query on. Not within an answer.
  void setResolver(std::shared_ptr<const resolve::Resolver> resolver) { resolver_ = std::move(resolver); }

  SocketAddress localAddress() const { return listener_->localAddress(); }
  void allowSharing() { listener_->allowSharing(); }

 private:
  class Session;
  using Sessions = std::list<std::shared_ptr<Session>>;

  TcpService(WorkerContext& context, std::shared_ptr<const resolve::Resolver> resolver, Limits limits);
  void spend(size_t work);
  void accept(std::unique_ptr<net::TcpConnection> connection);
  void touch(Session& session);
  void close(Session& session);
  resolve::Outcome answer(std::span<const uint8_t> query, Session& session);
  void watchReaders();
  void onTick();

  WorkerContext& context_;
  const Limits limits_;
  std::shared_ptr<const resolve::Resolver> resolver_;
  std::unique_ptr<net::TcpListener> listener_;
  Sessions sessions_;  // longest idle first
  resolve::Job job_;
  net::Timer tick_;  // runs while some client has something to read
  bool ticking_ = false;
  size_t work_since_udp_ = 0;
  std::vector<uint8_t> message_;  // the query being answered, then its response
};

}  // namespace idetcd::server
