// Asks this process's own endpoint /health once a second, as a client would, over a connection that stays open: so the
// metrics show a process that is too busy to answer. Loop thread only.
#pragma once

#include "base/ip_address.h"
#include "base/log.h"
#include "base/metrics.h"
#include "http/endpoints.h"
#include "net/event_loop.h"
#include "net/tcp.h"

namespace idetcd::directive {

struct HealthSettings {
  http::ListenAddress address;
  std::chrono::milliseconds lame_duck{0};
};

// Names and buckets are CoreDNS's.
struct HealthCounters : metrics::Group {
  using Group::Group;

  static constexpr std::array<uint64_t, 5> kBounds{250'000, 2'500'000, 25'000'000, 250'000'000, 2'500'000'000};

  metrics::Histogram duration{*this, "coredns_health_request_duration_seconds",
                              "How long this process's own request for /health takes.", kBounds, 1e9};
  metrics::Counter failures{*this, "coredns_health_request_failures_total",
                            "This process's own requests for /health that failed."};
};

class SelfCheck final : net::StreamHandler {
 public:
  // `endpoint`: where this process listens; of a wildcard the loopback address is asked.
  SelfCheck(net::EventLoop& loop, SocketAddress endpoint, const metrics::Scope& scope, Logger log);
  ~SelfCheck() override = default;
  SelfCheck(const SelfCheck&) = delete;
  SelfCheck& operator=(const SelfCheck&) = delete;

  const HealthCounters& counters() const { return counters_; }

 private:
  using Clock = std::chrono::steady_clock;

  void onTick();
  void ask();
  void onData(std::span<const uint8_t> bytes) override;
  void onEnd() override;
  void onDrained() override {}
  void onError() override;
  void fail(const std::string& why);
  Clock::duration observe();

  const SocketAddress endpoint_;
  const Logger log_;
  HealthCounters counters_;
  net::TcpConnector connector_;
  std::unique_ptr<net::TcpConnection> connection_;
  bool asking_ = false;
  Clock::time_point asked_;
  std::string answer_;
  net::Timer tick_;
};

}  // namespace idetcd::directive
