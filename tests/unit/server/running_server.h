// A server for 200 names, worker1.tf.local. (10.0.0.1) to worker200.tf.local., on a loop in a thread of its own.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/metrics.h"
#include "net/event_loop.h"
#include "records/record_store.h"
#include "resolve/router.h"
#include "server/tcp_service.h"
#include "server/udp_service.h"

namespace idetcd::server::test {

class Names {
 public:
  static constexpr uint8_t kCount = 200;

  Names()
      : store_(epochs,
               {.zone = dns::Name::parse("tf.local.").value(), .addresses = {}, .hash_seed = randomHashSeed()}) {
    for (uint8_t i = 1; i <= kCount; ++i) {
      store_.put(dns::Name::parse(nameOf(i)).value(), {.ipv4 = IpAddress::v4({10, 0, 0, i}), .ipv6 = {}}, i);
    }
    store_.setFreshness(records::Freshness::kFresh);
    auto chain = std::make_shared<resolve::Chain>();
    chain->addCluster(std::make_shared<const resolve::ClusterZone>(store_, resolve::ClusterZone::Options{}));
    router = std::make_shared<resolve::Router>(
        std::vector<resolve::Router::Zone>{{.name = dns::Name(), .chain = std::move(chain)}}, store_.table().seed());
  }
  static std::string nameOf(int number) { return "worker" + std::to_string(number) + ".tf.local."; }

  records::EpochDomain epochs;
  std::shared_ptr<resolve::Router> router;

 private:
  records::RecordStore store_;
};

class RunningServer {
 public:
  explicit RunningServer(
      std::string_view ip = "127.0.0.1", TcpService::Limits limits = {},
      std::shared_ptr<net::DescriptorAccount> descriptors = net::DescriptorBudget::unlimited()->account(0))
      : context_(loop_, names_.epochs, std::make_shared<WriteBudget>(), std::move(descriptors), registry_.scope()) {
    const SocketAddress any_port{.ip = IpAddress::parse(ip).value(), .port = 0};
    auto socket = net::UdpSocket::bind(any_port, false);
    udp_address_ = socket->localAddress();
    udp_ = std::make_unique<UdpService>(context_, std::move(*socket), names_.router);
    auto tcp = TcpService::listen(context_, any_port, false, names_.router, limits);
    EXPECT_TRUE(tcp.has_value());
    tcp_ = std::move(*tcp);
    tcp_address_ = tcp_->localAddress();
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~RunningServer() {
    loop_.post([this] {  // handles are their loop's thread's
      udp_.reset();
      tcp_.reset();
      more_tcp_.reset();
    });
    loop_.stop();
    thread_.join();
  }
  RunningServer(const RunningServer&) = delete;
  RunningServer& operator=(const RunningServer&) = delete;

  const SocketAddress& udpAddress() const { return udp_address_; }
  const SocketAddress& tcpAddress() const { return tcp_address_; }
  // A second listener for TCP. Returns its address.
  SocketAddress listenToo(const Carrier& carrier = {}) {
    onLoop([&] {
      more_tcp_ = TcpService::listen(context_, {.ip = tcp_address_.ip}, false, names_.router, {}, carrier).value();
    });
    return more_tcp_->localAddress();
  }
  // After the loop's turn: a batch is counted at its end, when its answers have left. REQUIRES: not on the loop.
  const Counters& counters() {
    onLoop([] {});
    return context_.counters;
  }
  const metrics::Registry& registry() const { return registry_; }
  WriteBudget& budget() { return *context_.write_budget; }
  // Has everything answered by `handler`, at once or later.
  void setHandler(std::unique_ptr<resolve::Handler> handler) {
    auto chain = std::make_shared<resolve::Chain>();
    chain->add(std::move(handler));
    const auto router = std::make_shared<const resolve::Router>(
        std::vector<resolve::Router::Zone>{{.name = dns::Name(), .chain = std::move(chain)}}, randomHashSeed());
    onLoop([&] {
      udp_->setRouter(router);
      tcp_->setRouter(router);
    });
  }
  void post(std::function<void()> work) { loop_.post(std::move(work)); }
  // Runs `work` on the loop's thread and waits for its end.
  void onLoop(const std::function<void()>& work) {
    std::promise<void> done;
    loop_.post([&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }

 private:
  Names names_;
  const metrics::Registry registry_;
  net::EventLoop loop_;
  WorkerContext context_;
  std::unique_ptr<UdpService> udp_;
  std::unique_ptr<TcpService> tcp_;
  std::unique_ptr<TcpService> more_tcp_;
  SocketAddress udp_address_;
  SocketAddress tcp_address_;
  std::thread thread_;
};

}  // namespace idetcd::server::test
