#include "tsig/key.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

namespace idetcd::tsig {

namespace {

struct AlgorithmRow {
  dns::Name name;
  size_t mac_size;
  const EVP_MD* (*hash)();
};

// In the order of Algorithm.
const std::array<AlgorithmRow, 5>& rows() {
  const auto name = [](std::string_view text) { return dns::Name::parse(text).value(); };
  static const std::array<AlgorithmRow, 5> kRows{{{name("hmac-sha1"), 20, EVP_sha1},
                                                  {name("hmac-sha224"), 28, EVP_sha224},
                                                  {name("hmac-sha256"), 32, EVP_sha256},
                                                  {name("hmac-sha384"), 48, EVP_sha384},
                                                  {name("hmac-sha512"), kMaxMacSize, EVP_sha512}}};
  return kRows;
}

const AlgorithmRow& rowOf(Algorithm algorithm) { return rows().at(static_cast<size_t>(algorithm)); }

}  // namespace

std::optional<Algorithm> parseAlgorithm(std::string_view text) {
  const auto name = dns::Name::parse(text);
  if (!name) return std::nullopt;
  const auto row = std::ranges::find(rows(), *name, &AlgorithmRow::name);
  if (row == rows().end()) return std::nullopt;
  return static_cast<Algorithm>(row - rows().begin());
}

const dns::Name& nameOf(Algorithm algorithm) { return rowOf(algorithm).name; }

size_t macSize(Algorithm algorithm) { return rowOf(algorithm).mac_size; }

void computeMac(const Key& key, std::span<const uint8_t> bytes, std::array<uint8_t, kMaxMacSize>& mac) {
  unsigned size = 0;
  if (HMAC(rowOf(key.algorithm).hash(), key.secret.data(), static_cast<int>(key.secret.size()), bytes.data(),
           bytes.size(), mac.data(), &size) == nullptr)
    std::abort();  // it fails without memory only
}

bool Keyring::add(Key key) {
  if (find(key.name) != nullptr) return false;
  keys_.push_back(std::move(key));
  return true;
}

const Key* Keyring::find(const dns::Name& name) const {
  const auto key = std::ranges::find(keys_, name, &Key::name);
  return key != keys_.end() ? &*key : nullptr;
}

}  // namespace idetcd::tsig
