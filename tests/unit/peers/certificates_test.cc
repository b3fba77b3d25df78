#include "peers/certificates.h"

#include <filesystem>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include "../etcd/client_fixture.h"
#include "support/temporary_directory.h"

namespace idetcd::peers {
namespace {

using namespace std::chrono_literals;

const std::vector<IpAddress> kAddresses{IpAddress::v4({127, 0, 0, 2})};

founding::Secret secretOf(std::string_view text) { return founding::Secret::parse(text).value(); }
const founding::Secret kSecret = secretOf("a secret of sixteen bytes or more");

// The public key of the first certificate, in hexadecimal.
std::string publicKeyOf(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "r"), &fclose);
  const std::unique_ptr<X509, void (*)(X509*)> certificate(PEM_read_X509(file.get(), nullptr, nullptr, nullptr),
                                                           &X509_free);
  const ASN1_BIT_STRING* const key = X509_get0_pubkey_bitstr(certificate.get());
  std::string text;
  for (int i = 0; i < key->length; ++i) text += fmt::format("{:02x}", key->data[i]);
  return text;
}

TEST(Certificates, EveryMachineMakesTheSameCaOfTheSecret) {
  const TemporaryDirectory one;
  const TemporaryDirectory other;
  const auto first = issue(kSecret, kAddresses, one / "tls");
  const auto second = issue(kSecret, {IpAddress::parse("2001:db8::7").value()}, other / "tls");
  ASSERT_TRUE(first && second);
  EXPECT_EQ(*first, tlsFilesIn(one / "tls"));
  EXPECT_EQ(publicKeyOf(first->ca_file), publicKeyOf(second->ca_file));
  EXPECT_NE(publicKeyOf(first->certificate_file), publicKeyOf(second->certificate_file));
  // That of today is that of tomorrow, in whatever version: clusters last.
  EXPECT_EQ(
      publicKeyOf(first->ca_file),
      "04fb7e9d30f692b44018a8e6493223be5f9902c0c17dd7608765fad3297a62a81d0bef476ac10726911206b18eb09007905f57eca032b3"
      "36ac0afb17c1d9d8eba4");
  ASSERT_TRUE(issue(secretOf("a secret of sixteen bytes or more."), kAddresses, other / "tls"));
  EXPECT_NE(publicKeyOf(first->ca_file), publicKeyOf(second->ca_file));
}

TEST(Certificates, FilesAreForTheOwnerAlone) {
  const TemporaryDirectory directory;
  const auto files = issue(kSecret, kAddresses, directory / "state/tls");
  ASSERT_TRUE(files) << files.error().message;
  const auto modeOf = [](const std::string& path) {
    return static_cast<int>(std::filesystem::status(path).permissions());
  };
  EXPECT_EQ(modeOf(directory / "state/tls"), 0700);
  for (const auto& path : {files->ca_file, files->certificate_file, files->key_file}) EXPECT_EQ(modeOf(path), 0600);
}

TEST(Certificates, WhatCannotBeWrittenIsAnErrorWithItsPath) {
  const TemporaryDirectory directory;
  overwrite(directory / "file", "");
  const auto files = issue(kSecret, kAddresses, directory / "file/tls");
  ASSERT_FALSE(files);
  EXPECT_NE(files.error().message.find(directory / "file/tls"), std::string::npos) << files.error().message;
}

TEST(Certificates, EtcdTakesMachinesOfTheSecretAndNoOthers) {
  const TemporaryDirectory directory;
  const etcd::TlsFiles server = issue(kSecret, kAddresses, directory / "server").value();
  const etcd::TlsFiles machine = issue(kSecret, {IpAddress::v4({192, 0, 2, 1})}, directory / "machine").value();
  const etcd::TlsFiles stranger =
      issue(secretOf("another secret of many bytes"), kAddresses, directory / "stranger").value();
  const test_support::EtcdServer server_process(
      {.tls = test_support::EtcdServer::Tls{.certificate_file = server.certificate_file,
                                            .key_file = server.key_file,
                                            .ca_file = server.ca_file,
                                            .ctl_flags = {}},
       .client_host = "127.0.0.2",
       .extra_arguments = {"--client-cert-auth"}});
  const auto putAs = [&server_process](const etcd::TlsFiles& files) {
    etcd::Client::Options options = etcd::optionsFor({server_process.endpoint()});
    options.tls = files;
    etcd::BlockingClient client(std::move(options));
    return client.put("k", "v");
  };
  EXPECT_TRUE(etcd::succeeded(putAs(machine)));
  EXPECT_TRUE(etcd::failedWith(putAs(stranger), ErrorCode::kUnavailable));
  const etcd::TlsFiles without{.ca_file = server.ca_file, .certificate_file = {}, .key_file = {}};
  EXPECT_TRUE(etcd::failedWith(putAs(without), ErrorCode::kUnavailable));
}

}  // namespace
}  // namespace idetcd::peers
