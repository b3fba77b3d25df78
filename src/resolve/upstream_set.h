// The servers of one `forward`, in the order of its TOs: those named there, and those of the files named there, which
// are read again when they change. An empty file is about to be written and changes nothing. Servers that stay keep
// their health and their connections. Loop thread only.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "resolve/upstream_server.h"
#include "resolve/watched_file.h"

namespace idetcd::resolve {

using UpstreamServers = std::vector<std::shared_ptr<UpstreamServer>>;

class UpstreamSet {
 public:
  explicit UpstreamSet(ForwardContext& context);

  // Reads the files, and begins to watch them. An error if one cannot be read, or there are too many servers.
  Result<void> start();

  // Never null; may be empty. Immutable: who holds it is not disturbed by a change.
  const std::shared_ptr<const UpstreamServers>& servers() const { return servers_; }
  // Whether there are some, each at a private address: what is named by none of the world's servers, they may know.
  bool isPrivate() const { return private_; }
  // Named as a target, but this process itself.
  const std::vector<UpstreamAddress>& ourselves() const { return ourselves_; }

 private:
  // One target: a server, or a file and what it lists.
  struct Source {
    std::optional<WatchedFile> file;
    std::vector<UpstreamAddress> servers;
  };

  static bool readAgain(Source& source);
  Result<std::vector<UpstreamAddress>> collect() const;
  void onTimer();
  void set(const std::vector<UpstreamAddress>& addresses);
  bool isOwn(const UpstreamAddress& server) const;

  ForwardContext& context_;
  std::shared_ptr<const UpstreamServers> servers_ = std::make_shared<UpstreamServers>();
  std::vector<UpstreamAddress> ourselves_;
  std::vector<Source> sources_;
  bool private_ = false;
  net::Timer timer_;
};

}  // namespace idetcd::resolve
