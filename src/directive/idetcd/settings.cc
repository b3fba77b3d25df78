#include "directive/idetcd/settings.h"

#include <algorithm>
#include <array>
#include <limits>

#include <fmt/format.h>

#include "base/ip_address.h"
#include "base/text.h"
#include "config/arguments.h"
#include "config/duration.h"
#include "config/option_table.h"
#include "naming/watched_ranges.h"

namespace idetcd::directive {

namespace {

constexpr std::string_view kPatternSyntax = "pattern NAME{{.ID}}.ZONE.";

// Where a duration counts seconds: DNS TTLs and etcd leases know nothing finer.
Result<int64_t> parseSeconds(config::DirectiveCursor& cursor, int64_t min, int64_t max) {
  const std::string option = cursor.value();
  const auto argument = cursor.oneArg();
  if (!argument) return tl::unexpected(argument.error());
  const auto duration = config::parseDuration(*argument);
  if (!duration) return cursor.error(duration.error().message);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(*duration);
  if (seconds != *duration || seconds.count() < min || seconds.count() > max) {
    return cursor.error(fmt::format("{} must be whole seconds from {}s to {}s: '{}'", option, min, max, *argument));
  }
  return seconds.count();
}

class ClusterParser {
 public:
  explicit ClusterParser(config::DirectiveCursor& cursor) : cursor_(cursor) {}

  Result<ClusterSettings> parse() {
    const auto none = cursor_.args(0, 0);
    const auto head = none ? Result<void>() : tl::unexpected(none.error());
    static constexpr config::OptionTable<ClusterParser, 16> kOptions{{
        {"endpoint", "endpoint http://HOST:PORT...", &ClusterParser::readEndpoint},
        {"tls", "tls [CERT KEY] [CA]", &ClusterParser::readTls},
        {"credentials", "credentials USER PASSWORD", &ClusterParser::readCredentials},
        {"limit", "limit N", &ClusterParser::readLimit},
        {"when-full", "when-full wait, or when-full exit", &ClusterParser::readWhenFull},
        {"pattern", kPatternSyntax, &ClusterParser::readPattern},
        {"ttl", "ttl DURATION, like 5s", &ClusterParser::readTtl},
        {"lease", "lease DURATION, like 20s", &ClusterParser::readLease},
        {"reconcile", "reconcile DURATION, like 60s", &ClusterParser::readReconcile},
        {"watch", "watch pattern, or watch RANGE...", &ClusterParser::readWatch},
        {"address", "address IP...", &ClusterParser::readAddress},
        {"interface", "interface NAME", &ClusterParser::readInterface},
        {"fallthrough", "fallthrough [ZONES...]", &ClusterParser::readFallthrough},
        {"observe", "observe", &ClusterParser::readObserve},
        {"state", "state DIRECTORY", &ClusterParser::readState},
        {"on-claim", "on-claim COMMAND [ARGUMENT...]", &ClusterParser::readOnClaim},
    }};
    config::Problems problems;
    const auto read = config::readBlock(cursor_, *this, kOptions, nullptr, head);
    if (!read) problems.add(read.error().message);
    if (auto checked = checkPattern(); !checked) problems.add(checked.error().message);
    if (problems.empty()) return check();
    return tl::unexpected(problems.result().error());
  }

 private:
  Result<void> readEndpoint() {
    const auto endpoints = cursor_.args(1);
    if (!endpoints) return tl::unexpected(endpoints.error());
    for (const std::string& endpoint : *endpoints) {
      if (const auto valid = etcd::Client::validateEndpoint(endpoint); !valid)
        return cursor_.error(valid.error().message);
    }
    settings_.endpoints = *endpoints;
    return {};
  }

  // Nothing: the system's CAs; CA; CERTIFICATE KEY; CERTIFICATE KEY CA. As CoreDNS has it for etcd.
  Result<void> readTls() {
    auto files = cursor_.args(0, 3);
    if (!files) return tl::unexpected(files.error());
    etcd::TlsFiles& tls = settings_.tls.emplace();
    if (files->size() % 2 == 1) {
      tls.ca_file = std::move(files->back());
      files->pop_back();
    }
    if (files->empty()) return {};
    tls.certificate_file = std::move(files->front());
    tls.key_file = std::move(files->back());
    return {};
  }

  Result<void> readCredentials() {
    const auto arguments = cursor_.secretArgs(2, 2);
    if (!arguments) return tl::unexpected(arguments.error());
    settings_.credentials = {arguments->front(), arguments->back()};
    return {};
  }

  Result<void> readLimit() {
    const auto argument = cursor_.oneArg();
    if (!argument) return tl::unexpected(argument.error());
    const auto limit = parseNumber<int64_t>(*argument);
    if (!limit || *limit < 1 || *limit > std::numeric_limits<int32_t>::max()) {
      return cursor_.error(
          fmt::format("limit must be a number from 1 to {}: '{}'", std::numeric_limits<int32_t>::max(), *argument));
    }
    settings_.limit = *limit;
    return {};
  }

  Result<void> readWhenFull() {
    const auto argument = cursor_.oneArg();
    if (!argument) return tl::unexpected(argument.error());
    if (*argument != "wait" && *argument != "exit")
      return cursor_.error(fmt::format("when-full must be wait or exit: '{}'", *argument));
    settings_.exit_when_full = *argument == "exit";
    return {};
  }

  Result<void> readPattern() {
    has_pattern_ = true;
    pattern_ = cursor_.remainingText();
    if (pattern_.empty()) return cursor_.argError();
    pattern_line_ = cursor_.line();
    return {};
  }

  Result<void> readTtl() {
    const auto seconds = parseSeconds(cursor_, 0, std::numeric_limits<int32_t>::max());  // RFC 2181 §8
    if (!seconds) return tl::unexpected(seconds.error());
    settings_.ttl_seconds = static_cast<uint32_t>(*seconds);
    return {};
  }

  Result<void> readLease() { return readInterval(&settings_.lease); }

  Result<void> readReconcile() { return readInterval(&settings_.reconcile); }

  Result<void> readWatch() {
    const auto words = cursor_.args(1);
    if (!words) return tl::unexpected(words.error());
    for (const std::string& word : *words) {
      if (word == "pattern") continue;
      if (const auto range = naming::parseWatchedRange(word); !range)
        return cursor_.error(
            fmt::format("watch takes `pattern`, the beginning of names, or FROM:TO: {}", range.error().message));
    }
    settings_.watch.insert(settings_.watch.end(), words->begin(), words->end());
    return {};
  }

  Result<void> readInterval(std::chrono::seconds* interval) {
    constexpr int64_t kLongest = 24 * 3600;
    const auto seconds = parseSeconds(cursor_, 1, kLongest);
    if (!seconds) return tl::unexpected(seconds.error());
    *interval = std::chrono::seconds(*seconds);
    return {};
  }

  Result<void> readAddress() {
    const auto arguments = cursor_.args(1);
    if (!arguments) return tl::unexpected(arguments.error());
    for (const std::string& argument : *arguments) {
      const auto address = IpAddress::parse(argument);
      if (!address) return cursor_.error(fmt::format("not an IP address: '{}'", argument));
      settings_.address.addresses.push_back(*address);
    }
    return {};
  }

  Result<void> readInterface() {
    const auto argument = cursor_.oneArg();
    if (!argument) return tl::unexpected(argument.error());
    settings_.address.interface_name = *argument;
    return {};
  }

  Result<void> readFallthrough() {
    auto zones = config::parseZones(cursor_, cursor_.remainingArgs());
    if (!zones) return tl::unexpected(zones.error());
    if (zones->empty()) zones->emplace_back();  // every name
    settings_.fallthrough = std::move(*zones);
    return {};
  }

  Result<void> readObserve() { return config::readFlag(cursor_, settings_.observe); }

  Result<void> readState() {
    const auto directory = cursor_.oneArg();
    if (!directory) return tl::unexpected(directory.error());
    if (directory->empty()) return cursor_.error("state needs a directory");
    settings_.state_directory = *directory;
    return {};
  }

  Result<void> readOnClaim() {
    const auto command = cursor_.args(1);
    if (!command) return tl::unexpected(command.error());
    if (command->front().empty()) return cursor_.error("on-claim needs a program");
    settings_.on_claim = *command;
    return {};
  }

  Result<void> checkPattern() {
    if (pattern_.empty() && has_pattern_) return {};  // that was said already
    if (pattern_.empty()) {
      return cursor_.error(fmt::format("idetcd needs a pattern; write: {}", kPatternSyntax));
    }
    auto pattern = slots::NamePattern::parse(pattern_, settings_.limit);
    if (!pattern) {
      return cursor_.errorAt(pattern_line_, fmt::format("bad pattern '{}': {}; write: {}", pattern_,
                                                        pattern.error().message, kPatternSyntax));
    }
    settings_.pattern = std::move(*pattern);
    return {};
  }

  // What only shows when every option is right.
  Result<ClusterSettings> check() {
    if (const auto valid = etcd::Client::validateOptions(settings_.etcdOptions()); !valid)
      return cursor_.error(valid.error().message);
    if (const size_t ranges = naming::watchedRanges(settings_.watch, settings_.pattern).size();
        ranges > naming::kMaxWatchedRanges) {
      return cursor_.error(fmt::format("watch has {} ranges, at most {} can be watched; write fewer and wider ones",
                                       ranges, naming::kMaxWatchedRanges));
    }
    // The addresses that the file names are checked without looking at the machine.
    if (!settings_.address.addresses.empty()) {
      const auto addresses = node::selectNodeAddresses(settings_.address, {});
      if (!addresses) return cursor_.error(addresses.error().message);
    }
    return std::move(settings_);
  }

  config::DirectiveCursor& cursor_;
  ClusterSettings settings_;
  std::string pattern_;
  bool has_pattern_ = false;
  int pattern_line_ = 0;
};

}  // namespace

bool ClusterSettings::isSameMember(const ClusterSettings& other) const {
  return endpoints == other.endpoints && tls == other.tls && credentials == other.credentials && limit == other.limit &&
         exit_when_full == other.exit_when_full && lease == other.lease && reconcile == other.reconcile &&
         watch == other.watch && ttl_seconds == other.ttl_seconds && address.addresses == other.address.addresses &&
         address.interface_name == other.address.interface_name && observe == other.observe &&
         state_directory == other.state_directory && on_claim == other.on_claim;
}

etcd::Client::Options ClusterSettings::etcdOptions() const {
  etcd::Client::Options options;
  options.endpoints = endpoints;
  options.tls = tls;
  options.credentials = credentials;
  return options;
}

std::vector<dns::Name> ClusterSettings::endpointNames() const {
  std::vector<dns::Name> names;
  for (const std::string& endpoint : endpoints) {
    const std::string host = etcd::Client::endpointHost(endpoint);
    if (IpAddress::parse(host) || host == "localhost") continue;
    if (const auto name = dns::Name::parse(host)) names.push_back(*name);
    if (host.find('.') != std::string::npos) continue;
    if (const auto name = dns::Name::parse(host + "." + pattern.zone().toString())) names.push_back(*name);
  }
  return names;
}

Result<ClusterSettings> parseClusterSettings(config::DirectiveCursor& cursor) { return ClusterParser(cursor).parse(); }

}  // namespace idetcd::directive
