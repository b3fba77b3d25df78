#include "server/worker.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

#include <fmt/format.h>

namespace idetcd::server {

namespace {

constexpr std::chrono::milliseconds kReleaseInterval{100};

}  // namespace

Worker::Worker(net::EventLoop& loop, records::EpochDomain& epochs, std::shared_ptr<WriteBudget> budget)
    : context_(loop, epochs, std::move(budget)), release_timer_(loop, [this] { release(); }) {}

Worker::Worker(records::EpochDomain& epochs, std::shared_ptr<WriteBudget> budget)
    : own_loop_(std::make_unique<net::EventLoop>()),
      context_(*own_loop_, epochs, std::move(budget)),
      release_timer_(*own_loop_, [this] { release(); }) {}

Worker::~Worker() { listening_.clear(); }

Result<void> Worker::listen(const SocketAddress& address, Sharing sharing,
                            std::shared_ptr<const resolve::Resolver> resolver) {
  auto socket = net::UdpSocket::bind(address, sharing == Sharing::kJoin);
  if (!socket) return fail(fmt::format("listen udp {}: {}", address.toString(), socket.error().message));
  if (sharing == Sharing::kFound) socket->allowSharing();
  SocketAddress tcp_address = address;
  tcp_address.port = socket->localAddress().port;  // for port 0 the one that UDP was given
  auto tcp = TcpService::listen(context_, tcp_address, sharing != Sharing::kNone, resolver, {});
  if (!tcp) return fail(fmt::format("listen tcp {}: {}", address.toString(), tcp.error().message));
  auto udp = std::make_unique<UdpService>(context_, std::move(*socket), std::move(resolver));
  listening_.push_back({.address = address, .udp = std::move(udp), .tcp = std::move(*tcp)});
  return {};
}

void Worker::allowSharing(const SocketAddress& address) {
  for (const Listening& listening : listening_) {
    if (listening.address != address) continue;
    listening.udp->allowSharing();
    listening.tcp->allowSharing();
  }
}

void Worker::setResolver(const SocketAddress& address, const std::shared_ptr<const resolve::Resolver>& resolver) {
  for (const Listening& listening : listening_) {
    if (listening.address != address) continue;
    if (listening.udp->resolver()->isBusy()) {
      replaced_.push_back(listening.udp->resolver());
      release_timer_.start(kReleaseInterval, kReleaseInterval);
    }
    listening.udp->setResolver(resolver);
    listening.tcp->setResolver(resolver);
  }
}

void Worker::release() {
  std::erase_if(replaced_, [](const auto& resolver) { return !resolver->isBusy(); });
  if (replaced_.empty()) release_timer_.stop();
}

void Worker::closeAddress(const SocketAddress& address) {
  std::erase_if(listening_, [&address](const Listening& listening) { return listening.address == address; });
}

void Worker::runOnLoop(const std::function<void()>& work) {
  if (!thread_.joinable()) return work();
  std::promise<void> done;
  own_loop_->post([&] {
    work();
    done.set_value();
  });
  done.get_future().wait();
}

void Worker::start() {
  if (own_loop_) thread_ = std::thread([this] { own_loop_->run(); });
}

void Worker::close() {
  runOnLoop([this] {
    listening_.clear();
    replaced_.clear();
  });  // handles may be touched by their loop's thread only
  if (!thread_.joinable()) return;
  own_loop_->stop();
  thread_.join();
}

}  // namespace idetcd::server
