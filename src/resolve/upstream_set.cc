#include "resolve/upstream_set.h"

#include <algorithm>
#include <sys/stat.h>

#include <fmt/format.h>

namespace idetcd::resolve {

UpstreamSet::UpstreamSet(ForwardContext& context) : context_(context), timer_(context.loop, [this] { onTimer(); }) {}

Result<std::vector<UpstreamAddress>> UpstreamSet::read(const Forwarder::Options& options) {
  std::vector<UpstreamAddress> addresses;
  const auto add = [&addresses](const UpstreamAddress& address) {
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end()) addresses.push_back(address);
  };
  for (const UpstreamTarget& target : options.to) {
    if (target.server) {
      add(*target.server);
      continue;
    }
    const auto listed = readResolvConf(target.file);
    if (!listed) return tl::unexpected(listed.error());
    std::for_each(listed->begin(), listed->end(), add);
  }
  if (addresses.size() > Forwarder::kMaxTargets) {
    return fail(fmt::format("more than {} TOs configured: {}", Forwarder::kMaxTargets, addresses.size()));
  }
  return addresses;
}

void UpstreamSet::start(const std::vector<UpstreamAddress>& addresses) {
  bool has_file = false;
  for (const UpstreamTarget& target : context_.options.to) {
    has_file = has_file || !target.server;
    files_.push_back(target.server ? std::nullopt : look(target.file));
  }
  set(addresses);
  if (has_file) timer_.start(context_.options.file_interval, context_.options.file_interval);
}

std::optional<UpstreamSet::FileState> UpstreamSet::look(const std::string& file) {
  struct stat status;
  if (::stat(file.c_str(), &status) != 0) return std::nullopt;
  return FileState{.seconds = status.st_mtim.tv_sec,
                   .nanoseconds = status.st_mtim.tv_nsec,
                   .inode = status.st_ino,
                   .size = status.st_size};
}

// A file that is away, or cannot be read, changes nothing: it is about to be replaced.
void UpstreamSet::onTimer() {
  bool changed = false;
  const auto& targets = context_.options.to;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i].server) continue;
    const auto state = look(targets[i].file);
    if (!state || state == files_[i]) continue;
    files_[i] = state;
    changed = true;
  }
  if (!changed) return;
  const auto addresses = read(context_.options);
  if (!addresses) return context_.log.warning("the servers stay as they are: {}", addresses.error().message);
  set(*addresses);
}

void UpstreamSet::set(const std::vector<UpstreamAddress>& addresses) {
  auto servers = std::make_shared<UpstreamServers>();
  ourselves_.clear();
  for (const UpstreamAddress& address : addresses) {
    if (isOwn(address)) {
      context_.log.warning("{} is this server itself and is not forwarded to", address.toString());
      ourselves_.push_back(address);
      continue;
    }
    const auto same = [&address](const auto& server) { return server->address() == address; };
    const auto known = std::find_if(servers_->begin(), servers_->end(), same);
    servers->push_back(known != servers_->end() ? *known : std::make_shared<UpstreamServer>(context_, address));
  }
  if (servers->empty()) context_.log.warning("there is no server to forward to");
  servers_ = std::move(servers);
}

bool UpstreamSet::isOwn(const UpstreamAddress& server) const {
  if (server.protocol != UpstreamProtocol::kDns) return false;
  const SocketAddress& address = server.address;
  return std::any_of(context_.options.own.begin(), context_.options.own.end(), [&address](const SocketAddress& own) {
    return own.port == address.port &&
           (own.ip == address.ip || (own.ip.isUnspecified() && net::isLocalAddress(address.ip)));
  });
}

}  // namespace idetcd::resolve
