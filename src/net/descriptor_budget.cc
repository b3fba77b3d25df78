#include "net/descriptor_budget.h"

#include <dirent.h>
#include <sys/resource.h>

#include "base/result.h"

namespace idetcd::net {

namespace {

// Of the whole, in eighths; the rest is shared.
constexpr std::array<size_t, DescriptorBudget::kUses> kGuaranteedEighths{2, 1, 2};

// For etcd (a connection and a look-up a member), files, programs of `on-claim`, and sockets that a reload opens.
constexpr size_t kMinMargin = 24;
constexpr size_t kMaxMargin = 96;
constexpr size_t kMarginPart = 8;  // of the limit
// However low the limit is: a server that forwards nothing and takes no connection would be of no use. Where there are
// no descriptors for that, the system calls fail.
constexpr size_t kMinTotal = 16;

constexpr size_t kMany = std::numeric_limits<size_t>::max() / 8;

// kMany: without bound.
size_t descriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kMany;
  return limit.rlim_cur;
}

// Or -errno.
ssize_t openDescriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir("/proc/self/fd"), &::closedir);
  if (!directory) return -errno;
  ssize_t count = 0;
  while (const dirent* entry = ::readdir(directory.get())) {
    if (entry->d_name[0] != '.') ++count;
  }
  return count - 1;  // without that of the directory itself
}

}  // namespace

size_t freeDescriptors() {
  const ssize_t open = openDescriptors();
  if (open < 0) return isWantOfResources(static_cast<int>(-open)) ? 0 : kMany;
  const size_t limit = descriptorLimit();
  return limit - std::min(limit, static_cast<size_t>(open));
}

std::shared_ptr<DescriptorBudget> DescriptorBudget::unlimited() { return make(kMany); }

std::shared_ptr<DescriptorAccount> DescriptorBudget::account(size_t loop) {
  const std::lock_guard lock(mutex_);
  if (loop < accounts_.size()) {
    if (auto known = accounts_[loop].lock()) return known;
  }
  const std::shared_ptr<DescriptorAccount> account(new DescriptorAccount(shared_from_this(), loop));
  accounts_.resize(std::max(accounts_.size(), loop + 1));
  used_.resize(accounts_.size());
  accounts_[loop] = account;
  divide();
  return account;
}

// REQUIRES: mutex_ is held.
void DescriptorBudget::divide() {
  while (!accounts_.empty() && accounts_.back().expired()) {  // all has been given back: a lease keeps its account
    accounts_.pop_back();
    used_.pop_back();
  }
  const size_t loops = std::max<size_t>(used_.size(), 1);
  for (size_t use = 0; use < kUses; ++use) {
    guaranteed_[use] = std::max(total_ * kGuaranteedEighths[use] / 8 / loops, std::min<size_t>(total_, 1));
  }
  idle_share_.store(total_ / 2 / loops, std::memory_order_relaxed);
  reserved_ = 0;
  for (const Numbers& used : used_) {
    for (size_t use = 0; use < kUses; ++use) reserved_ += std::max(used[use], guaranteed_[use]);
  }
}

void DescriptorBudget::resize(size_t total) {
  const std::lock_guard lock(mutex_);
  whole_ = total;
  leave(elsewhere_);
}

std::shared_ptr<void> DescriptorBudget::reserve(size_t number) {
  const std::lock_guard lock(mutex_);
  leave(elsewhere_ + number);
  return {this, [self = shared_from_this(), number](void*) {
            const std::lock_guard guard(self->mutex_);
            self->leave(self->elsewhere_ - number);
          }};
}

// REQUIRES: mutex_ is held.
void DescriptorBudget::leave(size_t elsewhere) {
  elsewhere_ = elsewhere;
  total_ = std::max(whole_ - std::min(whole_, elsewhere_), std::min(whole_, kMinTotal));
  divide();
}

void DescriptorBudget::fitToProcess() {
  const size_t limit = descriptorLimit();
  const ssize_t open = openDescriptors();
  if (limit == kMany || open < 0) return;
  const size_t ours = used();
  const size_t others = static_cast<size_t>(open) - std::min(static_cast<size_t>(open), ours);
  const size_t margin = std::clamp(limit / kMarginPart, kMinMargin, kMaxMargin);
  resize(std::max(limit - std::min(limit, others + margin), kMinTotal));
}

bool DescriptorBudget::take(size_t loop, DescriptorUse use) {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<size_t>(use);
  size_t& used = used_[loop][index];
  if (used >= guaranteed_[index]) {
    if (reserved_ >= total_) return false;
    ++reserved_;
  }
  ++used;
  return true;
}

void DescriptorBudget::give(size_t loop, DescriptorUse use) {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<size_t>(use);
  if (used_[loop][index]-- > guaranteed_[index]) --reserved_;
}

// Whether all that the loop has of `use` is within what it is guaranteed: to give some back makes no room for others.
bool DescriptorBudget::isGuaranteed(size_t loop, DescriptorUse use) const {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<size_t>(use);
  return used_[loop][index] <= guaranteed_[index];
}

size_t DescriptorBudget::total() const {
  const std::lock_guard lock(mutex_);
  return total_;
}

size_t DescriptorBudget::used() const {
  const std::lock_guard lock(mutex_);
  size_t sum = 0;
  for (const Numbers& used : used_) {
    for (const size_t count : used) sum += count;
  }
  return sum;
}

DescriptorLease& DescriptorLease::operator=(DescriptorLease&& other) noexcept {
  if (this == &other) return *this;
  reset();
  account_ = std::exchange(other.account_, nullptr);
  use_ = other.use_;
  return *this;
}

void DescriptorLease::reset() {
  if (const auto account = std::exchange(account_, nullptr)) account->give(use_);
}

bool DescriptorAccount::take(DescriptorUse use) {
  do {
    if (budget_->take(loop_, use)) return true;
  } while (closeIdleFor(use));
  return false;
}

DescriptorLease DescriptorAccount::lease(DescriptorUse use) {
  DescriptorLease lease;
  if (!take(use)) return lease;
  lease.account_ = shared_from_this();
  lease.use_ = use;
  return lease;
}

// Closes one idle descriptor whose end makes room. False: there is none.
bool DescriptorAccount::closeIdleFor(DescriptorUse use) {
  for (const auto& [keeper, kept] : keepers_) {
    if (kept != use && budget_->isGuaranteed(loop_, kept)) continue;
    if (keeper->closeIdle()) return true;
  }
  return false;
}

void DescriptorAccount::remove(IdleDescriptors& keeper) {
  std::erase_if(keepers_, [&keeper](const auto& known) { return known.first == &keeper; });
}

}  // namespace idetcd::net
