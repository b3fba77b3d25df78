#include "directive/idetcd/settings.h"

#include "base/ip_address.h"
#include "base/text.h"
#include "config/option_table.h"
#include "naming/watched_ranges.h"

namespace idetcd::directive {

namespace {

constexpr std::string_view kPatternSyntax = "pattern NAME{{.ID}}.ZONE.";

struct Lines {
  ClusterSettings settings;
  std::string pattern;
  bool has_pattern = false;
  bool has_endpoint = false;
  bool endpoint_is_first = false;
  std::string peers_option;  // one of those that only `peers` has; empty: none
  peers::Settings peers;
  int pattern_line = 0;
};

Result<void> readEndpoint(config::DirectiveCursor& cursor, Lines& lines) {
  if (const auto read = readEndpoints(cursor, lines.settings); !read) return read;
  lines.has_endpoint = true;
  lines.endpoint_is_first = lines.peers.where.empty();
  return {};
}

Result<void> readPeers(config::DirectiveCursor& cursor, peers::Settings& settings) {
  const auto words = cursor.args(1);
  if (!words) return tl::unexpected(words.error());
  settings.where.insert(settings.where.end(), words->begin(), words->end());
  return {};
}

// An option that means nothing without `peers`.
config::Field<Lines> ofPeers(std::string_view name, const config::Field<peers::Settings>& field) {
  config::Field<Lines> outer = config::within(&Lines::peers, field);
  outer.read = [name, field](config::DirectiveCursor& cursor, void* lines) {
    static_cast<Lines*>(lines)->peers_option = name;
    return field.read(cursor, &static_cast<Lines*>(lines)->peers);
  };
  return outer;
}

Result<void> readPattern(config::DirectiveCursor& cursor, Lines& lines) {
  lines.has_pattern = true;
  lines.pattern = cursor.remainingText();
  if (lines.pattern.empty()) return cursor.argError();
  lines.pattern_line = cursor.line();
  return {};
}

Result<void> readWatch(config::DirectiveCursor& cursor, ClusterSettings& settings) {
  const auto words = cursor.args(1);
  if (!words) return tl::unexpected(words.error());
  for (const std::string& word : *words) {
    if (word == "pattern") continue;
    if (const auto range = naming::parseWatchedRange(word); !range)
      return cursor.error(
          fmt::format("watch takes `pattern`, the beginning of names, or FROM:TO: {}", range.error().message));
  }
  settings.watch.insert(settings.watch.end(), words->begin(), words->end());
  return {};
}

// Takes `as NETWORK` from the end of the words; none: they are of the node's name.
Result<node::NetworkOptions*> takeNetwork(const config::DirectiveCursor& cursor, std::vector<std::string>& words,
                                          node::AddressOptions& address) {
  if (words.size() < 3 || words[words.size() - 2] != "as") return nullptr;
  const std::string name = words.back();
  words.resize(words.size() - 2);
  if (!records::isNetworkName(name)) {
    return cursor.error(fmt::format("'{}' is no name of a network: 1 to {} lower-case letters, digits and '-'", name,
                                    records::kMaxNetworkName));
  }
  if (std::ranges::find(address.networks, name, &node::NetworkOptions::name) != address.networks.end())
    return cursor.error(fmt::format("the network {} has its addresses already", name));
  if (address.networks.size() == records::kMaxNetworks)
    return cursor.error(fmt::format("a node is in {} further networks at most", records::kMaxNetworks));
  return &address.networks.emplace_back(node::NetworkOptions{.name = name, .addresses = {}, .interface_name = {}});
}

Result<void> readAddress(config::DirectiveCursor& cursor, ClusterSettings& settings) {
  auto words = cursor.args(1);
  if (!words) return tl::unexpected(words.error());
  const auto network = takeNetwork(cursor, *words, settings.address);
  if (!network) return tl::unexpected(network.error());
  std::vector<IpAddress>& addresses = *network != nullptr ? (*network)->addresses : settings.address.addresses;
  for (const std::string& word : *words) {
    const auto address = IpAddress::parse(word);
    if (!address) return cursor.error(fmt::format("not an IP address: '{}'", word));
    addresses.push_back(*address);
  }
  return {};
}

Result<void> readInterface(config::DirectiveCursor& cursor, ClusterSettings& settings) {
  auto words = cursor.args(1, 3);
  if (!words) return tl::unexpected(words.error());
  const auto network = takeNetwork(cursor, *words, settings.address);
  if (!network) return tl::unexpected(network.error());
  if (words->size() != 1) return cursor.error("interface is NAME, or NAME as NETWORK");
  (*network != nullptr ? (*network)->interface_name : settings.address.interface_name) = words->front();
  return {};
}

Result<void> readState(config::DirectiveCursor& cursor, ClusterSettings& settings) {
  const auto directory = cursor.oneArg();
  if (!directory) return tl::unexpected(directory.error());
  if (directory->empty()) return cursor.error("state needs a directory");
  settings.state_directory = *directory;
  return {};
}

Result<void> readOnClaim(config::DirectiveCursor& cursor, ClusterSettings& settings) {
  const auto command = cursor.args(1);
  if (!command) return tl::unexpected(command.error());
  if (command->front().empty()) return cursor.error("on-claim needs a program");
  settings.on_claim = *command;
  return {};
}

Result<void> readService(config::DirectiveCursor& cursor, ClusterSettings& settings) {
  const auto words = cursor.args(1);
  if (!words) return tl::unexpected(words.error());
  const auto service = records::parseService(*words);
  if (!service) return cursor.error(service.error().message);
  if (settings.services.size() == records::kMaxServices)
    return cursor.error(fmt::format("a node offers {} services at most", records::kMaxServices));
  settings.services.push_back(*service);
  return {};
}

Result<void> readTopology(config::DirectiveCursor& cursor, ClusterSettings& settings) {
  const auto words = cursor.args(1);
  if (!words) return tl::unexpected(words.error());
  const bool names_source = words->front() == "file" || words->front() == "env";
  if (words->front().empty() || (names_source && words->size() != 2))
    return cursor.error("topology is file PATH, env NAME, or a program with its arguments");
  settings.topology = *words;
  return {};
}

Result<void> readCheck(config::DirectiveCursor& cursor, ClusterSettings& settings) {
  constexpr size_t kMostChecks = 8;
  const auto words = cursor.args(1);
  if (!words) return tl::unexpected(words.error());
  auto check = node::Check::parse(*words);
  if (!check) return cursor.error(check.error().message);
  if (settings.checks.size() == kMostChecks) return cursor.error(fmt::format("there are {} checks at most", kMostChecks));
  settings.checks.push_back(std::move(*check));
  return {};
}

Result<void> readCheckFloor(config::DirectiveCursor& cursor, ClusterSettings& settings) {
  const auto word = cursor.oneArg();
  if (!word) return tl::unexpected(word.error());
  const auto percent = word->ends_with('%') ? parseNumber<int>(word->substr(0, word->size() - 1)) : std::nullopt;
  if (!percent || *percent < 0 || *percent > 100)
    return cursor.error(fmt::format("check-floor must be from 0% to 100%: '{}'", *word));
  settings.check_floor_percent = *percent;
  return {};
}

const config::Options<Lines>& options() {
  using namespace config;
  using Settings = ClusterSettings;
  constexpr int64_t kMostInteger = std::numeric_limits<int32_t>::max();  // of a TTL: RFC 2181 §8
  constexpr int64_t kLongestSeconds = 24 * 3600;
  constexpr int64_t kLongestHold = 30 * kLongestSeconds;
  constexpr int64_t kMostAttempts = 1000;
  const DurationRange kCheckTime{.least = std::chrono::milliseconds(100), .most = std::chrono::hours(1)};
  const auto of = [](Field<Settings> field) { return within(&Lines::settings, std::move(field)); };
  static const Options<Lines> kOptions{
      {"endpoint", "endpoint http://HOST:PORT...", readEndpoint},
      {"peers", "peers NAME|ADDRESS[:PORT]|NETWORK...", within(&Lines::peers, Field<peers::Settings>(readPeers))},
      {"expect", "expect N",
       ofPeers("expect", number(&peers::Settings::expect, 1, founding::kMaxMachines,
                                "expect must be a number from {least} to {most}: '{word}'")
                             .orElse("limit"))},
      {"secret", "secret FILE", ofPeers("secret", text(&peers::Settings::secret_file))},
      {"insecure", "insecure", ofPeers("insecure", flag(&peers::Settings::insecure))},
      {"peers-port", "peers-port PORT",
       ofPeers("peers-port", number(&peers::Settings::port, 1, UINT16_MAX - 2,
                                    "peers-port must be a number from {least} to {most}: '{word}'"))},
      {"etcd-program", "etcd-program PATH", ofPeers("etcd-program", text(&peers::Settings::program).orElse("etcd"))},
      {"tls", "tls [CERT KEY] [CA]", of(readTls)},
      {"credentials", "credentials USER PASSWORD", of(readCredentials)},
      {"limit", "limit N",
       of(number(&Settings::limit, 1, kMostInteger, "limit must be a number from {least} to {most}: '{word}'"))},
      {"when-full", "when-full wait, or when-full exit",
       of(choice(&Settings::exit_when_full, {{"wait", false}, {"exit", true}},
                 "when-full must be wait or exit: '{word}'"))},
      {"pattern", kPatternSyntax, readPattern},
      {"ttl", "ttl DURATION, like 5s", of(wholeSeconds(&Settings::ttl_seconds, 0, kMostInteger))},
      {"lease", "lease DURATION, like 20s", of(wholeSeconds(&Settings::lease, 1, kLongestSeconds))},
      {"hold", "hold DURATION, like 30m", of(wholeSeconds(&Settings::hold, 0, kLongestHold))},
      {"reconcile", "reconcile DURATION, like 60s", of(wholeSeconds(&Settings::reconcile, 1, kLongestSeconds))},
      {"watch", "watch pattern, or watch RANGE...", of(readWatch)},
      {"relay", "relay N",
       of(number(&Settings::relay, 0, 1000, "relay must be a number from {least} to {most}: '{word}'"))},
      {"address", "address IP... [as NETWORK]", of(readAddress)},
      {"interface", "interface NAME [as NETWORK]", of(readInterface)},
      {"fallthrough", "fallthrough [ZONES...]", of(zonesOrAll(&Settings::fallthrough))},
      {"observe", "observe", of(flag(&Settings::observe))},
      {"state", "state DIRECTORY", of(readState)},
      {"on-claim", "on-claim COMMAND [ARGUMENT...]", of(readOnClaim)},
      {"service", "service NAME tcp|udp PORT [weight W]", of(readService)},
      {"check", "check COMMAND [ARGUMENT...], or check tcp [ADDRESS:]PORT, or check http URL", of(readCheck)},
      {"check-interval", "check-interval DURATION, like 10s",
       of(within(&Settings::check_times, duration(&node::CheckTimes::interval, kCheckTime)))},
      {"check-timeout", "check-timeout DURATION, like 5s",
       of(within(&Settings::check_times, duration(&node::CheckTimes::timeout, kCheckTime)))},
      {"check-fails", "check-fails N",
       of(within(&Settings::check_times, number(&node::CheckTimes::fails, 1, kMostAttempts)))},
      {"check-passes", "check-passes N",
       of(within(&Settings::check_times, number(&node::CheckTimes::passes, 1, kMostAttempts)))},
      {"check-mode", "check-mode drain, or check-mode release",
       of(choice(&Settings::check_releases, {{"drain", false}, {"release", true}},
                 "check-mode must be drain or release: '{word}'"))},
      {"check-floor", "check-floor N%", of(Field<Settings>(readCheckFloor).orElse("50%"))},
      {"topology", "topology COMMAND [ARGUMENT...], or topology file PATH, or topology env NAME", of(readTopology)},
  };
  return kOptions;
}

Result<void> parsePattern(const config::DirectiveCursor& cursor, Lines& lines) {
  if (lines.pattern.empty() && lines.has_pattern) return {};  // that was said already
  if (lines.pattern.empty()) return cursor.error(fmt::format("idetcd needs a pattern; write: {}", kPatternSyntax));
  auto pattern = slots::NamePattern::parse(lines.pattern, lines.settings.limit);
  if (!pattern) {
    return cursor.errorAt(lines.pattern_line, fmt::format("bad pattern '{}': {}; write: {}", lines.pattern,
                                                          pattern.error().message, kPatternSyntax));
  }
  lines.settings.pattern = std::move(*pattern);
  return {};
}

Result<void> takePeers(const config::DirectiveCursor& cursor, Lines& lines) {
  peers::Settings& peers = lines.peers;
  ClusterSettings& settings = lines.settings;
  if (peers.where.empty()) {
    if (lines.peers_option.empty()) return {};
    return cursor.error(fmt::format(
        "{} is for machines that found a cluster; write: peers NAME|ADDRESS[:PORT]|NETWORK...", lines.peers_option));
  }
  if (lines.has_endpoint) {
    using Move = ClusterSettings::Move;
    settings.move = lines.endpoint_is_first ? Move::kToPeers : Move::kToEndpoints;
  } else if (settings.tls || settings.credentials) {
    return cursor.error(fmt::format("{} is for an etcd of `endpoint`: with peers, `secret` makes certificates",
                                    settings.tls ? "tls" : "credentials"));
  }
  const auto meeting = peers::Meeting::parse(peers.where, peers.port);
  if (!meeting) return cursor.error(fmt::format("peers: {}", meeting.error().message));
  if (peers.expect == 0) {
    if (settings.limit > static_cast<int64_t>(founding::kMaxMachines)) {
      return cursor.error(fmt::format("expect is the limit if it is not said, which is {}; write: expect N, up to {}",
                                      settings.limit, founding::kMaxMachines));
    }
    peers.expect = settings.limit;
  }
  const auto isLoopback = [](const SocketAddress& address) { return address.ip.isLoopback(); };
  const bool is_local = meeting->names.empty() && std::ranges::all_of(meeting->addresses, isLoopback) &&
                        !settings.address.addresses.empty() &&
                        std::ranges::all_of(settings.address.addresses, &IpAddress::isLoopback);
  if (peers.secret_file.empty() && !peers.insecure && !is_local) {
    return cursor.error(
        "peers needs a secret, which all machines of the cluster have; write: secret FILE, or insecure, if everybody "
        "who "
        "reaches this machine may read and change all names");
  }
  if (!peers.secret_file.empty() && peers.insecure)
    return cursor.error("secret and insecure contradict each other: write one of them");
  if (!lines.has_endpoint) settings.endpoints.clear();
  settings.peers = std::move(peers);
  return {};
}

// Errors that show only when every option is right.
Result<void> checkAll(const config::DirectiveCursor& cursor, const ClusterSettings& settings) {
  if (!settings.endpoints.empty()) {
    if (const auto valid = etcd::Client::validateOptions(settings.etcdOptions()); !valid)
      return cursor.error(valid.error().message);
  }
  if (const size_t ranges = naming::watchedRanges(settings.watch, settings.pattern).size();
      ranges > naming::kMaxWatchedRanges) {
    return cursor.error(fmt::format("watch has {} ranges, at most {} can be watched; write fewer and wider ones",
                                    ranges, naming::kMaxWatchedRanges));
  }
  if (settings.hold.count() > 0 && settings.hold < settings.lease)
    return cursor.error("hold is shorter than the lease: a name that is held waits for its node after the lease has ended");
  const size_t longest = settings.pattern.render(settings.pattern.limit()).size() + 1;
  for (const node::NetworkOptions& network : settings.address.networks) {
    if (longest + 1 + network.name.size() > dns::kMaxNameLength)
      return cursor.error(fmt::format("names in the network {} would be longer than a domain name may be", network.name));
  }
  // The addresses that the file names are checked without looking at the machine.
  node::AddressOptions fixed = settings.address;
  std::erase_if(fixed.networks, [](const node::NetworkOptions& network) { return network.addresses.empty(); });
  if (fixed.addresses.empty()) fixed.interface_name.clear();
  const auto addresses = node::selectNodeAddresses(fixed, {});
  return addresses ? Result<void>() : cursor.error(addresses.error().message);
}

}  // namespace

const char* ClusterSettings::movesTo() const {
  if (move == Move::kNone) return nullptr;
  return move == Move::kToPeers ? "peers" : "endpoint";
}

bool ClusterSettings::isSameMember(const ClusterSettings& other) const {
  return isSameBesidesStores(other) && move == other.move && isSameStore(true, other) && isSameStore(false, other);
}

bool ClusterSettings::isSameBesidesStores(const ClusterSettings& other) const {
  return limit == other.limit && exit_when_full == other.exit_when_full && lease == other.lease && hold == other.hold &&
         reconcile == other.reconcile && watch == other.watch && relay == other.relay &&
         ttl_seconds == other.ttl_seconds && address == other.address && observe == other.observe &&
         state_directory == other.state_directory && on_claim == other.on_claim && services == other.services &&
         topology == other.topology && checks == other.checks &&
         check_times == other.check_times && check_releases == other.check_releases &&
         check_floor_percent == other.check_floor_percent;
}

bool ClusterSettings::isSameStore(bool at_peers, const ClusterSettings& other) const {
  if (at_peers) return peers == other.peers;
  return isSameAccess(other);
}

ClusterSettings::Step ClusterSettings::stepTo(const ClusterSettings& next) const {
  const bool moved = move != Move::kNone;
  const bool moves = next.move != Move::kNone;
  if (moved == moves || !isSameBesidesStores(next)) return Step::kNone;
  if (moves) {
    const bool same = startsAtPeers() == next.startsAtPeers() && isSameStore(startsAtPeers(), next);
    return same ? Step::kAddSecond : Step::kNone;
  }
  if (!next.isSameStore(next.startsAtPeers(), *this)) return Step::kNone;
  return next.startsAtPeers() == startsAtPeers() ? Step::kKeepFirst : Step::kKeepSecond;
}

std::vector<dns::Name> ClusterSettings::endpointNames() const {
  std::vector<std::string> hosts;
  for (const std::string& endpoint : endpoints) hosts.push_back(etcd::Client::endpointHost(endpoint));
  if (peers) {
    const auto meeting = peers::Meeting::parse(peers->where, peers->port);
    if (meeting) hosts.insert(hosts.end(), meeting->names.begin(), meeting->names.end());
  }
  std::vector<dns::Name> names;
  for (const std::string& host : hosts) {
    if (IpAddress::parse(host) || host == "localhost") continue;
    if (const auto name = dns::Name::parse(host)) names.push_back(*name);
    if (host.find('.') != std::string::npos) continue;
    if (const auto name = dns::Name::parse(host + "." + pattern.zone().toString())) names.push_back(*name);
  }
  return names;
}

Result<ClusterSettings> parseClusterSettings(config::DirectiveCursor& cursor) {
  Lines lines;
  config::Problems problems;
  if (const auto read = options().read(cursor, lines); !read) problems.add(read.error().message);
  if (const auto parsed = parsePattern(cursor, lines); !parsed) problems.add(parsed.error().message);
  if (!problems.empty()) return tl::unexpected(problems.result().error());
  if (const auto taken = takePeers(cursor, lines); !taken) return tl::unexpected(taken.error());
  if (const auto checked = checkAll(cursor, lines.settings); !checked) return tl::unexpected(checked.error());
  return std::move(lines.settings);
}

std::vector<config::OptionDefault> clusterDefaults() { return options().defaults(); }

}  // namespace idetcd::directive
