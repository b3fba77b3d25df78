#include "peers/certificates.h"

#include <openssl/core_names.h>
#include <openssl/rand.h>

#include "base/file.h"
#include "base/openssl.h"

namespace idetcd::peers {
namespace {

using openssl::check;
using openssl::extend;
using openssl::Owned;
using openssl::owned;

constexpr const char* kCurve = "P-256";
constexpr std::string_view kCaLabel = "idetcd ca";

// A number from 1 to the order of the curve less 1. Almost every key is one; if not, the next is tried.
Owned<BIGNUM> privateNumber(const founding::Secret& secret, const EC_GROUP* group) {
  for (std::string label(kCaLabel);; label += '+') {
    founding::Key bytes = secret.derive(label);
    Owned<BIGNUM> number = owned(BN_secure_new());
    check(BN_bin2bn(bytes.data(), static_cast<int>(bytes.size()), number.get()) != nullptr);
    OPENSSL_cleanse(bytes.data(), bytes.size());
    if (!BN_is_zero(number.get()) && BN_cmp(number.get(), EC_GROUP_get0_order(group)) < 0) return number;
  }
}

Owned<EVP_PKEY> caKey(const founding::Secret& secret) {
  const auto group = owned(EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1));
  const auto number = privateNumber(secret, group.get());
  const auto point = owned(EC_POINT_new(group.get()));
  check(EC_POINT_mul(group.get(), point.get(), number.get(), nullptr, nullptr, nullptr) == 1);
  std::array<uint8_t, 65> bytes;
  check(EC_POINT_point2oct(group.get(), point.get(), POINT_CONVERSION_UNCOMPRESSED, bytes.data(), bytes.size(),
                           nullptr) == bytes.size());
  const auto builder = owned(OSSL_PARAM_BLD_new());
  check(OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, kCurve, 0) == 1 &&
        OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_PRIV_KEY, number.get()) == 1 &&
        OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, bytes.data(), bytes.size()) == 1);
  const auto parameters = owned(OSSL_PARAM_BLD_to_param(builder.get()));
  const auto context = owned(EVP_PKEY_CTX_new_from_name(nullptr, "EC", nullptr));
  EVP_PKEY* key = nullptr;
  check(EVP_PKEY_fromdata_init(context.get()) == 1 &&
        EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_KEYPAIR, parameters.get()) == 1);
  return owned(key);
}

Owned<X509> caOf(EVP_PKEY* key) {
  auto ca = openssl::certificateOf(key, "idetcd cluster CA", 1);
  extend(ca.get(), ca.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  extend(ca.get(), ca.get(), NID_key_usage, "critical,keyCertSign");
  extend(ca.get(), ca.get(), NID_subject_key_identifier, "hash");
  openssl::sign(ca.get(), ca.get(), key);
  return ca;
}

Owned<X509> leafOf(EVP_PKEY* key, const std::vector<IpAddress>& addresses, X509* ca, EVP_PKEY* ca_key) {
  int64_t serial = 0;
  check(RAND_bytes(reinterpret_cast<uint8_t*>(&serial), sizeof serial - 1) == 1);
  auto leaf = openssl::certificateOf(key, "idetcd", serial + 2);
  std::string names = "IP:127.0.0.1,IP:::1";
  for (const IpAddress& address : addresses) names += ",IP:" + address.toString();
  extend(leaf.get(), ca, NID_basic_constraints, "critical,CA:FALSE");
  extend(leaf.get(), ca, NID_key_usage, "critical,digitalSignature");
  extend(leaf.get(), ca, NID_ext_key_usage, "serverAuth,clientAuth");
  extend(leaf.get(), ca, NID_authority_key_identifier, "keyid");
  extend(leaf.get(), ca, NID_subject_alt_name, names);
  openssl::sign(leaf.get(), ca, ca_key);
  return leaf;
}

Result<void> write(const std::string& path, std::string_view contents) {
  auto file = FileReplacement::begin(path, 0600);
  if (!file) return fail(fmt::format("{}: {}", path, file.error().message));
  auto written = file->append(contents);
  if (written) written = file->commit();
  if (!written) return fail(fmt::format("{}: {}", path, written.error().message));
  return {};
}

}  // namespace

etcd::TlsFiles tlsFilesIn(const std::string& directory) {
  return {.ca_file = directory + "/ca.pem",
          .certificate_file = directory + "/certificate.pem",
          .key_file = directory + "/key.pem"};
}

Result<etcd::TlsFiles> issue(const founding::Secret& secret, const std::vector<IpAddress>& addresses,
                             const std::string& directory) {
  assert(!addresses.empty());
  if (auto made = makeDirectory(directory, 0700); !made)
    return fail(fmt::format("{}: {}", directory, made.error().message));
  const auto ca_key = caKey(secret);
  const auto ca = caOf(ca_key.get());
  const auto key = owned(EVP_EC_gen(kCurve));
  const auto leaf = leafOf(key.get(), addresses, ca.get(), ca_key.get());
  etcd::TlsFiles files = tlsFilesIn(directory);
  for (const auto& [path, contents] : {std::pair(files.ca_file, openssl::pem(ca.get())),
                                       {files.key_file, openssl::pem(key.get())},
                                       {files.certificate_file, openssl::pem(leaf.get())}}) {
    if (auto written = write(path, contents); !written) return tl::unexpected(written.error());
  }
  return files;
}

}  // namespace idetcd::peers
