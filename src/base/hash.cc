#include "base/hash.h"

#include "base/random.h"

namespace idetcd {

HashSeed randomHashSeed() { return KernelRandom().next(); }

}  // namespace idetcd
