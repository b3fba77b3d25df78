#include "naming/health_gate.h"

#include <unordered_set>

#include "naming/keyspace.h"
#include "naming/record_codec.h"

namespace idetcd::naming {

using runtime::Task;
using store::KeyValue;
using store::StoreResult;
using namespace std::chrono_literals;

namespace {

constexpr std::chrono::seconds kShortestLease{30};
constexpr std::chrono::seconds kKeepAliveTimeout{3};

}  // namespace

bool mayBeOut(const std::vector<SeenNode>& holders, const std::vector<std::string>& tickets, int floor_percent) {
  const std::unordered_set<std::string> sick(tickets.begin(), tickets.end());
  size_t nodes = tickets.size();
  size_t out = tickets.size();
  for (const SeenNode& node : holders) {
    if (sick.contains(node.uuid)) continue;
    ++nodes;
    if (node.is_drained) ++out;
  }
  return (nodes - out) * 100 >= nodes * static_cast<size_t>(floor_percent);
}

HealthGate::Answer<bool> HealthGate::ask(store::Store& store, std::string uuid) {
  const StoreResult<bool> kept = co_await keepLease(store);
  if (!kept) co_return tl::unexpected(kept.error());
  const StoreResult<std::vector<std::string>> tickets = co_await readTickets(store, uuid);
  if (!tickets) co_return tl::unexpected(tickets.error());
  const StoreResult<std::vector<SeenNode>> holders = co_await readHolders(store);
  if (!holders) co_return tl::unexpected(holders.error());
  co_return mayBeOut(*holders, *tickets, options_.floor_percent);
}

Task<void> HealthGate::leave(store::Store& store) {
  const int64_t lease = std::exchange(lease_, 0);
  if (lease != 0) (void)co_await store.leaseRevoke(lease);
}

HealthGate::Answer<bool> HealthGate::keepLease(store::Store& store) {
  if (lease_ != 0) {
    const StoreResult<store::Lease> kept = co_await store.leaseKeepAlive(lease_, kKeepAliveTimeout);
    if (kept) co_return true;
    if (kept.error().code != ErrorCode::kLeaseNotFound) co_return tl::unexpected(kept.error());
  }
  lease_ = 0;
  const auto ttl = std::max(kShortestLease, std::chrono::ceil<std::chrono::seconds>(3 * options_.interval));
  const StoreResult<store::Lease> granted = co_await store.leaseGrant(ttl);
  if (!granted) co_return tl::unexpected(granted.error());
  lease_ = granted->id;
  co_return true;
}

// Those that are not behind this node's, which is there afterwards. Another put keeps its place.
HealthGate::Answer<std::vector<std::string>> HealthGate::readTickets(store::Store& store, const std::string& uuid) {
  const std::string prefix = sickPrefix(options_.pattern.text());
  const std::string own = prefix + uuid;
  store::TxnRequest request;
  request.compares.push_back({.key = own, .target = store::Compare::Target::kLease, .number = lease_});
  const store::RangeOp all{store::KeyRange::prefix(prefix), {.keys_only = true, .sort_by_create_revision = true}};
  request.success = {all};
  request.failure = {store::PutOp{own, "", lease_}, all};
  request.repeatable = true;
  const StoreResult<store::TxnResult> answer = co_await store.txn(std::move(request));
  if (!answer) co_return tl::unexpected(answer.error());
  if (answer->results.empty()) co_return tl::unexpected(unfitting());
  const auto* found = std::get_if<store::RangeResult>(&answer->results.back());
  if (found == nullptr) co_return tl::unexpected(unfitting());
  std::vector<std::string> tickets;
  for (const KeyValue& kv : found->kvs) {
    tickets.push_back(kv.key.substr(prefix.size()));
    if (kv.key == own) co_return tickets;
  }
  co_return unfitting();
}

HealthGate::Answer<std::vector<SeenNode>> HealthGate::readHolders(store::Store& store) const {
  const store::KeyRange range = slotRange(options_.pattern);
  std::vector<SeenNode> holders;
  std::function<bool(std::vector<KeyValue> &&)> add = [this, &holders](std::vector<KeyValue>&& page) {
    for (const KeyValue& kv : page) {
      if (kv.lease == 0 || !options_.pattern.recognise(kv.key)) continue;
      const Result<NodeRecord> record = decodeRecord(kv.value);
      if (record) holders.push_back({record->id, !record->ipv4 && !record->ipv6});
    }
    return !lifetime_.stopping();
  };
  const store::RangeOptions options;
  const StoreResult<int64_t> read = co_await store::rangePaginated(store, range, options, 0, std::move(add));
  if (!read) co_return tl::unexpected(read.error());
  if (lifetime_.stopping()) co_return stopped();
  co_return holders;
}

}  // namespace idetcd::naming
