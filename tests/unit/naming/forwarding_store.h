// A store that hands every call on to a client: for tests that come between in one place.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "etcd/client.h"
#include "store/store.h"

namespace idetcd::naming {

class ForwardingStore : public store::Store {
 public:
  explicit ForwardingStore(etcd::Client& client) : client_(client) {}

  std::string kind() const override { return client_.kind(); }
  std::vector<std::string> endpoints() const override { return client_.endpoints(); }
  runtime::Task<store::StoreResult<store::RangeResult>> range(store::KeyRange range,
                                                              store::RangeOptions options) override {
    return client_.range(std::move(range), options);
  }
  runtime::Task<store::StoreResult<store::TxnResult>> txn(store::TxnRequest request) override {
    return client_.txn(std::move(request));
  }
  runtime::Task<store::StoreResult<store::Lease>> leaseGrant(std::chrono::seconds ttl) override {
    return client_.leaseGrant(ttl);
  }
  runtime::Task<store::StoreResult<store::Lease>> leaseKeepAlive(int64_t id,
                                                                 std::chrono::nanoseconds timeout) override {
    return client_.leaseKeepAlive(id, timeout);
  }
  runtime::Task<store::StoreResult<std::chrono::seconds>> leaseTimeToLive(int64_t id) override {
    return client_.leaseTimeToLive(id);
  }
  runtime::Task<store::StoreResult<void>> leaseRevoke(int64_t id) override { return client_.leaseRevoke(id); }
  runtime::Task<store::StoreResult<std::unique_ptr<store::WatchStream>>> watch(
      std::vector<store::WatchRange> ranges) override {
    return client_.watch(std::move(ranges));
  }
  runtime::Task<bool> returnHome() override { return client_.returnHome(); }

 protected:
  etcd::Client& client_;
};

}  // namespace idetcd::naming
