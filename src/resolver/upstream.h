// The servers that questions are forwarded to, as a Corefile or a resolv.conf has them. Any thread.
#pragma once

#include "base/ip_address.h"
#include "base/result.h"
#include "dns/name.h"

namespace idetcd::resolver {

enum class UpstreamProtocol : uint8_t {
  kDns,    // UDP and TCP (RFC 1035)
  kTls,    // RFC 7858
  kHttps,  // RFC 8484
};

constexpr bool isEncrypted(UpstreamProtocol protocol) { return protocol != UpstreamProtocol::kDns; }

// Of HTTPS: the request that carries a question.
enum class DohMethod : uint8_t { kPost, kGet };

struct UpstreamAddress {
  SocketAddress address;
  UpstreamProtocol protocol = UpstreamProtocol::kDns;
  std::string server_name{};  // if encrypted: what its certificate must name; empty: what is said of all servers
  std::string interface {};   // of a link-local address; there may be none of this name yet, and then no scope

  std::string toString() const;  // "192.0.2.1:53", "tls://[2001:db8::1]:853", "https://192.0.2.1:443"
  bool operator==(const UpstreamAddress&) const = default;
};

// A server by its name, each of whose addresses is one.
struct UpstreamHost {
  dns::Name name;
  uint16_t port = 0;
  UpstreamProtocol protocol = UpstreamProtocol::kDns;
};

// One TO of `forward`: a server, or a file that lists some.
struct UpstreamTarget {
  std::optional<UpstreamAddress> server;
  std::string file;  // in the format of resolv.conf(5); set if neither `server` nor `host` is
  std::optional<UpstreamHost> host{};
};

// IP[:port], [IPv6]:port, with dns:// (port 53), tls:// (port 853) or https:// (port 443) in front; else /PATH
// of a file, the name of a file that exists, or of a host, with [:port]. A link-local IPv6 address has a %interface. Behind tls:// and https:// a
// %NAME, in front of the port, is the server's name.
Result<UpstreamTarget> parseUpstreamTarget(std::string_view text);

// The `nameserver` lines of a resolv.conf(5), in order, without repetitions. Lines that cannot be read are skipped, as
// the C library does.
std::vector<UpstreamAddress> parseResolvConf(const std::string& text);

// The state of a server that a loop forwards to, for other threads, which do not see the server itself. Written on its loop,
// read on any thread.
class ServerReport {
 public:
  explicit ServerReport(std::string name) : server(std::move(name)) {}

  const std::string server;  // as UpstreamAddress says it

  void setUp(bool up) { is_up_.store(up, std::memory_order_relaxed); }
  void setRoundTrip(std::chrono::nanoseconds time) { round_trip_.store(time.count(), std::memory_order_relaxed); }

  // Whether it answers, for all that is known: it has not been asked yet, perhaps.
  bool isUp() const { return is_up_.load(std::memory_order_relaxed); }
  // How long it takes to answer, smoothed.
  std::optional<std::chrono::nanoseconds> roundTrip() const {
    const std::chrono::nanoseconds time(round_trip_.load(std::memory_order_relaxed));
    return time.count() > 0 ? std::optional(time) : std::nullopt;
  }

 private:
  std::atomic<bool> is_up_{true};
  std::atomic<int64_t> round_trip_{0};  // ns; 0: not known
};

// The servers of one `forward`, which change with the files that list them. Any thread.
class ServerReports {
 public:
  using All = std::vector<std::shared_ptr<const ServerReport>>;

  void set(All all) {
    const std::lock_guard lock(mutex_);
    all_ = std::move(all);
  }
  All all() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  mutable std::mutex mutex_;
  All all_;
};

}  // namespace idetcd::resolver
