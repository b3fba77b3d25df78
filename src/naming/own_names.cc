#include "naming/own_names.h"

namespace idetcd::naming {

void OwnNames::add(std::shared_ptr<OwnName> second, bool needed) {
  const std::lock_guard lock(mutex_);
  assert(!second_);
  second_ = std::move(second);
  needed_ = needed;
}

void OwnNames::keepFirst() {
  const std::lock_guard lock(mutex_);
  second_.reset();
  needed_ = false;
}

void OwnNames::keepSecond() {
  const std::lock_guard lock(mutex_);
  assert(second_);
  first_ = std::exchange(second_, nullptr);
  needed_ = false;
}

void OwnNames::need() {
  const std::lock_guard lock(mutex_);
  assert(second_);
  needed_ = true;
}

bool OwnNames::join() {
  const Both now = both();
  if (!now.second || now.needed) return now.needed;
  if (!sameIn(now)) return false;
  const std::lock_guard lock(mutex_);
  return needed_ = true;
}

bool OwnNames::needsBoth() const { return both().needed; }

OwnNames::Both OwnNames::both() const {
  const std::lock_guard lock(mutex_);
  return {first_, second_, needed_};
}

// Equal tokens: the first store's has been raised for whoever takes the name there next.
std::optional<Ownership> OwnNames::sameIn(const Both& both) {
  std::optional<Ownership> owned = both.first->ownership();
  const std::optional<Ownership> other = both.second->ownership();
  if (!owned || !other || owned->name != other->name || owned->token != other->token) return std::nullopt;
  owned->deadline = std::min(owned->deadline, other->deadline);
  return owned;
}

std::optional<Ownership> OwnNames::ownership() const {
  const Both now = both();
  return now.needed ? sameIn(now) : now.first->ownership();
}

void OwnNames::noteGeneration() {
  const Both now = both();
  now.first->noteGeneration();
  if (now.second) now.second->noteGeneration();
}

bool OwnNames::isBeingConfirmed() const {
  const Both now = both();
  return now.first->isBeingConfirmed() || (now.needed && now.second->isBeingConfirmed());
}

void OwnNames::suspect() {
  const Both now = both();
  now.first->suspect();
  if (now.second) now.second->suspect();
}

void OwnNames::setAddresses(const records::MemberAddresses& addresses) {
  const Both now = both();
  now.first->setAddresses(addresses);
  if (now.second) now.second->setAddresses(addresses);
}

void OwnNames::setDrained(bool drained) {
  const Both now = both();
  now.first->setDrained(drained);
  if (now.second) now.second->setDrained(drained);
}

runtime::Task<bool> OwnNames::whenPublished(std::chrono::nanoseconds patience) {
  const Both now = both();
  bool published = co_await now.first->whenPublished(patience);
  if (published && now.needed) published = co_await now.second->whenPublished(patience);
  co_return published;
}

}  // namespace idetcd::naming
