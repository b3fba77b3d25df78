#include "resolver/upstream_set.h"

#include "resolver/forward_files.h"

namespace idetcd::resolver {

UpstreamSet::UpstreamSet(ForwardContext& context) : context_(context), retry_(context.loop, [this] { onChange(); }) {}

Result<void> UpstreamSet::start() {
  for (const auto& list : context_.options.files->lists) {
    if (list) follow(list);
  }
  return use();
}

// The loop outlives the subscription, and so what it calls back.
void UpstreamSet::follow(const std::shared_ptr<UpstreamFile>& file) {
  const auto on_change = [this, &loop = context_.loop, seen = std::weak_ptr<bool>(alive_)] {
    loop.post([this, seen] {
      if (!seen.expired()) onChange();
    });
  };
  subscriptions_.push_back(std::make_unique<UpstreamFile::Subscription>(*file, on_change));
}

Result<std::vector<UpstreamAddress>> UpstreamSet::collect() const {
  std::vector<UpstreamAddress> addresses;
  const auto add = [&addresses](const UpstreamAddress& server) {
    if (std::find(addresses.begin(), addresses.end(), server) == addresses.end()) addresses.push_back(server);
  };
  const Forwarder::Options& options = context_.options;
  for (size_t i = 0; i < options.to.size(); ++i) {
    if (options.to[i].server) {
      add(*options.to[i].server);
    } else if (options.to[i].host) {
      for (const UpstreamAddress& server : options.files->hosts[i]) add(server);
    } else {
      for (const UpstreamAddress& server : *options.files->lists[i]->servers()) add(server);
    }
  }
  if (addresses.size() > Forwarder::kMaxTargets) {
    return fail(fmt::format("more than {} TOs configured: {}", Forwarder::kMaxTargets, addresses.size()));
  }
  return addresses;
}

void UpstreamSet::onChange() {
  const auto done = use();
  if (done) return;
  if (done.error().code == ErrorCode::kNoResources) return retry_.start(context_.options.file_interval);
  context_.log.warning("the servers stay as they are: {}", done.error().message);
}

// Goes over to what is named and listed now. An error changes nothing.
Result<void> UpstreamSet::use() {
  const auto addresses = collect();
  if (!addresses) return tl::unexpected(addresses.error());
  std::vector<bool> own;
  for (const UpstreamAddress& address : *addresses) {
    const auto is_own = isOwn(address);
    if (!is_own) return tl::unexpected(is_own.error());
    own.push_back(*is_own);
  }
  set(*addresses, own);
  return {};
}

void UpstreamSet::set(const std::vector<UpstreamAddress>& addresses, const std::vector<bool>& own) {
  auto servers = std::make_shared<UpstreamServers>();
  ourselves_.clear();
  for (size_t i = 0; i < addresses.size(); ++i) {
    const UpstreamAddress& address = addresses[i];
    if (own[i]) {
      context_.log.warning("{} is this server itself and is not forwarded to", address.toString());
      ourselves_.push_back(address);
      continue;
    }
    const auto same = [&address](const auto& server) { return server->address() == address; };
    const auto known = std::find_if(servers_->begin(), servers_->end(), same);
    servers->push_back(known != servers_->end() ? *known : std::make_shared<UpstreamServer>(context_, address));
  }
  if (servers->empty()) context_.log.warning("there is no server to forward to");
  private_ = !servers->empty() && std::all_of(servers->begin(), servers->end(), [](const auto& server) {
    return server->address().address.ip.isPrivate();
  });
  ServerReports::All reports;
  for (const auto& server : *servers) reports.push_back(server->report());
  reports_->set(std::move(reports));
  servers_ = std::move(servers);
}

Result<bool> UpstreamSet::isOwn(const UpstreamAddress& server) const {
  if (server.protocol != UpstreamProtocol::kDns) return false;
  const SocketAddress& address = server.address;
  for (const SocketAddress& own : context_.options.own) {
    if (own.port != address.port) continue;
    if (own.ip == address.ip) return true;
    if (!own.ip.isUnspecified()) continue;
    if (const auto local = net::isLocalAddress(address.ip); !local || *local) return local;
  }
  return false;
}

}  // namespace idetcd::resolver
