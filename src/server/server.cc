#include "server/server.h"

#include <future>

#include "base/executor.h"
#include "net/local_addresses.h"
#include "net/port_holder.h"

namespace idetcd::server {

namespace {

constexpr std::chrono::milliseconds kReleaseInterval{100};

using Kind = service::SocketPlace::Kind;
constexpr std::array kKinds{Kind::kUdp, Kind::kTcp};

// Of the sockets of a listener.
std::span<const Kind> kindsOf(bool is_encrypted) { return std::span(kKinds).subspan(is_encrypted ? 1 : 0); }

constexpr std::string_view kOtherwise =
    "let `bind` name other addresses, as `bind 127.0.0.1 ::1` beside systemd-resolved";

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
                                                   const std::shared_ptr<const resolve::Router>& router,
                                                   const resolve::TcpLimits& tcp_limits, Carrier carrier,
                                                   Inherited inherited) {
  Listening listening{.address = address, .udp = nullptr, .tcp = nullptr};
  SocketAddress tcp_address = address;
  if (!carrier.tls) {
    const bool joins = sharing == Sharing::kJoin;
    const bool opens_to_others = sharing == Sharing::kFound || (joins && inherited.udp.isOpen());
    auto socket = inherited.udp.isOpen() ? net::UdpSocket::adopt(std::move(inherited.udp), address)
                                         : net::UdpSocket::bind(address, joins);
    if (!socket) return tl::unexpected(Refusal{"udp", address, socket.error()});
    if (opens_to_others) socket->allowSharing();
    tcp_address.port = socket->localAddress().port;  // for port 0 the one that UDP was given
    listening.udp = std::make_unique<UdpService>(context_, std::move(*socket), router);
  }
  auto tcp =
      listenTcp(tcp_address, sharing, router, {.of_clients = tcp_limits}, std::move(carrier), std::move(inherited.tcp));
  if (!tcp) return tl::unexpected(Refusal{"tcp", tcp_address, tcp.error()});
  listening.tcp = std::move(*tcp);
  listening_.push_back(std::move(listening));
  return {};
}

Result<std::unique_ptr<TcpService>> Worker::listenTcp(const SocketAddress& address, Sharing sharing,
                                                      const std::shared_ptr<const resolve::Router>& router,
                                                      const TcpService::Limits& limits, Carrier carrier,
                                                      FileDescriptor inherited) {
  if (!inherited.isOpen()) {
    return TcpService::listen(context_, address, sharing != Sharing::kNone, router, limits, std::move(carrier));
  }
  auto service = TcpService::adopt(context_, std::move(inherited), router, limits, std::move(carrier));
  if (sharing != Sharing::kNone) service->allowSharing();
  return service;
}

void Worker::allowSharing(const SocketAddress& address) {
  for (const Listening& listening : listening_) {
    if (listening.address != address) continue;
    if (listening.udp) listening.udp->allowSharing();
    listening.tcp->allowSharing();
  }
}

void Worker::setRouter(const SocketAddress& address, const std::shared_ptr<const resolve::Router>& router,
                       const resolve::TcpLimits& tcp, const Carrier& carrier) {
  for (const Listening& listening : listening_) {
    if (listening.address != address) continue;
    if (listening.tcp->router()->isBusy()) {
      replaced_.push_back(listening.tcp->router());
      release_timer_.start(kReleaseInterval, kReleaseInterval);
    }
    if (listening.udp) listening.udp->setRouter(router);
    listening.tcp->setRouter(router);
    listening.tcp->setLimits(tcp);
    listening.tcp->setCarrier(carrier);
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
  return {.udp = listening->udp ? listening->udp->fd() : -1, .tcp = listening->tcp->fd()};
}

void Worker::keepUntilAnswered(const SocketAddress& address) {
  for (const Listening& listening : listening_) {
    if (listening.address == address && listening.udp) listening.udp->keepUntilAnswered();
  }
}

void Worker::stopTaking() {
  for (const Listening& listening : listening_) {
    if (listening.udp) listening.udp->stopReading();
    listening.tcp->stopAccepting();
  }
}

bool Worker::isBusy() const {
  const auto is_busy = [](const auto& router) { return router->isBusy(); };
  return std::ranges::any_of(replaced_, is_busy) ||
         std::ranges::any_of(listening_, [&](const Listening& one) { return is_busy(one.tcp->router()); });
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

Server::Server(net::EventLoop& loop, records::EpochDomain& epochs, std::shared_ptr<net::DescriptorBudget> descriptors,
               const metrics::Scope& metrics)
    : epochs_(epochs),
      descriptors_(std::move(descriptors)),
      metrics_(metrics),
      unread_bytes_(metrics, "idetcd_tcp_unread_bytes",
                    "Answers over TCP that wait in this process for clients to read them.",
                    [budget = write_budget_] { return static_cast<double>(budget->total()); }) {
  workers_.push_back(std::make_unique<Worker>(loop, epochs, write_budget_, descriptors_->account(0), scopeOf(0)));
}

Result<void> Server::addWorker() {
  auto loop = net::EventLoop::make();
  if (!loop) return tl::unexpected(loop.error());
  workers_.push_back(std::make_unique<Worker>(std::move(*loop), epochs_, write_budget_,
                                              descriptors_->account(workers_.size()), scopeOf(workers_.size())));
  if (!started_) return {};
  auto started = workers_.back()->start();
  if (!started) workers_.pop_back();
  return started;
}

Result<void> Server::open(const std::vector<Listen>& listens) {
  auto wanted = resolveListens(listens);
  if (!wanted) return tl::unexpected(wanted.error());
  putInheritedFirst(*wanted);
  std::vector<SocketAddress> opened;
  for (const Address& address : *wanted) {
    if (isOpen(address.address)) continue;
    if (auto result = openAddress(address); !result) {
      for (const SocketAddress& undo : opened) closeAddress(undo);
      if (store_ != nullptr) store_->awaitRemoval();
      return result;
    }
    opened.push_back(address.address);
  }
  // From here on nothing can fail.
  const auto previous = open_;
  for (const auto& entry : previous) {
    const SocketAddress& address = entry.first;
    const auto stays =
        std::find_if(wanted->begin(), wanted->end(), [&](const Address& a) { return a.address == address; });
    if (stays == wanted->end()) {
      closeAddress(address);
      continue;
    }
    for (size_t i = 0; i < entry.second.workers; ++i) {
      workers_[i]->runOnLoop(
          [&, i] { workers_[i]->setRouter(address, stays->routers[i], stays->tcp, stays->carrier); });
    }
  }
  if (store_ != nullptr) store_->awaitRemoval();
  return {};
}

// A given, unused socket would keep its address from others, and so would a later wildcard.
void Server::putInheritedFirst(std::vector<Address>& wanted) {
  if (store_ == nullptr) return;
  std::vector<service::SocketPlace> places;
  for (const Address& address : wanted) {
    for (size_t i = 0; i < address.routers.size(); ++i) {
      for (const Kind kind : kindsOf(address.carrier.tls != nullptr))
        places.push_back({.kind = kind, .address = address.address, .worker = i});
    }
  }
  store_->closeAllBut(places);
  std::stable_partition(wanted.begin(), wanted.end(),
                        [this](const Address& address) { return store_->has(address.address); });
}

Inherited Server::inherit(const Address& wanted, size_t worker) {
  if (store_ == nullptr) return {};
  Inherited inherited;
  if (!wanted.carrier.tls)
    inherited.udp = store_->take({.kind = Kind::kUdp, .address = wanted.address, .worker = worker});
  inherited.tcp = store_->take({.kind = Kind::kTcp, .address = wanted.address, .worker = worker});
  return inherited;
}

void Server::keep(const Address& wanted, size_t worker) {
  if (store_ == nullptr) return;
  const SocketAddress& address = wanted.address;
  Worker::Descriptors sockets{};
  workers_[worker]->runOnLoop([&] { sockets = workers_[worker]->descriptors(address); });
  store_->keep({.kind = Kind::kTcp, .address = address, .worker = worker}, sockets.tcp);
  if (wanted.carrier.tls) return;
  const service::SocketPlace udp{.kind = Kind::kUdp, .address = address, .worker = worker};
  store_->keep(udp, sockets.udp);
  if (!store_->outlivesProcess(udp)) return;
  workers_[worker]->runOnLoop([&] { workers_[worker]->keepUntilAnswered(address); });
}

// Every address with its routers. New workers are made here, and their threads started if the others run.
Result<std::vector<Server::Address>> Server::resolveListens(const std::vector<Listen>& listens) {
  std::vector<Address> wanted;
  for (const Listen& listen : listens) {
    auto routers = makeRouters(listen);
    if (!routers) return tl::unexpected(routers.error());
    const auto open = open_.find(listen.address);
    if (open != open_.end() && open->second.workers != listen.workers) {
      return fail(
          fmt::format("the number of workers on {} cannot be changed without a restart", listen.address.toString()));
    }
    if (open != open_.end() && open->second.is_encrypted != (listen.carrier.tls != nullptr)) {
      return fail(fmt::format("the protocol on {} cannot be changed without a restart", listen.address.toString()));
    }
    const auto competes = [&listen](const Listen& other) { return net::overlap(listen.address, other.address); };
    const bool shared = listen.workers > 1 || std::any_of(listens.begin(), listens.end(), competes);
    wanted.push_back({.address = listen.address,
                      .routers = std::move(*routers),
                      .tcp = listen.tcp,
                      .carrier = listen.carrier,
                      .shared = shared});
  }
  return wanted;
}

Result<Server::Routers> Server::makeRouters(const Listen& listen) {
  Routers routers;
  for (size_t i = 0; i < listen.workers; ++i) {
    if (i == workers_.size()) {
      if (auto added = addWorker(); !added) return tl::unexpected(added.error());
    }
    Result<std::shared_ptr<const resolve::Router>> router;
    workers_[i]->runOnLoop([&] { router = listen.make_router(i, workers_[i]->loop()); });
    if (!router) return tl::unexpected(router.error());
    routers.push_back(std::move(*router));
  }
  return routers;
}

// Whether an open address of this port lets another one in. False if there is none: then a port in use is a stranger's.
bool Server::shareOurs(const SocketAddress& address) {
  bool any = false;
  for (const auto& [open, how] : open_) {
    if (!net::overlap(open, address)) continue;
    any = true;
    for (size_t i = 0; i < how.workers; ++i) {
      workers_[i]->runOnLoop([&, i, &ours = open] { workers_[i]->allowSharing(ours); });
    }
  }
  return any;
}

Result<void> Server::openAddress(const Address& wanted) {
  Sharing sharing = wanted.shared ? Sharing::kFound : Sharing::kNone;
  if (shareOurs(wanted.address)) sharing = Sharing::kJoin;
  if (predecessor_ != 0) sharing = Sharing::kNone;  // a socket beside that process's would get queries
  tl::expected<void, Worker::Refusal> opened;
  for (size_t i = 0; i < wanted.routers.size() && opened; ++i) {
    Inherited inherited = inherit(wanted, i);
    workers_[i]->runOnLoop([&] {
      opened = workers_[i]->listen(wanted.address, sharing, wanted.routers[i], wanted.tcp, wanted.carrier,
                                   std::move(inherited));
    });
    if (opened) keep(wanted, i);
    if (!opened && predecessor_ != 0 && net::isHeldBy(predecessor_, opened.error().protocol, opened.error().address))
      opened = {};
    if (sharing == Sharing::kFound) sharing = Sharing::kJoin;
  }
  open_[wanted.address] = {.workers = wanted.routers.size(), .is_encrypted = wanted.carrier.tls != nullptr};
  if (opened) return {};
  closeAddress(wanted.address);
  // Not on the loop: it takes milliseconds.
  const auto& [protocol, address, error] = opened.error();
  return tl::unexpected(net::listenFailure(protocol, address, error, kOtherwise));
}

void Server::closeAddress(const SocketAddress& address) {
  const Open how = open_[address];
  for (size_t i = 0; i < how.workers; ++i) {
    if (store_ != nullptr) {
      for (const Kind kind : kindsOf(how.is_encrypted)) store_->remove({.kind = kind, .address = address, .worker = i});
    }
    workers_[i]->runOnLoop([&] { workers_[i]->closeAddress(address); });
  }
  open_.erase(address);
}

void Server::closeWorkers(size_t keep) {
  while (workers_.size() > keep) {
    workers_.back()->close();
    workers_.pop_back();
  }
  for (const auto& worker : workers_) worker->runOnLoop([] {});
}

Result<void> Server::start() {
  started_ = true;
  for (const auto& worker : workers_) {
    if (auto started = worker->start(); !started) return started;
  }
  return {};
}

void Server::stopTaking(std::chrono::milliseconds budget) {
  constexpr std::chrono::milliseconds kInterval{5};
  for (const auto& worker : workers_) worker->runOnLoop([&worker] { worker->stopTaking(); });
  const auto end = BootClock::now() + budget;
  const auto is_busy = [](const auto& worker) {
    bool busy = false;
    worker->runOnLoop([&] { busy = worker->isBusy(); });
    return busy;
  };
  while (std::ranges::any_of(workers_, is_busy) && BootClock::now() < end) std::this_thread::sleep_for(kInterval);
}

void Server::close() {
  // The first one last: what its handlers share with the others (a LoopProbe) must be destroyed on its loop.
  for (auto worker = workers_.rbegin(); worker != workers_.rend(); ++worker) (*worker)->close();
  open_.clear();
}

}  // namespace idetcd::server
