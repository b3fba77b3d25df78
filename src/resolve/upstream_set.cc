#include "resolve/upstream_set.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace idetcd::resolve {

UpstreamSet::UpstreamSet(ForwardContext& context) : context_(context), timer_(context.loop, [this] { onTimer(); }) {}

Result<void> UpstreamSet::start() {
  bool has_file = false;
  for (const UpstreamTarget& target : context_.options.to) {
    Source& source = sources_.emplace_back();
    if (target.server) {
      source.servers = {*target.server};
      continue;
    }
    has_file = true;
    const auto text = source.file.emplace(target.file).readIfChanged();
    if (!text) return fail(fmt::format("cannot read {}: {}", target.file, text.error().message));
    source.servers = parseResolvConf(text->value_or(""));
  }
  const auto addresses = collect();
  if (!addresses) return tl::unexpected(addresses.error());
  set(*addresses);
  if (has_file) timer_.start(context_.options.file_interval, context_.options.file_interval);
  return {};
}

Result<std::vector<UpstreamAddress>> UpstreamSet::collect() const {
  std::vector<UpstreamAddress> addresses;
  for (const Source& source : sources_) {
    for (const UpstreamAddress& server : source.servers) {
      if (std::find(addresses.begin(), addresses.end(), server) == addresses.end()) addresses.push_back(server);
    }
  }
  if (addresses.size() > Forwarder::kMaxTargets) {
    return fail(fmt::format("more than {} TOs configured: {}", Forwarder::kMaxTargets, addresses.size()));
  }
  return addresses;
}

// Whether it lists other servers than before. A file that is away, or cannot be read, or is empty, is about to be
// replaced or written: what it said last stays.
bool UpstreamSet::readAgain(Source& source) {
  if (!source.file || !source.file->mayHaveChanged()) return false;
  const auto text = source.file->readIfChanged();
  if (!text || !*text || (*text)->empty()) return false;
  auto servers = parseResolvConf(**text);
  if (servers == source.servers) return false;
  source.servers = std::move(servers);
  return true;
}

void UpstreamSet::onTimer() {
  bool changed = false;
  for (Source& source : sources_) changed |= readAgain(source);
  if (!changed) return;
  const auto addresses = collect();
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
  private_ = !servers->empty() && std::all_of(servers->begin(), servers->end(), [](const auto& server) {
    return server->address().address.ip.isPrivate();
  });
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
