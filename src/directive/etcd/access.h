// How an etcd is reached, as the options `endpoint`, `tls` and `credentials` of a directive say it. Any thread.
#pragma once

#include "config/directive_cursor.h"
#include "etcd/client.h"

namespace idetcd::directive {

struct EtcdAccess {
  std::vector<std::string> endpoints{"http://localhost:2379"};
  std::optional<etcd::TlsFiles> tls;
  std::optional<etcd::Credentials> credentials;

  etcd::Client::Options etcdOptions() const;
  bool isSameAccess(const EtcdAccess& other) const {
    return endpoints == other.endpoints && tls == other.tls && credentials == other.credentials;
  }
};

// Rows of a table of options; the errors are complete.
Result<void> readEndpoints(config::DirectiveCursor& cursor, EtcdAccess& access);
// Nothing: the system's CAs; CA; CERTIFICATE KEY; CERTIFICATE KEY CA. As CoreDNS has it for etcd.
Result<void> readTls(config::DirectiveCursor& cursor, EtcdAccess& access);
Result<void> readCredentials(config::DirectiveCursor& cursor, EtcdAccess& access);

// The files of `tls`, for `-validate`.
void checkEtcdTls(config::NamedFiles& files);

}  // namespace idetcd::directive
