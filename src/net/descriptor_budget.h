// How many descriptors a process spends on one purpose at most, so that some are left for every other. Any thread.
#pragma once

#include <atomic>
#include <cstddef>

namespace idetcd::net {

class DescriptorBudget {
 public:
  explicit DescriptorBudget(size_t max) : max_(max) {}
  // Three quarters of what the process may open.
  static size_t shareOfLimit();

  // False: there are as many as may be.
  bool take() {  // relaxed: it is a number, nothing hangs on it
    if (used_.fetch_add(1, std::memory_order_relaxed) < max_) return true;
    give();
    return false;
  }
  void give() { used_.fetch_sub(1, std::memory_order_relaxed); }
  size_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  const size_t max_;
  std::atomic<size_t> used_{0};
};

}  // namespace idetcd::net
