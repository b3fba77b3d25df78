#include "naming/reservation.h"

#include "naming/keyspace.h"
#include "store/transaction.h"

namespace idetcd::naming {

using store::Compare;
using store::StoreResult;
using namespace std::chrono_literals;

std::chrono::nanoseconds Reservation::timeout() const {
  return std::clamp<std::chrono::nanoseconds>(renewalPeriod() / 2, 200ms, 5s);
}

void Reservation::leave() {
  ++changes_;
  lease_.reset();
}

runtime::Task<void> Reservation::drop() {
  ++changes_;
  if (!lease_) co_return;
  // Unless it is answered, the lease ends by itself.
  const int64_t lease = std::exchange(lease_, std::nullopt)->id;
  co_await context_.store.leaseRevoke(lease);
}

// False: it has ended, or lives for another time than is wanted now.
Reservation::Answer<bool> Reservation::keep(int64_t lease) {
  const uint64_t changes = changes_;
  StoreResult<store::Lease> kept = co_await context_.store.leaseKeepAlive(lease, timeout());
  if (changes != changes_) co_return stopped();
  if (!kept && kept.error().code == ErrorCode::kLeaseNotFound) co_return false;
  if (!kept) co_return tl::unexpected(kept.error());
  if (kept->ttl != granted_time_.value_or(timeToLive())) co_return false;
  granted_here_ = granted_here_ && lease_ && lease_->id == kept->id;
  lease_ = *kept;
  co_return true;
}

Reservation::Answer<bool> Reservation::grant() {
  const uint64_t changes = changes_;
  const StoreResult<store::Lease> granted = co_await context_.store.leaseGrant(timeToLive());
  if (!granted) co_return tl::unexpected(granted.error());
  if (changes != changes_) co_return stopped();
  lease_ = *granted;
  granted_time_ = std::chrono::duration_cast<std::chrono::seconds>(granted->ttl);
  granted_here_ = true;
  co_return true;
}

Reservation::Answer<bool> Reservation::prepare(std::string name, int64_t found) {
  assert(isWanted());
  if (name_ != name && lease_ && lease_->id != found) co_await drop();
  ++changes_;
  name_ = std::move(name);
  if (const int64_t known = found != 0 ? found : lease_ ? lease_->id : 0; known != 0) {
    const StoreResult<bool> kept = co_await keep(known);
    if (!kept || *kept) co_return kept;
  }
  const StoreResult<bool> granted = co_await grant();
  co_return granted;
}

store::PutOp Reservation::put(std::string uuid) const {
  assert(lease_);
  return {reservationKey(name_), std::move(uuid), lease_->id};
}

Reservation::Answer<bool> Reservation::renew(std::string uuid, int64_t create_revision, int64_t lease) {
  const uint64_t changes = changes_;
  StoreResult<bool> kept = false;
  if (lease_) kept = co_await keep(lease_->id);
  if (kept && !*kept) kept = co_await grant();
  if (!kept) co_return kept;
  store::KeyRange key = store::KeyRange::single(reservationKey(name_));
  const StoreResult<store::RangeResult> found = co_await context_.store.range(key, {});
  if (!found) co_return tl::unexpected(found.error());
  if (changes != changes_) co_return stopped();
  if (!found->kvs.empty() && found->kvs.front().lease == lease_->id) co_return true;
  // It has ended with its lease, or by somebody's hand.
  store::Transaction transaction;
  transaction.require({.key = name_, .target = Compare::Target::kCreateRevision, .number = create_revision});
  transaction.require({.key = name_, .target = Compare::Target::kLease, .number = lease});
  transaction.put(put(std::move(uuid)));
  const StoreResult<store::TxnResult> answer = co_await context_.store.txn(transaction.request());
  if (!answer) co_return tl::unexpected(answer.error());
  co_return true;
}

}  // namespace idetcd::naming
