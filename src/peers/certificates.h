// The certificates by which the machines of a cluster, their etcd and its clients know each other: mutual TLS (1.2 or
// newer), from the shared secret alone.
//
// The key of the CA is a point of P-256 that HKDF makes of the secret, so each machine makes the same CA by itself, and
// each issues its own certificate, with a fresh key, for server and client. Both hold from 1970 to 9999: a clock that is
// wrong keeps no machine away. An end would protect nothing: a certificate lies on the machine that has the secret, too,
// and who has the secret issues others. Another secret is another cluster.
#pragma once

#include "base/ip_address.h"
#include "etcd/client.h"
#include "founding/envelope.h"

namespace idetcd::peers {

// The files that issue() writes in `directory`: PEM, for the owner alone.
etcd::TlsFiles tlsFilesIn(const std::string& directory);

// Makes the directory (0700) and the files anew: the CA, and a certificate for `addresses` and for the loopback ones
// (etcd compares the address that a peer comes from with its certificate, and what comes over loopback has another one).
// Blocks on the file system. REQUIRES: there is an address.
Result<etcd::TlsFiles> issue(const founding::Secret& secret, const std::vector<IpAddress>& addresses,
                             const std::string& directory);

}  // namespace idetcd::peers
