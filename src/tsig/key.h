// The secrets that servers share for transaction signatures (RFC 8945). Any thread.
#pragma once

#include "dns/name.h"

namespace idetcd::tsig {

// HMAC with these hashes (RFC 8945 §6).
enum class Algorithm : uint8_t { kSha1, kSha224, kSha256, kSha384, kSha512 };

// "hmac-sha256", in any case; the dot at its end may be missing.
std::optional<Algorithm> parseAlgorithm(std::string_view text);
const dns::Name& nameOf(Algorithm algorithm);  // as TSIG records have it
size_t macSize(Algorithm algorithm);           // bytes

struct Key {
  dns::Name name;
  Algorithm algorithm = Algorithm::kSha256;
  std::vector<uint8_t> secret{};
};

inline constexpr size_t kMaxMacSize = 64;
// Writes macSize() bytes.
void computeMac(const Key& key, std::span<const uint8_t> bytes, std::array<uint8_t, kMaxMacSize>& mac);

class Keyring {
 public:
  // False: there is one of this name already.
  bool add(Key key);
  // Null: there is none.
  const Key* find(const dns::Name& name) const;

 private:
  std::vector<Key> keys_;
};

}  // namespace idetcd::tsig
