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

SecureRandom::~SecureRandom() { explicit_bzero(pool_.data(), pool_.size()); }

uint32_t SecureRandom::below(uint32_t bound) {
  assert(bound > 0);
  // Numbers beyond the last whole multiple of `bound` are drawn again, or low ones would be more frequent.
  const uint32_t rest = (std::numeric_limits<uint32_t>::max() % bound + 1) % bound;
  uint32_t value = 0;
  do {
    value = take(4);
  } while (rest != 0 && value > std::numeric_limits<uint32_t>::max() - rest);
  return value % bound;
}

uint32_t SecureRandom::take(size_t bytes) {
  if (pool_.size() - used_ < bytes) {
    for (size_t filled = 0; filled < pool_.size();) {
      const ssize_t n = getrandom(pool_.data() + filled, pool_.size() - filled, 0);
      if (n < 0 && errno != EINTR) std::abort();
      if (n > 0) filled += static_cast<size_t>(n);
    }
    used_ = 0;
  }
  uint32_t value = 0;
  std::memcpy(&value, pool_.data() + used_, bytes);
  std::memset(pool_.data() + used_, 0, bytes);  // what was given out is not kept
  used_ += bytes;
  return value;
}

}  // namespace idetcd
