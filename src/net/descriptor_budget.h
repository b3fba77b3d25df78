// Limits the descriptors of what comes and goes: sockets and connections to upstreams, and clients over TCP. Listeners,
// etcd, files and a reload are not part of the budget.
//
// Each use has a guaranteed part that no other can take; the rest goes to the first that asks. Each loop has an equal
// share of every guaranteed part, so that no loop is left without. When there is no room for one more, something idle
// of the same loop is closed first.
#pragma once

#include "base/std.h"

namespace idetcd::net {

enum class DescriptorUse : uint8_t {
  kDatagram,  // a socket from which an upstream is asked
  kUpstream,  // a connection to an upstream
  kClient,    // a connection of a client
};

// How many more the process can open. A very large number if that cannot be found out.
size_t freeDescriptors();

class DescriptorAccount;

// Any thread.
class DescriptorBudget : public std::enable_shared_from_this<DescriptorBudget> {
 public:
  static constexpr size_t kUses = 3;

  static std::shared_ptr<DescriptorBudget> make(size_t total) {
    return std::shared_ptr<DescriptorBudget>(new DescriptorBudget(total));
  }
  static std::shared_ptr<DescriptorBudget> unlimited();

  // The share of one loop. Loops are numbered from 0.
  std::shared_ptr<DescriptorAccount> account(size_t loop);

  // More may be in use than the new total allows; then nothing is granted until enough has been given back.
  void resize(size_t total);
  // Leaves so many of the total to something else, until what is returned ends; the budget never falls below its least.
  // Of these, those that are open when it is fitted to the process count twice.
  std::shared_ptr<void> reserve(size_t number);
  // Sets the total to what the process's limit leaves beside the descriptors that are open for other things, and a
  // margin for those that will be. Without a limit, or if they cannot be counted, the total stays.
  void fitToProcess();

  size_t total() const;
  size_t used() const;

 private:
  friend class DescriptorAccount;
  using Numbers = std::array<size_t, kUses>;

  explicit DescriptorBudget(size_t total) : whole_(total), total_(total) {}
  bool take(size_t loop, DescriptorUse use);
  void give(size_t loop, DescriptorUse use);
  bool isGuaranteed(size_t loop, DescriptorUse use) const;
  size_t idleShare() const { return idle_share_.load(std::memory_order_relaxed); }
  void leave(size_t elsewhere);
  void divide();

  mutable std::mutex mutex_;  // held for some instructions; the rest is guarded by it
  size_t whole_;
  size_t elsewhere_ = 0;       // of the whole
  size_t total_;               // the rest
  Numbers guaranteed_{};       // of each loop
  size_t reserved_ = 0;        // the sum over loops and uses: what is guaranteed, or what is in use if that is more
  std::vector<Numbers> used_;  // by loop
  std::vector<std::weak_ptr<DescriptorAccount>> accounts_;
  std::atomic<size_t> idle_share_{0};  // of one loop; not guarded, it is asked for with each datagram
};

// An owner of descriptors that are not needed at the moment.
class IdleDescriptors {
 public:
  virtual ~IdleDescriptors() = default;
  // Closes one and gives it back. False: there is none.
  virtual bool closeIdle() = 0;
};

// One descriptor that counts; it is given back by the end of this object. Loop thread only.
class DescriptorLease {
 public:
  DescriptorLease() = default;
  DescriptorLease(DescriptorLease&& other) noexcept { *this = std::move(other); }
  DescriptorLease& operator=(DescriptorLease&& other) noexcept;
  ~DescriptorLease() { reset(); }
  void reset();
  explicit operator bool() const { return account_ != nullptr; }

 private:
  friend class DescriptorAccount;
  std::shared_ptr<DescriptorAccount> account_;
  DescriptorUse use_ = DescriptorUse::kDatagram;
};

// One loop's part of the budget. Loop thread only.
class DescriptorAccount : public std::enable_shared_from_this<DescriptorAccount> {
 public:
  // One more; something idle on this loop is closed for it if need be. Empty or false: there is no room.
  bool take(DescriptorUse use);
  DescriptorLease lease(DescriptorUse use);
  void give(DescriptorUse use) { budget_->give(loop_, use); }

  // How many idle ones this loop may keep: its share of half the budget.
  size_t maxIdle() const { return budget_->idleShare(); }
  // `keeper` has idle ones of `use`, until it is removed.
  void add(IdleDescriptors& keeper, DescriptorUse use) { keepers_.emplace_back(&keeper, use); }
  void remove(IdleDescriptors& keeper);

  const DescriptorBudget& budget() const { return *budget_; }

 private:
  friend class DescriptorBudget;
  DescriptorAccount(std::shared_ptr<DescriptorBudget> budget, size_t loop) : budget_(std::move(budget)), loop_(loop) {}
  bool closeIdleFor(DescriptorUse use);

  const std::shared_ptr<DescriptorBudget> budget_;
  const size_t loop_;
  std::vector<std::pair<IdleDescriptors*, DescriptorUse>> keepers_;
};

}  // namespace idetcd::net
