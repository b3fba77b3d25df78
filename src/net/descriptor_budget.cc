#include "net/descriptor_budget.h"

#include <limits>
#include <sys/resource.h>

namespace idetcd::net {

size_t DescriptorBudget::shareOfLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::numeric_limits<size_t>::max() / 2;
  }
  return limit.rlim_cur / 4 * 3;
}

}  // namespace idetcd::net
