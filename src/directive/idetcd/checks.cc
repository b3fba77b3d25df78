#include "directive/idetcd/checks.h"

#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "net/port_holder.h"
#include "node/resolver_config.h"
#include "node/state_directory.h"
#include "peers/etcd_version.h"
#include "peers/voting.h"

namespace idetcd::directive {
namespace {

namespace fs = std::filesystem;
using resolve::Check;
using resolve::Finding;
using resolve::Findings;
using resolve::Severity;

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kLeastRoom = 4 * kMiB;   // the names and the identity of a large cluster
constexpr uint64_t kGoodRoom = 64 * kMiB;
constexpr uint64_t kPeersRoom = 1024 * kMiB;  // etcd's data up to its quota, and its log

// --- name ---

std::string textOf(const dns::Name& zone) {
  std::string text = zone.toString();
  if (text.size() > 1) text.pop_back();
  return text;
}

Findings checkName(const ClusterSettings& settings) {
  const std::string zone = textOf(settings.pattern.zone());
  Findings findings{{Severity::kOk, fmt::format("{} up to {}", settings.pattern.text(), settings.limit), {}}};
  if (zone == "local" || zone.ends_with(".local")) {
    findings.push_back({Severity::kWarning,
                        fmt::format("names below .local are asked of multicast DNS where nss-mdns or systemd-resolved "
                                    "is set up, not of {}",
                                    zone),
                        "choose a zone of your own, or below `internal.`"});
  }
  const auto config = node::readResolverConfig();
  if (config && std::ranges::find(config->search, zone) == config->search.end()) {
    findings.push_back({Severity::kNote, fmt::format("short names are not looked for in {}", zone),
                        fmt::format("`search {}` in /etc/resolv.conf, if programs are to use them", zone)});
  }
  return findings;
}

// --- state ---

// The user of a server that root starts has no more rights than modes give (sandbox/confinement.h).
bool mayWrite(const struct stat& status) {
  if (status.st_uid == ::geteuid()) return (status.st_mode & S_IWUSR) != 0;
  if (status.st_gid == ::getegid()) return (status.st_mode & S_IWGRP) != 0;
  return (status.st_mode & S_IWOTH) != 0;
}

Findings judgeRoom(const std::string& directory, uint64_t wanted) {
  struct statvfs disk {};
  if (::statvfs(directory.c_str(), &disk) != 0)
    return {{Severity::kError, fmt::format("{}: {}", directory, std::strerror(errno)), {}}};
  if ((disk.f_flag & ST_RDONLY) != 0)
    return {{Severity::kError, fmt::format("{} is on a read-only file system", directory), "mount it for writing, or change `state`"}};
  const uint64_t room = uint64_t{disk.f_bavail} * disk.f_frsize;
  const bool has_nodes = disk.f_files == 0 || disk.f_favail > 0;
  if (room >= wanted && has_nodes) return {};
  return {{room < kLeastRoom || !has_nodes ? Severity::kError : Severity::kWarning,
           fmt::format("{} has {} MiB left{}", directory, room / kMiB, has_nodes ? "" : ", and no inodes"),
           "make room"}};
}

Findings judgeFiles(const std::string& directory, const std::string& pattern) {
  const auto remembered = node::StateDirectory::look({.directory = directory, .pattern = pattern});
  if (!remembered) {
    const bool is_hidden = remembered.error().code == ErrorCode::kPermissionDenied;  // from this user
    return {{is_hidden ? Severity::kNote : Severity::kWarning, remembered.error().message,
             is_hidden ? "ask as root" : "nothing, or restore it: the node starts as a new one"}};
  }
  if (remembered->uuid.empty() && !remembered->name.empty()) {
    return {{Severity::kNote, fmt::format("{} is of another machine: this one starts as a new node", directory),
             "leave `state` out of images"}};
  }
  if (remembered->name.empty()) return {{Severity::kOk, fmt::format("{} remembers no name yet", directory), {}}};
  return {{Severity::kOk, fmt::format("{} remembers {}", directory, remembered->name), {}}};
}

Findings checkState(const ClusterSettings& settings) {
  std::string directory = settings.state_directory;
  if (directory.empty()) directory = node::stateDirectoryOfService();
  if (directory.empty()) {
    return {{Severity::kNote,
             "the Corefile says no `state`: by the unit it is /var/lib/idetcd, else a node that is killed has its name "
             "again only when its lease has ended",
             "`state /var/lib/idetcd`, where the server is not started by the unit"}};
  }
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0) {
    if (errno == ENOENT) return {{Severity::kOk, fmt::format("{} is not there yet: the server makes it", directory), {}}};
    return {{Severity::kError, fmt::format("{}: {}", directory, std::strerror(errno)), "correct its place or its rights"}};
  }
  if (!S_ISDIR(status.st_mode))
    return {{Severity::kError, fmt::format("{} is no directory", directory), "change `state`"}};
  Findings findings = judgeRoom(directory, settings.peers ? kPeersRoom : kGoodRoom);
  if (!mayWrite(status)) {
    findings.push_back({Severity::kNote,
                        fmt::format("{} belongs to user {}, who alone may write there", directory, status.st_uid),
                        "the server has to run as that user"});
  }
  const Findings of_files = judgeFiles(directory, settings.pattern.text());
  findings.insert(findings.end(), of_files.begin(), of_files.end());
  return findings;
}

// --- address ---

bool mayBePublished(const IpAddress& ip) { return !ip.isLoopback() && !ip.isLinkLocal() && !ip.isUnspecified(); }

std::string interfaceOf(const IpAddress& ip, const node::NetworkView& view) {
  for (const node::NetworkInterface& interface : view.interfaces) {
    if (std::ranges::find(interface.addresses, ip) != interface.addresses.end()) return interface.name;
  }
  return {};
}

// Interfaces of hardware that are up, with an address that could be published, other than `chosen`.
std::vector<std::string> otherInterfaces(const node::NetworkView& view, std::string_view chosen) {
  std::vector<std::string> others;
  for (const node::NetworkInterface& interface : view.interfaces) {
    if (!interface.up || interface.loopback || interface.is_virtual || interface.name == chosen) continue;
    const auto ip = std::ranges::find_if(interface.addresses, mayBePublished);
    if (ip != interface.addresses.end()) others.push_back(fmt::format("{} ({})", interface.name, ip->toString()));
  }
  return others;
}

// --- peers ---

// What a program prints, up to the end of its output; the program ends with this. Empty: it cannot be run.
std::string outputOf(const std::string& program, const char* argument) {
  constexpr size_t kMaxOutput = 64 << 10;
  constexpr std::chrono::milliseconds kPatience{2000};
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  ::fcntl(reader.get(), F_SETFL, O_NONBLOCK);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), STDERR_FILENO);
  std::string name = program;
  std::string word = argument;
  char* const arguments[]{name.data(), word.data(), nullptr};
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, program.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  writer = FileDescriptor();
  if (error != 0) return {};
  const auto text = readToEnd(reader, kMaxOutput, kPatience);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return text.value_or("");
}

Finding judgeProgram(const ClusterSettings& settings) {
  const std::string& program = settings.peers->program;
  if (!peers::isProgram(program)) {
    return {Severity::kError, fmt::format("there is no program '{}', which a voter runs", program),
            "install etcd-server, or say where it is with `etcd-program`"};
  }
  const std::string version = etcdVersionIn(outputOf(program, "--version"));
  if (version.empty())
    return {Severity::kError, fmt::format("'{} --version' says no version of etcd", program), "correct `etcd-program`"};
  if (const std::string defects = peers::defectsOf(version); !defects.empty()) {
    return {Severity::kWarning, fmt::format("'{}' is etcd {}, which has known defects: {}", program, version, defects),
            "install 3.4.42, 3.5.28, 3.6.9 or newer, one machine after the other"};
  }
  return {Severity::kOk, fmt::format("'{}' is etcd {}", program, version), {}};
}

// A server of this kind, and the etcd that it runs, may have them already.
bool isOurs(const net::PortHolder& holder) {
  return holder.program == "idetcd" || holder.program == "etcd" || holder.user == "idetcd";
}

Findings judgePorts(const ClusterSettings& settings) {
  const auto chosen = node::selectNodeAddresses(settings.address, node::readNetworkView());
  if (!chosen) return {};  // `address` has said why
  Findings findings;
  const auto look = [&findings](std::string_view protocol, const SocketAddress& address) {
    for (const net::PortHolder& holder : net::portHolders(protocol, address)) {
      if (isOurs(holder)) continue;
      findings.push_back({Severity::kError,
                          fmt::format("{}, which keeps the server from {} ({})", holder.toString(), address.toString(), protocol),
                          "stop it, or choose another `peers-port` on all machines"});
    }
  };
  const uint16_t port = settings.peers->port;
  for (const IpAddress& ip : chosen->addresses.list()) {
    look("udp", {.ip = ip, .port = port});
    for (const int next : {0, 1, 2}) look("tcp", {.ip = ip, .port = static_cast<uint16_t>(port + next)});
  }
  if (findings.empty()) {
    findings.push_back({Severity::kOk,
                        fmt::format("ports {} to {} are free, or the server's: other machines have to reach them", port, port + 2),
                        {}});
  }
  return findings;
}

Findings checkPeers(const ClusterSettings& settings) {
  Findings findings = judgePorts(settings);
  if (!settings.observe) findings.push_back(judgeProgram(settings));
  return findings;
}

}  // namespace

Findings judgeAddress(const node::AddressOptions& options, const node::NetworkView& view) {
  constexpr const char* kFix = "`address IP...` or `interface NAME` says which it is";
  const auto chosen = node::selectNodeAddresses(options, view);
  if (!chosen) return {{Severity::kError, chosen.error().message, kFix}};
  Findings findings;
  std::string where;
  for (const IpAddress& ip : chosen->addresses.list()) {
    const std::string interface = interfaceOf(ip, view);
    if (where.empty()) where = interface;
    findings.push_back({Severity::kOk,
                        fmt::format("{} is published{}", ip.toString(), interface.empty() ? "" : ", of " + interface), {}});
    if (interface.empty()) {
      findings.push_back({Severity::kNote, fmt::format("no interface of this machine has {}", ip.toString()),
                          "correct `address`, unless it is translated to this machine"});
    } else if (ip.isLoopback() && chosen->warning.empty()) {
      findings.push_back({Severity::kWarning, fmt::format("other machines do not reach this one at {}", ip.toString()), kFix});
    }
  }
  if (!chosen->warning.empty()) findings.push_back({Severity::kWarning, chosen->warning, kFix});
  for (const records::Network& network : chosen->addresses.networks) {
    for (const IpAddress& ip : network.addresses.list()) {
      const std::string interface = interfaceOf(ip, view);
      const std::string of = interface.empty() ? "" : ", of " + interface;
      findings.push_back({Severity::kOk, fmt::format("{} is published as {}{}", ip.toString(), network.name, of), {}});
    }
  }
  if (!chosen->missing_networks.empty())
    findings.push_back({Severity::kWarning, chosen->missing_networks, "bring the interface up, or correct its name"});
  if (!options.addresses.empty() || !options.interface_name.empty()) return findings;
  if (const auto others = otherInterfaces(view, where); !others.empty()) {
    findings.push_back({Severity::kNote, fmt::format("other interfaces have addresses too: {}", fmt::join(others, ", ")),
                        kFix});
  }
  return findings;
}

std::string etcdVersionIn(std::string_view text) {
  constexpr std::string_view kBefore = "etcd Version: ";
  const size_t begin = text.find(kBefore);
  if (begin == std::string_view::npos) return {};
  text.remove_prefix(begin + kBefore.size());
  return std::string(text.substr(0, text.find_first_not_of("0123456789.")));
}

// Blocks with one pattern share one cluster.
std::vector<Check> clusterChecks(std::span<const resolve::Block> blocks) {
  std::vector<ClusterSettings> clusters;
  for (const resolve::Block& block : blocks) {
    const auto* settings = block.settings<ClusterSettings>();
    if (settings == nullptr) continue;
    const auto is_known = [settings](const ClusterSettings& one) {
      return one.pattern.text() == settings->pattern.text();
    };
    if (std::ranges::none_of(clusters, is_known)) clusters.push_back(*settings);
  }
  std::vector<Check> checks;
  for (const ClusterSettings& settings : clusters) {
    checks.push_back({"name", [settings] { return checkName(settings); }});
    if (!settings.observe) {
      checks.push_back({"address", [settings] { return judgeAddress(settings.address, node::readNetworkView()); }});
    }
    if (!settings.endpoints.empty()) checks.push_back({"etcd", [settings] { return checkEtcd(settings); }});
    if (settings.peers) checks.push_back({"peers", [settings] { return checkPeers(settings); }});
    checks.push_back({"state", [settings] { return checkState(settings); }});
  }
  return checks;
}

}  // namespace idetcd::directive
