// Puts worker1.tf.local. to workerN.tf.local. into an etcd, as nodes would: in transactions, several under way.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <future>

#include <fmt/format.h>

#include "common/arguments.h"
#include "common/names.h"
#include "load/etcd_client.h"

namespace idetcd::bench {
namespace {

constexpr char kUsage[] =
    "usage: etcd_fill --endpoint URL [--names 1000] [--ipv6]\n"
    "Gives each name an IPv4 address, and with --ipv6 an IPv6 address too.\n";
constexpr uint32_t kBatch = 100;  // etcd takes at most 128 operations a transaction
constexpr int kTasks = 8;

class Filler {
 public:
  Filler(etcd::Client& client, uint32_t names, bool ipv6) : client_(client), names_(names), ipv6_(ipv6) {}

  bool run() {
    running_ = kTasks;
    for (int i = 0; i < kTasks; ++i) client_.thread().spawn(work());
    return done_.get_future().get();
  }

 private:
  runtime::Task<void> work() {
    while (next_ <= names_ && !failed_) {
      store::TxnRequest request = takeBatch();
      const auto result = co_await client_.txn(std::move(request));
      if (!result && !failed_) {
        failed_ = true;
        fmt::print(stderr, "etcd_fill: {}\n", result.error().message);
      }
    }
    if (--running_ == 0) done_.set_value(!failed_);
  }

  store::TxnRequest takeBatch() {
    store::TxnRequest request;
    const uint32_t end = std::min(names_, next_ + kBatch - 1);
    for (; next_ <= end; ++next_) request.success.emplace_back(nodePut(numberedName(next_), next_, ipv6_));
    return request;
  }

  etcd::Client& client_;
  const uint32_t names_;
  const bool ipv6_;
  // Completion thread only.
  uint32_t next_ = 1;
  int running_ = 0;
  bool failed_ = false;
  std::promise<bool> done_;
};

}  // namespace
}  // namespace idetcd::bench

int main(int argc, char** argv) {
  using namespace idetcd;
  bench::Arguments arguments(argc, argv, bench::kUsage);
  etcd::Client::Options options = bench::etcdOptions(arguments);
  options.call_timeout = std::chrono::seconds(60);
  const auto names = arguments.number<uint32_t>("--names", 1000);
  const bool ipv6 = arguments.flag("--ipv6");
  arguments.finish();
  if (names > bench::kMaxNames || !etcd::Client::validateEndpoint(options.endpoints.front())) {
    std::fputs(bench::kUsage, stderr);
    return 2;
  }
  bench::EtcdClient client(options);
  return bench::Filler(*client, names, ipv6).run() ? 0 : 1;
}
