// One real etcd and a client of it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "etcd/client.h"
#include "run_task.h"
#include "support/etcd_server.h"
#include "support/eventually.h"
#include "support/metric_values.h"

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

// One put by itself. Returns its revision.
inline Task<StoreResult<int64_t>> put(Client& client, PutOp op) {
  TxnRequest request;
  request.success.push_back(std::move(op));
  auto writing = client.txn(std::move(request));
  const auto done = co_await writing;
  if (!done) co_return tl::unexpected(done.error());
  co_return done->revision;
}

inline Task<StoreResult<std::unique_ptr<WatchStream>>> watch(Client& client, KeyRange keys, int64_t start_revision) {
  return client.watch(std::vector<WatchRange>{{std::move(keys), start_revision}});
}

// A client with a thread of its own, and its calls as blocking functions.
struct BlockingClient {
  explicit BlockingClient(Client::Options options) : client(thread, counted(std::move(options)), Logger()) {}
  explicit BlockingClient(const EtcdServer& server) : BlockingClient(optionsFor({server.endpoint()})) {}
  // Nothing of the client is in use any more when it is destroyed.
  ~BlockingClient() { thread.stop(); }

  StoreResult<RangeResult> range(KeyRange keys, RangeOptions options = {}) {
    return await(thread, client.range(std::move(keys), options));
  }
  std::optional<std::string> value(const std::string& key) {
    auto result = range(KeyRange::single(key));
    if (!result || result->kvs.empty()) return std::nullopt;
    return result->kvs[0].value;
  }
  StoreResult<int64_t> put(std::string key, std::string text, int64_t lease = 0) {
    return await(thread, etcd::put(client, {std::move(key), std::move(text), lease}));
  }
  StoreResult<DeleteResult> remove(KeyRange keys) {
    const auto done = txn({.compares = {}, .success = {DeleteOp{std::move(keys)}}, .failure = {}});
    if (!done) return tl::unexpected(done.error());
    return std::get<DeleteResult>(done->results.at(0));
  }
  StoreResult<TxnResult> txn(TxnRequest request) { return await(thread, client.txn(std::move(request))); }
  StoreResult<Lease> grant(std::chrono::seconds ttl) { return await(thread, client.leaseGrant(ttl)); }
  StoreResult<Lease> keepAlive(int64_t id, std::chrono::nanoseconds timeout = 30s) {
    return await(thread, client.leaseKeepAlive(id, timeout));
  }
  StoreResult<void> revoke(int64_t id) { return await(thread, client.leaseRevoke(id)); }
  StoreResult<std::unique_ptr<WatchStream>> watch(KeyRange keys, int64_t revision) {
    return await(thread, etcd::watch(client, std::move(keys), revision));
  }
  StoreResult<WatchBatch> next(const std::unique_ptr<WatchStream>& stream, std::chrono::nanoseconds timeout = 10s) {
    return await(thread, stream->next(timeout));
  }

  // "idetcd_etcd_…_total", of all that this client has done.
  uint64_t count(std::string_view counter) const {
    return static_cast<uint64_t>(test_support::sumOf(metrics, "idetcd_etcd_" + std::string(counter) + "_total"));
  }

  const metrics::Registry metrics;
  const std::unique_ptr<CompletionThread> owned_thread = CompletionThread::make().value();
  CompletionThread& thread = *owned_thread;
  Client client;

 private:
  Client::Options counted(Client::Options options) const {
    options.metrics = metrics.scope();
    return options;
  }
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
testing::AssertionResult failedWith(const StoreResult<T>& result, ErrorCode code) {
  if (result) return testing::AssertionFailure() << "it succeeded";
  if (result.error().code == code) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "code " << static_cast<int>(result.error().code) << ": "
                                     << result.error().message;
}

template <typename T>
testing::AssertionResult succeeded(const StoreResult<T>& result) {
  if (result) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "code " << static_cast<int>(result.error().code) << ": "
                                     << result.error().message;
}

}  // namespace idetcd::etcd
