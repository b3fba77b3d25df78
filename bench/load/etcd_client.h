// An etcd as the bench programs use it: a client on a thread of its own, and the keys that nodes put there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/arguments.h"
#include "common/names.h"
#include "etcd/client.h"
#include "etcd/completion_thread.h"
#include "naming/record_codec.h"

namespace idetcd::bench {

// `--endpoint URL`.
inline etcd::Client::Options etcdOptions(Arguments& arguments) {
  etcd::Client::Options options;
  options.endpoints = {arguments.text("--endpoint", "http://localhost:2379")};
  return options;
}

class EtcdClient {
 public:
  // Ends the program where the system has no thread left.
  explicit EtcdClient(etcd::Client::Options options) : client_(*thread_, std::move(options), {}) {}
  ~EtcdClient() { thread_->stop(); }
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  etcd::Client& operator*() { return client_; }

 private:
  const std::unique_ptr<etcd::CompletionThread> thread_ = etcd::CompletionThread::make().value();
  etcd::Client client_;
};

// The put of a node with the addresses of this number.
inline store::PutOp nodePut(std::string key, uint32_t number, bool ipv6) {
  naming::NodeRecord record{.ipv4 = IpAddress::v4(addressV4(number)), .ipv6 = {}, .port = "53", .id = {}};
  if (ipv6) record.ipv6 = IpAddress::v6(addressV6(number));
  return {.key = std::move(key), .value = naming::encodeRecord(record), .lease = 0};
}

}  // namespace idetcd::bench
