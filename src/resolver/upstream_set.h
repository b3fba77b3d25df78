// The servers of one `forward`, in the order of its TOs: those named there, and those of the files named there, as they
// change. Servers that stay keep their health and their connections. Loop thread only.
#pragma once

#include "resolver/upstream_file.h"
#include "resolver/upstream_server.h"

namespace idetcd::resolver {

using UpstreamServers = std::vector<std::shared_ptr<UpstreamServer>>;

class UpstreamSet {
 public:
  explicit UpstreamSet(ForwardContext& context);

  // Begins to follow the files. An error if there are too many servers.
  Result<void> start();

  // Never null; may be empty. Immutable: a holder is not disturbed by a change.
  const std::shared_ptr<const UpstreamServers>& servers() const { return servers_; }
  // Whether there are some, each at a private address: what is named by none of the world's servers, they may know.
  bool isPrivate() const { return private_; }
  // Of servers(), at any time.
  std::shared_ptr<const ServerReports> reports() const { return reports_; }
  // Named as a target, but this process itself.
  const std::vector<UpstreamAddress>& ourselves() const { return ourselves_; }

 private:
  Result<std::vector<UpstreamAddress>> collect() const;
  void follow(const std::shared_ptr<UpstreamFile>& file);
  void onChange();
  Result<void> use();
  void set(const std::vector<UpstreamAddress>& addresses, const std::vector<bool>& own);
  Result<bool> isOwn(const UpstreamAddress& server) const;

  ForwardContext& context_;
  std::shared_ptr<const UpstreamServers> servers_ = std::make_shared<UpstreamServers>();
  const std::shared_ptr<ServerReports> reports_ = std::make_shared<ServerReports>();
  std::vector<UpstreamAddress> ourselves_;
  bool private_ = false;
  net::Timer retry_;                                            // of what could not be used without free descriptors
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for what is posted
  std::vector<std::unique_ptr<UpstreamFile::Subscription>> subscriptions_;
};

}  // namespace idetcd::resolver
