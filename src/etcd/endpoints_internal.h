// The endpoints of a Client, a channel to each, and which of them is in use. For etcd/*.cc only.
// Completion thread only, save where noted.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <grpcpp/channel.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "etcd/client.h"

namespace idetcd::etcd {

struct EndpointAddress {
  std::string name;                                             // "host:port", IPv6 in brackets: for messages
  std::string target;                                           // what gRPC connects to
  static Result<EndpointAddress> parse(std::string_view text);  // any thread
};

class Endpoints {
 public:
  // Makes no connection yet. Any thread.
  Endpoints(const Client::Options& options, Logger log);

  size_t size() const { return endpoints_.size(); }
  // Relaxed: an index that guards nothing; the endpoints themselves never change.
  size_t current() const { return current_.load(std::memory_order_relaxed); }             // any thread
  const std::string& name(size_t index) const { return endpoints_[index].address.name; }  // any thread
  // The channel for a new call: if it has been without a connection for a while, it is told to try again at once.
  const std::shared_ptr<grpc::Channel>& channel(size_t index);

  // What became of a call. A failure makes the next endpoint the current one, but only if `index` still is: of several
  // calls that fail together only the first moves on, and a late failure at the old endpoint does not abandon the new
  // one.
  void succeeded(size_t index);
  void failed(size_t index, const EtcdError& error);

 private:
  struct Endpoint {
    EndpointAddress address;
    std::shared_ptr<grpc::Channel> channel;
    BootClock::time_point retried_at;
    bool away = false;  // for the log: what changes is told once
  };

  const std::chrono::nanoseconds retry_interval_;
  Logger log_;
  std::vector<Endpoint> endpoints_;
  std::atomic<size_t> current_{0};
};

}  // namespace idetcd::etcd
