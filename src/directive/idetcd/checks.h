// What `idetcd doctor` looks at for the clusters of a Corefile.
#pragma once

#include "directive/idetcd/settings.h"
#include "etcd/cluster.h"
#include "resolve/directive.h"

namespace idetcd::directive {

std::vector<resolve::Check> clusterChecks(std::span<const resolve::Block> blocks);

// Asks each endpoint of `endpoint` for itself: its version and cluster, and for one of the names. Takes 3 s at most.
resolve::Findings checkEtcd(const ClusterSettings& settings);

// --- pure parts of them ---

struct EndpointAnswer {
  std::string endpoint;
  store::StoreResult<etcd::MemberStatus> status =
      tl::unexpected(store::StoreError(ErrorCode::kDeadlineExceeded, "there is no answer in time"));
  std::optional<store::StoreError> read;  // why a name could not be read; none: it could, or was not tried
  std::string unused;                     // why the client does not use it; empty: it does
};
resolve::Findings judgeEndpoints(std::span<const EndpointAnswer> answers);

// The end of our certificate, seen at `now`.
resolve::Finding judgeCertificate(const std::string& file, std::chrono::system_clock::time_point end,
                                  std::chrono::system_clock::time_point now);

// The address that would be published, and those that could be as well.
resolve::Findings judgeAddress(const node::AddressOptions& options, const node::NetworkView& view);

// "3.4.23", out of what `etcd --version` prints; empty: it is not in there.
std::string etcdVersionIn(std::string_view text);

}  // namespace idetcd::directive
