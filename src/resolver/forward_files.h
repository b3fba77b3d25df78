// What the options of a Forwarder do not say themselves: lists of servers and certificates in files, addresses of hosts.
// Read beside the loops and shared by them.
#pragma once

#include "base/executor.h"
#include "base/result.h"
#include "net/tls_stream.h"
#include "resolver/forwarder.h"
#include "resolver/upstream_file.h"

namespace idetcd::resolver {

struct ForwardFiles {
  // Blocks on the file system, and on resolvers where hosts are named (host_lookup.h); any thread. The error names the
  // file or host that cannot be used.
  static Result<std::shared_ptr<const ForwardFiles>> read(const Forwarder::Options& options, Executor& executor);

  std::shared_ptr<net::TlsContext> tls;              // null: no server needs it
  std::shared_ptr<net::TlsContext> https;            // the same
  std::vector<std::shared_ptr<UpstreamFile>> lists;  // one a target of `to`; null where that is no file
  std::vector<std::vector<UpstreamAddress>> hosts;   // one a target of `to`; empty where that is no host
};

}  // namespace idetcd::resolver
