#include "server/server.h"

#include <thread>

#include "net/local_addresses.h"
#include "net/port_holder.h"

namespace idetcd::server {

namespace {

using Kind = service::SocketPlace::Kind;
constexpr std::array kKinds{Kind::kUdp, Kind::kTcp};
constexpr std::string_view kOtherwise =
    "let `bind` name other addresses, as `bind 127.0.0.1 ::1` beside systemd-resolved";

}  // namespace

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
    for (size_t i = 0; i < entry.second; ++i) {
      workers_[i]->runOnLoop([&, i] { workers_[i]->setRouter(address, stays->routers[i], stays->tcp); });
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
      for (const Kind kind : kKinds) places.push_back({.kind = kind, .address = address.address, .worker = i});
    }
  }
  store_->closeAllBut(places);
  std::stable_partition(wanted.begin(), wanted.end(),
                        [this](const Address& address) { return store_->has(address.address); });
}

Inherited Server::inherit(const SocketAddress& address, size_t worker) {
  if (store_ == nullptr) return {};
  return {.udp = store_->take({.kind = Kind::kUdp, .address = address, .worker = worker}),
          .tcp = store_->take({.kind = Kind::kTcp, .address = address, .worker = worker})};
}

void Server::keep(const SocketAddress& address, size_t worker) {
  if (store_ == nullptr) return;
  const service::SocketPlace udp{.kind = Kind::kUdp, .address = address, .worker = worker};
  Worker::Descriptors sockets{};
  workers_[worker]->runOnLoop([&] { sockets = workers_[worker]->descriptors(address); });
  store_->keep(udp, sockets.udp);
  store_->keep({.kind = Kind::kTcp, .address = address, .worker = worker}, sockets.tcp);
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
    if (open != open_.end() && open->second != listen.workers) {
      return fail(
          fmt::format("the number of workers on {} cannot be changed without a restart", listen.address.toString()));
    }
    const auto competes = [&listen](const Listen& other) { return net::overlap(listen.address, other.address); };
    const bool shared = listen.workers > 1 || std::any_of(listens.begin(), listens.end(), competes);
    wanted.push_back({.address = listen.address, .routers = std::move(*routers), .tcp = listen.tcp, .shared = shared});
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
  for (const auto& [open, workers] : open_) {
    if (!net::overlap(open, address)) continue;
    any = true;
    for (size_t i = 0; i < workers; ++i) {
      workers_[i]->runOnLoop([&, i, &ours = open] { workers_[i]->allowSharing(ours); });
    }
  }
  return any;
}

Result<void> Server::openAddress(const Address& wanted) {
  Sharing sharing = wanted.shared ? Sharing::kFound : Sharing::kNone;
  if (shareOurs(wanted.address)) sharing = Sharing::kJoin;
  tl::expected<void, Worker::Refusal> opened;
  for (size_t i = 0; i < wanted.routers.size() && opened; ++i) {
    Inherited inherited = inherit(wanted.address, i);
    workers_[i]->runOnLoop([&] {
      opened = workers_[i]->listen(wanted.address, sharing, wanted.routers[i], wanted.tcp, std::move(inherited));
    });
    if (opened) keep(wanted.address, i);
    if (sharing == Sharing::kFound) sharing = Sharing::kJoin;
  }
  open_[wanted.address] = wanted.routers.size();
  if (opened) return {};
  closeAddress(wanted.address);
  // Not on the loop: it takes milliseconds.
  const auto& [protocol, address, error] = opened.error();
  return tl::unexpected(net::listenFailure(protocol, address, error, kOtherwise));
}

void Server::closeAddress(const SocketAddress& address) {
  for (size_t i = 0; i < open_[address]; ++i) {
    if (store_ != nullptr) {
      for (const Kind kind : kKinds) store_->remove({.kind = kind, .address = address, .worker = i});
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
