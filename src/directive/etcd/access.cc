#include "directive/etcd/access.h"

namespace idetcd::directive {

etcd::Client::Options EtcdAccess::etcdOptions() const {
  etcd::Client::Options options;
  options.endpoints = endpoints;
  options.tls = tls;
  options.credentials = credentials;
  return options;
}

Result<void> readEndpoints(config::DirectiveCursor& cursor, EtcdAccess& access) {
  auto endpoints = cursor.args(1);
  if (!endpoints) return tl::unexpected(endpoints.error());
  for (const std::string& endpoint : *endpoints) {
    if (const auto valid = etcd::Client::validateEndpoint(endpoint); !valid) return cursor.error(valid.error().message);
  }
  access.endpoints = std::move(*endpoints);
  return {};
}

Result<void> readTls(config::DirectiveCursor& cursor, EtcdAccess& access) {
  auto files = cursor.args(0, 3);
  if (!files) return tl::unexpected(files.error());
  etcd::TlsFiles& tls = access.tls.emplace();
  if (files->size() % 2 == 1) {
    tls.ca_file = std::move(files->back());
    files->pop_back();
  }
  if (files->empty()) return {};
  tls.certificate_file = std::move(files->front());
  tls.key_file = std::move(files->back());
  return {};
}

Result<void> readCredentials(config::DirectiveCursor& cursor, EtcdAccess& access) {
  const auto arguments = cursor.secretArgs(2, 2);
  if (!arguments) return tl::unexpected(arguments.error());
  access.credentials = {arguments->front(), arguments->back()};
  return {};
}

void checkEtcdTls(config::NamedFiles& files) {
  files.checkTls([](std::span<const std::string> paths) -> Result<void> {
    etcd::Client::Options options;
    options.endpoints = {"https://localhost:2379"};  // is not asked
    etcd::TlsFiles& tls = options.tls.emplace();
    if (paths.size() % 2 == 1) tls.ca_file = paths.back();
    if (paths.size() >= 2) {
      tls.certificate_file = paths[0];
      tls.key_file = paths[1];
    }
    return etcd::Client::checkTlsFiles(options);
  });
}

}  // namespace idetcd::directive
