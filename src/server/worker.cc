#include "server/worker.h"

#include <fmt/format.h>

namespace idetcd::server {

Worker::Worker(net::EventLoop& loop, records::EpochDomain& epochs) : context_(loop, epochs) {}

Worker::Worker(records::EpochDomain& epochs)
    : own_loop_(std::make_unique<net::EventLoop>()), context_(*own_loop_, epochs) {}

Worker::~Worker() { closeServices(); }

Result<void> Worker::listen(const SocketAddress& address, bool reuse_port,
                            std::shared_ptr<const resolve::Resolver> resolver) {
  auto socket = net::UdpSocket::bind(address, reuse_port);
  if (!socket) return fail(fmt::format("listen udp {}: {}", address.toString(), socket.error().message));
  auto tcp = TcpService::listen(context_, address, reuse_port, resolver, {});
  if (!tcp) return fail(fmt::format("listen tcp {}: {}", address.toString(), tcp.error().message));
  udp_.push_back(std::make_unique<UdpService>(context_, std::move(*socket), std::move(resolver)));
  tcp_.push_back(std::move(*tcp));
  return {};
}

void Worker::start() {
  if (own_loop_) thread_ = std::thread([this] { own_loop_->run(); });
}

void Worker::close() {
  if (!thread_.joinable()) return closeServices();
  own_loop_->post([this] { closeServices(); });  // handles may be touched by their loop's thread only
  own_loop_->stop();
  thread_.join();
}

void Worker::closeServices() {
  udp_.clear();
  tcp_.clear();
}

}  // namespace idetcd::server
