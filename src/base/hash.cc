#include "base/hash.h"

#include <cstdlib>
#include <sys/random.h>

namespace idetcd {

HashSeed randomHashSeed() {
  HashSeed seed;
  if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
    std::abort();  // cannot fail for 8 bytes once the pool is ready
  return seed;
}

}  // namespace idetcd
