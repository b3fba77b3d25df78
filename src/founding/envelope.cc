#include "founding/envelope.h"

#include <cstdlib>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>

namespace idetcd::founding {

namespace {

constexpr std::string_view kMagic = "idtF";
constexpr char kVersion = 1;
constexpr size_t kHeadBytes = 4 + 1 + sizeof(Nonce);
constexpr size_t kMacBytes = 32;
constexpr size_t kFrameHeadBytes = 4;
constexpr size_t kMinSecretBytes = 16;

std::array<uint8_t, kMacBytes> macOf(const Key& key, std::string_view bytes) {
  std::array<uint8_t, kMacBytes> mac;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const uint8_t*>(bytes.data()),
           bytes.size(), mac.data(), nullptr) == nullptr)
    std::abort();  // memory
  return mac;
}

}  // namespace

Result<Secret> Secret::parse(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  const std::string_view bytes = first == std::string_view::npos
                                     ? std::string_view()
                                     : text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
  if (bytes.size() < kMinSecretBytes)
    return fail(fmt::format("the secret has {} bytes; at least {} are needed", bytes.size(), kMinSecretBytes));
  return Secret(bytes);
}

Secret::~Secret() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

Key Secret::derive(std::string_view label) const {
  // OpenSSL's parameters are not const.
  std::string digest = "SHA256";
  std::string secret = bytes_;
  std::string salt = "idetcd";
  std::string info(label);
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, secret.data(), secret.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt.data(), salt.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info.data(), info.size()),
      OSSL_PARAM_construct_end(),
  };
  Key key;
  EVP_KDF* const kdf = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  EVP_KDF_CTX* const context = kdf == nullptr ? nullptr : EVP_KDF_CTX_new(kdf);
  if (context == nullptr || EVP_KDF_derive(context, key.data(), key.size(), parameters) != 1) std::abort();
  EVP_KDF_CTX_free(context);
  EVP_KDF_free(kdf);
  OPENSSL_cleanse(secret.data(), secret.size());
  return key;
}

std::string seal(const Key& key, Nonce nonce, std::string_view body) {
  std::string envelope;
  envelope.reserve(kHeadBytes + body.size() + kMacBytes);
  envelope += kMagic;
  envelope += kVersion;
  envelope.append(reinterpret_cast<const char*>(&nonce), sizeof nonce);
  envelope += body;
  const auto mac = macOf(key, envelope);
  envelope.append(reinterpret_cast<const char*>(mac.data()), mac.size());
  return envelope;
}

tl::expected<Opened, Drop> unseal(const Key& key, std::string_view envelope, size_t max_bytes) {
  if (envelope.size() < kHeadBytes + kMacBytes || envelope.size() > max_bytes) return tl::unexpected(Drop::kSize);
  if (envelope.substr(0, kMagic.size()) != kMagic) return tl::unexpected(Drop::kMagic);
  if (envelope[kMagic.size()] != kVersion) return tl::unexpected(Drop::kVersion);
  const std::string_view content = envelope.substr(0, envelope.size() - kMacBytes);
  const auto mac = macOf(key, content);
  if (CRYPTO_memcmp(mac.data(), envelope.data() + content.size(), mac.size()) != 0) return tl::unexpected(Drop::kMac);
  Opened opened{0, content.substr(kHeadBytes)};
  std::memcpy(&opened.nonce, content.data() + kHeadBytes - sizeof(Nonce), sizeof(Nonce));
  return opened;
}

std::string frame(std::string_view envelope) {
  assert(envelope.size() <= kMaxFrame);
  std::string bytes;
  bytes.reserve(kFrameHeadBytes + envelope.size());
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(envelope.size() >> shift & 0xff);
  return bytes += envelope;
}

tl::expected<std::optional<std::string_view>, Drop> firstFrame(std::string_view stream) {
  if (stream.size() < kFrameHeadBytes) return std::nullopt;
  size_t size = 0;
  for (size_t i = 0; i < kFrameHeadBytes; ++i) size = size << 8 | static_cast<uint8_t>(stream[i]);
  if (size < kHeadBytes + kMacBytes || size > kMaxFrame) return tl::unexpected(Drop::kSize);
  if (stream.size() - kFrameHeadBytes < size) return std::nullopt;
  return stream.substr(kFrameHeadBytes, size);
}

}  // namespace idetcd::founding
