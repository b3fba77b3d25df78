// The servers of one `forward`, in the order of its TOs: those named there, and those of the files named there, which
// are read again when they change. Servers that stay keep their health and their connections. Loop thread only.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "resolve/upstream_server.h"

namespace idetcd::resolve {

using UpstreamServers = std::vector<std::shared_ptr<UpstreamServer>>;

class UpstreamSet {
 public:
  explicit UpstreamSet(ForwardContext& context);

  // What the options' targets are now, with files read. An error if one cannot be read, or there are too many.
  static Result<std::vector<UpstreamAddress>> read(const Forwarder::Options& options);

  // Takes over what read() has returned, and begins to watch the files.
  void start(const std::vector<UpstreamAddress>& addresses);

  // Never null; may be empty. Immutable: who holds it is not disturbed by a change.
  const std::shared_ptr<const UpstreamServers>& servers() const { return servers_; }
  // Named as a target, but this process itself.
  const std::vector<UpstreamAddress>& ourselves() const { return ourselves_; }

 private:
  struct FileState {
    int64_t seconds = 0;
    int64_t nanoseconds = 0;
    uint64_t inode = 0;
    int64_t size = 0;
    bool operator==(const FileState&) const = default;
  };

  static std::optional<FileState> look(const std::string& file);
  void onTimer();
  void set(const std::vector<UpstreamAddress>& addresses);
  bool isOwn(const UpstreamAddress& server) const;

  ForwardContext& context_;
  std::shared_ptr<const UpstreamServers> servers_ = std::make_shared<UpstreamServers>();
  std::vector<UpstreamAddress> ourselves_;
  std::vector<std::optional<FileState>> files_;  // of each target; nothing for those that are no file
  net::Timer timer_;
};

}  // namespace idetcd::resolve
