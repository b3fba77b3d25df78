// One real etcd and a client of it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "etcd/client.h"
#include "run_task.h"
#include "support/etcd_server.h"

namespace idetcd::etcd {

using namespace std::chrono_literals;
using test_support::EtcdCluster;
using test_support::EtcdServer;
using SteadyClock = std::chrono::steady_clock;

inline Client::Options optionsFor(std::vector<std::string> endpoints) {
  Client::Options options;
  options.endpoints = std::move(endpoints);
  return options;
}

// A client with a thread of its own, and its calls as blocking functions.
struct BlockingClient {
  explicit BlockingClient(Client::Options options) : client(thread, std::move(options), Logger()) {}
  explicit BlockingClient(const EtcdServer& server) : BlockingClient(optionsFor({server.endpoint()})) {}
  // Nothing of the client is in use any more when it is destroyed.
  ~BlockingClient() { thread.stop(); }

  EtcdResult<RangeResult> range(KeyRange keys, RangeOptions options = {}) {
    return await(thread, client.range(std::move(keys), options));
  }
  std::optional<std::string> value(const std::string& key) {
    auto result = range(KeyRange::single(key));
    if (!result || result->kvs.empty()) return std::nullopt;
    return result->kvs[0].value;
  }
  EtcdResult<int64_t> put(std::string key, std::string text, int64_t lease = 0) {
    return await(thread, client.put({std::move(key), std::move(text), lease}));
  }
  EtcdResult<DeleteResult> remove(KeyRange keys) { return await(thread, client.remove({std::move(keys)})); }
  EtcdResult<TxnResult> txn(TxnRequest request) { return await(thread, client.txn(std::move(request))); }
  EtcdResult<Lease> grant(std::chrono::seconds ttl) { return await(thread, client.leaseGrant(ttl)); }
  EtcdResult<Lease> keepAlive(int64_t id, std::chrono::nanoseconds timeout = 5s) {
    return await(thread, client.leaseKeepAlive(id, timeout));
  }
  EtcdResult<void> revoke(int64_t id) { return await(thread, client.leaseRevoke(id)); }
  EtcdResult<WatchStream> watch(KeyRange keys, int64_t revision) {
    return await(thread, client.watch(std::move(keys), revision));
  }
  EtcdResult<WatchBatch> next(WatchStream& stream, std::chrono::nanoseconds timeout = 10s) {
    return await(thread, stream.next(timeout));
  }

  CompletionThread thread;
  Client client;
};

class ClientTest : public testing::Test {
 protected:
  // No test that uses these waits for a time-out of a call, and a busy machine under a sanitizer is slow.
  static Client::Options patient(const EtcdServer& server) {
    auto options = optionsFor({server.endpoint()});
    options.call_timeout = 60s;
    return options;
  }

  EtcdServer server_;
  BlockingClient etcd_{patient(server_)};
};

template <typename T>
testing::AssertionResult failedWith(const EtcdResult<T>& result, ErrorCode code) {
  if (result) return testing::AssertionFailure() << "it succeeded";
  if (result.error().code == code) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "code " << static_cast<int>(result.error().code) << ": "
                                     << result.error().message;
}

template <typename T>
testing::AssertionResult succeeded(const EtcdResult<T>& result) {
  if (result) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "code " << static_cast<int>(result.error().code) << ": "
                                     << result.error().message;
}

}  // namespace idetcd::etcd
