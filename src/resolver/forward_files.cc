#include "resolver/forward_files.h"

#include "base/watched_file.h"
#include "resolver/host_lookup.h"

namespace idetcd::resolver {

namespace {

bool isOver(const UpstreamTarget& target, UpstreamProtocol protocol) {
  return (target.server && target.server->protocol == protocol) || (target.host && target.host->protocol == protocol);
}

bool needs(const Forwarder::Options& options, UpstreamProtocol protocol) {
  return std::any_of(options.to.begin(), options.to.end(),
                     [protocol](const UpstreamTarget& target) { return isOver(target, protocol); });
}

// Files that are named are looked at, whether a server needs them or not.
bool needsTls(const Forwarder::Options& options) {
  return !options.tls.certificate_file.empty() || !options.tls.ca_file.empty() ||
         needs(options, UpstreamProtocol::kTls);
}

Result<std::shared_ptr<net::TlsContext>> makeContext(const Forwarder::Tls& tls, std::string application_protocol) {
  return net::TlsContext::make({.certificate_file = tls.certificate_file,
                                .key_file = tls.key_file,
                                .ca_file = tls.ca_file,
                                .application_protocol = std::move(application_protocol)});
}

constexpr const char* kSystemResolvers = "/etc/resolv.conf";

Result<std::vector<SocketAddress>> resolversOf(const Forwarder::Options& options) {
  if (!options.resolvers.empty()) return options.resolvers;
  const auto text = WatchedFile(kSystemResolvers).readIfChanged();
  if (!text) return fail(fmt::format("cannot read {}: {}", kSystemResolvers, text.error().message));
  std::vector<SocketAddress> resolvers;
  for (const UpstreamAddress& server : parseResolvConf(text->value_or(""))) resolvers.push_back(server.address);
  return resolvers;
}

// Over TLS, the name of the host is the one that its certificate must have, if no other is named.
Result<std::vector<UpstreamAddress>> serversOf(const UpstreamHost& host, const Forwarder::Options& options) {
  const auto resolvers = resolversOf(options);
  if (!resolvers) return tl::unexpected(resolvers.error());
  const auto addresses = lookUpHost(host.name, *resolvers);
  if (!addresses) return tl::unexpected(addresses.error());
  std::string name = host.name.toString();
  name.pop_back();
  const bool is_named_here = isEncrypted(host.protocol) && options.tls.server_name.empty();
  std::vector<UpstreamAddress> servers;
  for (const IpAddress& ip : *addresses) {
    servers.push_back({.address = {.ip = ip, .port = host.port},
                       .protocol = host.protocol,
                       .server_name = is_named_here ? name : std::string()});
  }
  return servers;
}

}  // namespace

Result<std::shared_ptr<const ForwardFiles>> ForwardFiles::read(const Forwarder::Options& options, Executor& executor) {
  auto files = std::make_shared<ForwardFiles>();
  if (needsTls(options)) {
    auto made = makeContext(options.tls, {});
    if (!made) return tl::unexpected(made.error());
    files->tls = std::move(*made);
  }
  if (needs(options, UpstreamProtocol::kHttps)) {
    auto made = makeContext(options.tls, "h2");
    if (!made) return tl::unexpected(made.error());
    files->https = std::move(*made);
  }
  for (const UpstreamTarget& target : options.to) {
    auto& list = files->lists.emplace_back();
    auto& addresses = files->hosts.emplace_back();
    if (target.server) continue;
    if (target.host) {
      auto found = serversOf(*target.host, options);
      if (!found) return tl::unexpected(found.error());
      addresses = std::move(*found);
      continue;
    }
    auto opened = UpstreamFile::open(target.file, options.file_interval, executor);
    if (!opened) return tl::unexpected(opened.error());
    list = std::move(*opened);
  }
  return files;
}

}  // namespace idetcd::resolver
