#include "base/random.h"

#include <cstdlib>
#include <sys/random.h>

namespace idetcd {

uint64_t KernelRandom::next() {
  uint64_t bits = 0;
  // Up to 256 bytes come whole once the pool is initialised.
  if (getrandom(&bits, sizeof bits, 0) != sizeof bits) std::abort();
  return bits;
}

}  // namespace idetcd
