// The directive `idetcd`: the names of a cluster, and this node's own among them.
#include <filesystem>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "config/directive_cursor.h"
#include "control/local_socket.h"
#include "directive/hosts/hosts.h"
#include "directive/idetcd/checks.h"
#include "directive/idetcd/cluster_copies.h"
#include "directive/idetcd/cluster_report.h"
#include "directive/idetcd/cluster_reverse.h"
#include "directive/idetcd/clusters.h"
#include "directive/idetcd/settings.h"
#include "directive/nsid/identity.h"
#include "directive/transfer/published_zones_source.h"
#include "etcd/client.h"
#include "net/local_addresses.h"
#include "node/state_directory.h"
#include "peers/peer_group.h"
#include "resolve/cluster_zone.h"
#include "resolve/directive.h"
#include "resolver/resolver_settings.h"

namespace idetcd::directive {

namespace {

class ReverseHandler final : public resolve::Handler {
 public:
  explicit ReverseHandler(std::shared_ptr<const ClusterReverse> reverse) : reverse_(std::move(reverse)) {}
  resolve::QueryOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) override {
    return reverse_->answer(query, request.response_limit, flags, request.now);
  }
  resolve::QueryOutcome answerNoData(const dns::Query& query, const resolve::Request& request,
                                     uint16_t flags) override {
    return reverse_->answerNoData(query, request.response_limit, flags);
  }

 private:
  const std::shared_ptr<const ClusterReverse> reverse_;
};

// Where the block answers over UDP and TCP.
Result<std::vector<SocketAddress>> listeningAddresses(const resolve::Block& block) {
  std::vector<SocketAddress> bound;
  for (const auto& [type, directive] : block.directives) {
    const auto addresses = directive->listenAddresses();
    if (!addresses) return tl::unexpected(addresses.error());
    bound.insert(bound.end(), addresses->begin(), addresses->end());
  }
  std::vector<SocketAddress> all;
  for (const config::ServerKey& key : block.keys) {
    if (key.scheme != config::Scheme::kDns) continue;
    for (SocketAddress address : bound.empty() ? net::anyAddresses(key.port) : bound) {
      address.port = key.port;
      if (std::ranges::find(all, address) == all.end()) all.push_back(address);
    }
  }
  return all;
}

// Whether all that the server needs there to make a file is in the bits of the owner, or of another one.
bool isWritable(mode_t mode, bool to_owner) {
  const auto may = [mode](mode_t bits) { return (mode & bits) == bits; };
  return may(S_IWUSR | S_IXUSR) || (!to_owner && (may(S_IWGRP | S_IXGRP) || may(S_IWOTH | S_IXOTH)));
}

// Why nobody can write there, or its owner, who asks; empty: one may, as far as that shows without being that one. What is
// not there is made in the nearest directory that is. The server is no more than a mode allows, as root too
// (sandbox/confinement.h).
std::string obstacleOf(const std::string& directory) {
  std::filesystem::path there = directory;
  struct stat status {};
  while (::stat(there.c_str(), &status) != 0) {
    if (errno != ENOENT || !there.has_relative_path()) return {};
    there = there.has_parent_path() ? there.parent_path() : ".";
  }
  struct statvfs disk {};
  if (::statvfs(there.c_str(), &disk) == 0 && (disk.f_flag & ST_RDONLY) != 0) return std::strerror(EROFS);
  const bool is_own = status.st_uid == ::geteuid();
  if (!S_ISDIR(status.st_mode) || isWritable(status.st_mode, is_own)) return {};
  const std::string whose =
      there == std::filesystem::path(directory) ? "its mode" : fmt::format("the mode of {}", there.string());
  return fmt::format("{} does not let {} write", whose, is_own ? "its owner" : "anybody");
}

void checkFiles(config::NamedFiles& files) {
  checkEtcdTls(files);
  files.checkDirectories("state");
  for (const auto& [words, number] : files.lines()) {
    if (words.size() != 2) continue;
    if (words.front() == "state") {
      const std::string why = obstacleOf(words.back());
      if (!why.empty())
        files.add(number, fmt::format("{}: {}; write: the path of a directory that can be written", words.back(), why));
    }
    if (words.front() != "secret") continue;
    const auto text = files.read(words.back(), number);
    if (!text) continue;
    if (const auto secret = founding::Secret::parse(*text); !secret) files.add(number, secret.error().message);
    if (const std::string warning = peers::warningOfSecret(words.back()); !warning.empty()) files.warn(number, warning);
  }
}

class IdetcdDirective final : public resolve::Configured<ClusterSettings>,
                              public resolver::SettingsSource,
                              public PublishedZonesSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  void checkTogether(std::span<Directive* const> all) override;
  std::vector<WrittenDirectory> writtenDirectories() const override;
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override;
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;
  std::function<std::string()> readiness() const override;
  void fill(resolver::ResolverSettings& to) const override { to.own_names = settings_.endpointNames(); }
  std::shared_ptr<const zones::PublishedZones> publishedZones() const override { return copies_; }

 private:
  std::shared_ptr<const Identity> makeIdentity(Cluster& cluster, const resolve::Block& block) const;

  std::shared_ptr<const resolve::ClusterZone> zone_;
  std::shared_ptr<const ClusterCopies> copies_;
  std::shared_ptr<const Identity> identity_;
  std::shared_ptr<const ClusterReverse> reverse_;
  std::shared_ptr<const ClusterReport> report_;
};

Result<void> IdetcdDirective::read(config::DirectiveCursor& cursor, const resolve::Block&) {
  auto settings = parseClusterSettings(cursor);
  if (!settings) return tl::unexpected(settings.error());
  settings_ = std::move(*settings);
  return {};
}

// Several clusters in one state directory have files named after their patterns. Blocks with
// one pattern share one cluster.
void IdetcdDirective::checkTogether(std::span<Directive* const> all) {
  settings_.only = std::all_of(all.begin(), all.end(), [this](const Directive* other) {
    const ClusterSettings& settings = static_cast<const IdetcdDirective*>(other)->settings();
    return settings.pattern.text() == settings_.pattern.text();
  });
}

std::vector<resolve::Directive::WrittenDirectory> IdetcdDirective::writtenDirectories() const {
  std::string directory = settings_.state_directory;
  if (directory.empty()) directory = node::stateDirectoryOfService();
  if (directory.empty() && settings_.peers) directory = control::socketDirectory();
  if (directory.empty()) return {};
  return {{.path = std::move(directory)}};  // others read the identity there
}

Result<void> IdetcdDirective::prepare(resolve::Process& process, const resolve::Block& block) {
  constexpr uint16_t kNoDnsPort = 53;  // where nobody asks this node over UDP and TCP
  const auto joined = process.state<Clusters>().join(settings_, config::dnsPortOf(block.keys).value_or(kNoDnsPort));
  if (!joined) return tl::unexpected(joined.error());
  Cluster& cluster = *joined->cluster;
  records::RecordStore& records = *joined->records;
  resolve::ClusterZone::Options options{.fallthrough = settings_.fallthrough};
  const bool forwards = !resolver::settingsOf(block).forwards.empty();
  if (forwards || block.settings<HostsOptions>() != nullptr) options.sources = settings_.endpointNames();
  zone_ = std::make_shared<const resolve::ClusterZone>(records, std::move(options));
  copies_ = std::make_shared<const ClusterCopies>(records);
  identity_ = makeIdentity(cluster, block);
  report_ = cluster.report;
  auto servers = listeningAddresses(block);
  if (!servers) return tl::unexpected(servers.error());
  process.state<ClusterReports>().add(report_, *servers);
  reverse_ = std::make_shared<const ClusterReverse>(
      records, [identity = identity_](const IpAddress& address) { return identity->ownAddress(address); });
  return {};
}

// The node's own name, unless the Corefile says something else.
std::shared_ptr<const Identity> IdetcdDirective::makeIdentity(Cluster& cluster, const resolve::Block& block) const {
  Identity::Options options{.ttl_seconds = settings_.ttl_seconds};
  if (const auto* nsid = block.settings<NsidSettings>()) options.nsid = nsid->data;
  const naming::Member& member = *cluster.member;
  options.own_name = [&member]() -> std::optional<std::string> {
    const auto ownership = member.ownership();
    return ownership ? std::optional(ownership->name) : std::nullopt;
  };
  // An observer has no address in the cluster.
  if (!cluster.settings.observe) options.own_addresses = [&member] { return member.addresses().list(); };
  auto identity = std::make_shared<const Identity>(std::move(options));
  std::erase_if(cluster.identities, [](const auto& seen) { return seen.expired(); });
  cluster.identities.push_back(identity);
  return identity;
}

Result<void> IdetcdDirective::addTo(resolve::Chain& chain, const resolve::LoopContext&) {
  addIdentity(chain, identity_);
  chain.addCluster(zone_);
  chain.add(std::make_unique<ReverseHandler>(reverse_));
  return {};
}

std::function<std::string()> IdetcdDirective::readiness() const {
  return [report = report_] { return report->missing(); };
}

}  // namespace

extern const resolve::DirectiveType kIdetcdDirective{.name = "idetcd",
                                                     .syntax = "idetcd { ... }",
                                                     .make = resolve::makeDirective<IdetcdDirective>,
                                                     .check_files = checkFiles,
                                                     .once = true,
                                                     .defaults = clusterDefaults,
                                                     .checks = clusterChecks};

}  // namespace idetcd::directive
