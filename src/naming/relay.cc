#include "naming/relay.h"

#include "store/transaction.h"

namespace idetcd::naming {
namespace {

using runtime::Task;
using store::StoreResult;
using namespace std::chrono_literals;

constexpr std::string_view kListing = "listing this node as a relay";
constexpr std::chrono::nanoseconds kRelayLook = 1s;
// Until a node that cannot listen tries again: it reads all names for that.
constexpr std::chrono::nanoseconds kRetry = 10min;
constexpr int64_t kMostNames = 1'000'000;  // some 250 bytes each

}  // namespace

Relay::Relay(Context& context, Options options, std::function<size_t()> names)
    : context_(context), options_(std::move(options)), names_(std::move(names)) {}

bool Relay::isPlace() const {
  const int64_t slot = options_.slot();
  return slot > 0 && (slot - 1) % options_.fan_out == 0;
}

// A relay goes on until half of the names have gone.
bool Relay::isWanted() const {
  const auto names = static_cast<int64_t>(names_());
  return isPlace() && (names == 0 || names >= options_.fan_out) && names <= kMostNames;
}

// Where many start at once, a relay is there before the mirror has names.
Task<int64_t> Relay::countNames() {
  if (const size_t names = names_(); names > 0) co_return static_cast<int64_t>(names);
  int64_t names = 0;
  for (size_t i = 0; i < options_.ranges.size(); ++i) {
    store::KeyRange range = options_.ranges[i];
    const StoreResult<store::RangeResult> answer =
        co_await context_.store.range(std::move(range), {.count_only = true});
    if (!answer || context_.lifetime.stopping()) co_return 0;
    names += answer->count;
  }
  co_return names;
}

// The keys of any number of relays, by their order, are about equally far apart: each number's bits, from the lowest on.
std::string Relay::key() const {
  auto rest = static_cast<uint64_t>((options_.slot() - 1) / options_.fan_out);
  uint64_t place = 0;
  for (int i = 0; i < 64; ++i, rest >>= 1) place = place << 1 | (rest & 1);
  return options_.prefix + fmt::format("{:016x}", place);
}

Task<void> Relay::run(std::shared_ptr<void> owner) {
  if (options_.fan_out == 0) co_return;
  bool can_serve = true;
  while (true) {
    const std::chrono::nanoseconds look = context_.jitter.around(can_serve ? kRelayLook : kRetry, 0.5);
    const bool go_on = co_await context_.lifetime.pause(look);
    if (!go_on) break;
    if (!isPlace()) continue;
    auto counting = countNames();
    const int64_t names = co_await counting;
    if (context_.lifetime.stopping()) break;
    if (names < 2 * options_.fan_out || names > kMostNames || !isWanted()) continue;
    auto serving = serve(owner);
    can_serve = co_await serving;
  }
}

Task<bool> Relay::serve(std::shared_ptr<void> owner) {
  cache_ =
      std::make_shared<NameCache>(context_.scheduler, context_.store, context_.jitter, options_.ranges, context_.log);
  context_.scheduler.spawn(withOwner(owner, cache_->run()));
  context_.scheduler.spawn(withOwner(std::move(owner), cache_->checkRegularly()));
  options_.on_relay(true);
  auto keeping = keepListed();
  const bool could_serve = co_await keeping;
  if (const int64_t lease = std::exchange(lease_, 0); lease != 0) co_await context_.store.leaseRevoke(lease);
  end();
  if (!context_.lifetime.stopping()) options_.on_relay(false);
  co_return could_serve;
}

// Until it is not wanted any more, or the node has other addresses. False: it cannot be reached.
Task<bool> Relay::keepListed() {
  const records::HostAddresses addresses = options_.addresses();
  BootClock::time_point next = context_.now();
  for (bool go_on = true; go_on && isWanted() && options_.addresses() == addresses;) {
    if (!service_ && cache_->isReady()) {
      auto made = options_.serve(cache_, addresses.list());
      if (!made) {
        context_.log.warning("this node cannot serve names to others: {}", made.error().message);
        co_return false;
      }
      service_ = std::move(*made);
      context_.log.info("this node serves all names to others, as a relay, at {}",
                        fmt::join(service_->card().endpoints, ", "));
    }
    if (service_ && context_.now() >= next) {
      auto listing = list();
      const bool listed = co_await listing;
      if (context_.lifetime.stopping()) break;
      next = context_.now() + context_.jitter.around(listed ? options_.lease / 2 : options_.lease / 4, 0.1);
    }
    if (service_) context_.counters.relay_readers.set(static_cast<double>(service_->readers()));
    go_on = co_await context_.lifetime.pause(kRelayLook);
  }
  co_return true;
}

// Renews the lease, or lists this node anew. False: neither was possible.
Task<bool> Relay::list() {
  if (lease_ != 0) {
    const StoreResult<store::Lease> renewed = co_await context_.store.leaseKeepAlive(lease_, options_.lease / 4);
    if (renewed || renewed.error().code != ErrorCode::kLeaseNotFound) co_return renewed.has_value();
    lease_ = 0;
  }
  const StoreResult<store::Lease> granted = co_await context_.store.leaseGrant(options_.lease);
  if (!granted) co_return false;
  lease_ = granted->id;
  if (context_.lifetime.stopping() || !isPlace()) co_return false;
  store::Transaction transaction;
  transaction.put({key(), encodeCard(service_->card()), lease_});
  const StoreResult<store::TxnResult> put = co_await context_.store.txn(transaction.request());
  if (context_.lifetime.stopping()) co_return false;
  if (put) {
    context_.trouble.succeeded(kListing);
    co_return true;
  }
  context_.trouble.failed(kListing, put.error());
  // What may have come all the same goes with its lease.
  const int64_t lease = std::exchange(lease_, 0);
  co_await context_.store.leaseRevoke(lease);
  co_return false;
}

void Relay::end() {
  service_.reset();
  if (cache_) cache_->stop();
  cache_.reset();
  context_.counters.relay_readers.set(0);
}

void Relay::stop() { end(); }

void Relay::forget() {
  if (cache_) cache_->forget();
}

}  // namespace idetcd::naming
