#include "base/hash.h"

#include <cstdlib>
#include <iterator>
#include <openssl/evp.h>

#include "base/random.h"

namespace idetcd {

HashSeed randomHashSeed() { return KernelRandom().next(); }

std::string sha512(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha512(), nullptr) != 1) std::abort();  // memory
  std::string text;
  for (unsigned i = 0; i < size; ++i) fmt::format_to(std::back_inserter(text), "{:02x}", digest.at(i));
  return text;
}

}  // namespace idetcd
