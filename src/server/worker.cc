#include "server/worker.h"

#include <future>

#include "base/thread.h"

namespace idetcd::server {

namespace {

constexpr std::chrono::milliseconds kReleaseInterval{100};

}  // namespace

Worker::Worker(net::EventLoop& loop, records::EpochDomain& epochs, std::shared_ptr<WriteBudget> budget,
               std::shared_ptr<net::DescriptorAccount> descriptors, metrics::Scope metrics)
    : context_(loop, epochs, std::move(budget), std::move(descriptors), std::move(metrics)),
      release_timer_(loop, [this] { release(); }) {}

Worker::Worker(std::unique_ptr<net::EventLoop> own_loop, records::EpochDomain& epochs,
               std::shared_ptr<WriteBudget> budget, std::shared_ptr<net::DescriptorAccount> descriptors,
               metrics::Scope metrics)
    : own_loop_(std::move(own_loop)),
      context_(*own_loop_, epochs, std::move(budget), std::move(descriptors), std::move(metrics)),
      release_timer_(*own_loop_, [this] { release(); }) {}

Worker::~Worker() { listening_.clear(); }

tl::expected<void, Worker::Refusal> Worker::listen(const SocketAddress& address, Sharing sharing,
                                                   std::shared_ptr<const resolve::Router> router,
                                                   const resolve::TcpLimits& tcp_limits, Inherited inherited) {
  const bool joins = sharing == Sharing::kJoin;
  const bool opens_to_others = sharing == Sharing::kFound || (joins && inherited.udp.isOpen());
  auto socket = inherited.udp.isOpen() ? net::UdpSocket::adopt(std::move(inherited.udp), address)
                                       : net::UdpSocket::bind(address, joins);
  if (!socket) return tl::unexpected(Refusal{"udp", address, socket.error()});
  if (opens_to_others) socket->allowSharing();
  SocketAddress tcp_address = address;
  tcp_address.port = socket->localAddress().port;  // for port 0 the one that UDP was given
  auto tcp = listenTcp(tcp_address, sharing, router, {.of_clients = tcp_limits}, std::move(inherited.tcp));
  if (!tcp) return tl::unexpected(Refusal{"tcp", tcp_address, tcp.error()});
  auto udp = std::make_unique<UdpService>(context_, std::move(*socket), std::move(router));
  listening_.push_back({.address = address, .udp = std::move(udp), .tcp = std::move(*tcp)});
  return {};
}

Result<std::unique_ptr<TcpService>> Worker::listenTcp(const SocketAddress& address, Sharing sharing,
                                                      const std::shared_ptr<const resolve::Router>& router,
                                                      const TcpService::Limits& limits, FileDescriptor inherited) {
  if (!inherited.isOpen()) {
    return TcpService::listen(context_, address, sharing != Sharing::kNone, router, limits);
  }
  auto service = TcpService::adopt(context_, std::move(inherited), router, limits);
  if (sharing != Sharing::kNone) service->allowSharing();
  return service;
}

void Worker::allowSharing(const SocketAddress& address) {
  for (const Listening& listening : listening_) {
    if (listening.address != address) continue;
    listening.udp->allowSharing();
    listening.tcp->allowSharing();
  }
}

void Worker::setRouter(const SocketAddress& address, const std::shared_ptr<const resolve::Router>& router,
                       const resolve::TcpLimits& tcp) {
  for (const Listening& listening : listening_) {
    if (listening.address != address) continue;
    if (listening.udp->router()->isBusy()) {
      replaced_.push_back(listening.udp->router());
      release_timer_.start(kReleaseInterval, kReleaseInterval);
    }
    listening.udp->setRouter(router);
    listening.tcp->setRouter(router);
    listening.tcp->setLimits(tcp);
  }
}

void Worker::release() {
  std::erase_if(replaced_, [](const auto& router) { return !router->isBusy(); });
  if (replaced_.empty()) release_timer_.stop();
}

void Worker::closeAddress(const SocketAddress& address) {
  std::erase_if(listening_, [&address](const Listening& listening) { return listening.address == address; });
}

Worker::Descriptors Worker::descriptors(const SocketAddress& address) const {
  const auto listening =
      std::ranges::find_if(listening_, [&address](const Listening& one) { return one.address == address; });
  assert(listening != listening_.end());
  return {.udp = listening->udp->fd(), .tcp = listening->tcp->fd()};
}

void Worker::keepUntilAnswered(const SocketAddress& address) {
  for (const Listening& listening : listening_) {
    if (listening.address == address) listening.udp->keepUntilAnswered();
  }
}

void Worker::stopTaking() {
  for (const Listening& listening : listening_) {
    listening.udp->stopReading();
    listening.tcp->stopAccepting();
  }
}

bool Worker::isBusy() const {
  const auto is_busy = [](const auto& router) { return router->isBusy(); };
  return std::ranges::any_of(replaced_, is_busy) ||
         std::ranges::any_of(listening_, [&](const Listening& one) { return is_busy(one.udp->router()); });
}

void Worker::runOnLoop(const std::function<void()>& work) {
  const bool runs_here = own_loop_ ? !thread_.joinable() : context_.loop.isLoopThread();
  if (runs_here) return work();
  std::promise<void> done;
  context_.loop.post([&] {
    work();
    done.set_value();
  });
  done.get_future().wait();
}

Result<void> Worker::start() {
  if (!own_loop_) return {};
  auto thread = startThread([this] { own_loop_->run(); });
  if (!thread) return tl::unexpected(thread.error());
  thread_ = std::move(*thread);
  return {};
}

void Worker::close() {
  const auto clear = [this] {
    listening_.clear();
    replaced_.clear();
  };
  if (!thread_.joinable()) return clear();
  runOnLoop(clear);  // handles may be touched by their loop's thread only
  own_loop_->stop();
  thread_.join();
}

}  // namespace idetcd::server
