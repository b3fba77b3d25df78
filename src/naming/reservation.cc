#include "naming/reservation.h"

#include "naming/keyspace.h"
#include "store/transaction.h"

namespace idetcd::naming {

using store::Compare;
using store::StoreResult;
using namespace std::chrono_literals;

void Reservation::leave() {
  ++changes_;
  lease_.reset();
}

runtime::Task<void> Reservation::drop() {
  const std::optional<store::Lease> lease = lease_;
  leave();
  // Unless it is answered, the lease ends by itself.
  if (lease) co_await context_.store.leaseRevoke(lease->id);
}

Reservation::Answer<bool> Reservation::prepare(std::string_view name, std::string_view uuid) {
  assert(isWanted());
  const uint64_t changes = changes_;
  int64_t known = lease_ ? lease_->id : 0;
  if (known == 0 && !name.empty()) {
    store::KeyRange key = store::KeyRange::single(reservationKey(name));
    const std::string own(uuid);
    const StoreResult<store::RangeResult> found = co_await context_.store.range(std::move(key), {});
    if (!found) co_return tl::unexpected(found.error());
    if (!found->kvs.empty() && found->kvs.front().value == own) known = found->kvs.front().lease;
  }
  if (known != 0) {
    const auto timeout = std::clamp<std::chrono::nanoseconds>(renewalPeriod() / 2, 200ms, 5s);
    const StoreResult<store::Lease> kept = co_await context_.store.leaseKeepAlive(known, timeout);
    if (changes != changes_) co_return stopped();
    if (!kept && kept.error().code != ErrorCode::kLeaseNotFound) co_return tl::unexpected(kept.error());
    // Of another process, it may live for another time than is wanted now.
    if (kept && (lease_ || kept->ttl == timeToLive())) {
      if (!lease_) granted_here_ = false;
      lease_ = *kept;
      co_return true;
    }
  }
  const StoreResult<store::Lease> granted = co_await context_.store.leaseGrant(timeToLive());
  if (!granted) co_return tl::unexpected(granted.error());
  if (changes != changes_) co_return stopped();
  lease_ = *granted;
  granted_here_ = true;
  co_return true;
}

store::PutOp Reservation::put(std::string_view name, std::string uuid) const {
  assert(lease_);
  return {reservationKey(name), std::move(uuid), lease_->id};
}

void Reservation::claimed(std::string name) {
  ++changes_;
  name_ = std::move(name);
}

Reservation::Answer<bool> Reservation::renew(std::string uuid, int64_t create_revision, int64_t lease) {
  const uint64_t changes = changes_;
  const StoreResult<bool> kept = co_await prepare(name_, uuid);
  if (!kept) co_return kept;
  store::KeyRange key = store::KeyRange::single(reservationKey(name_));
  const StoreResult<store::RangeResult> found = co_await context_.store.range(std::move(key), {});
  if (!found) co_return tl::unexpected(found.error());
  if (changes != changes_) co_return stopped();
  if (found->kvs.empty() || found->kvs.front().lease != lease_->id) {
    // It has ended with its lease, or by somebody's hand.
    store::Transaction transaction;
    transaction.require({.key = name_, .target = Compare::Target::kCreateRevision, .number = create_revision});
    transaction.require({.key = name_, .target = Compare::Target::kLease, .number = lease});
    transaction.put(put(name_, std::move(uuid)));
    const StoreResult<store::TxnResult> answer = co_await context_.store.txn(transaction.request());
    if (!answer) co_return tl::unexpected(answer.error());
    if (changes != changes_) co_return stopped();
  }
  co_return true;
}

}  // namespace idetcd::naming
