#include "records/epoch.h"

#include <thread>

namespace idetcd::records {

EpochDomain::~EpochDomain() {
  assert(std::ranges::none_of(slots_, [](const auto& slot) { return slot->in_use; }));
  for (const Retired& retired : retired_) retired.free(retired.owner, retired.object);
}

void EpochDomain::retire(Free free, void* owner, void* object) {
  const std::lock_guard lock(retired_mutex_);
  // A reader that entered in the epoch before this one may still hold it; one that enters after the increment cannot.
  const uint64_t epoch = epoch_.fetch_add(1, std::memory_order_seq_cst) + 1;
  retired_.push_back({epoch, free, owner, object});
}

size_t EpochDomain::reclaim() {
  const std::lock_guard lock(retired_mutex_);
  if (retired_.empty()) return 0;
  const uint64_t oldest = oldestReader();
  while (!retired_.empty() && retired_.front().epoch <= oldest) {
    const Retired retired = retired_.front();
    retired_.pop_front();
    retired.free(retired.owner, retired.object);
  }
  return retired_.size();
}

void EpochDomain::drain(const void* owner) {
  const auto is_owned = [owner](const Retired& retired) { return retired.owner == owner; };
  for (;; std::this_thread::yield()) {  // sections are short
    const std::lock_guard lock(retired_mutex_);
    const uint64_t oldest = oldestReader();
    std::erase_if(retired_, [&](const Retired& retired) {
      if (!is_owned(retired) || retired.epoch > oldest) return false;
      retired.free(retired.owner, retired.object);
      return true;
    });
    if (std::none_of(retired_.begin(), retired_.end(), is_owned)) return;
  }
}

uint64_t EpochDomain::oldestReader() {
  uint64_t oldest = std::numeric_limits<uint64_t>::max();
  const std::lock_guard lock(mutex_);
  for (const auto& slot : slots_) {
    const uint64_t epoch = slot->epoch.load(std::memory_order_seq_cst);
    if (epoch != kQuiescent) oldest = std::min(oldest, epoch);
  }
  return oldest;
}

EpochDomain::Reader::Reader(EpochDomain& domain) : domain_(domain) {
  const std::lock_guard lock(domain.mutex_);
  const auto free_slot =
      std::find_if(domain.slots_.begin(), domain.slots_.end(), [](const auto& slot) { return !slot->in_use; });
  slot_ =
      free_slot != domain.slots_.end() ? free_slot->get() : domain.slots_.emplace_back(std::make_unique<Slot>()).get();
  slot_->in_use = true;
}

EpochDomain::Reader::~Reader() {
  leave();
  const std::lock_guard lock(domain_.mutex_);
  slot_->in_use = false;
}

}  // namespace idetcd::records
