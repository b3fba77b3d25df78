// The directive `idetcd`.
#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

#include <fmt/format.h>

#include "app/plan_internal.h"
#include "base/ip_address.h"
#include "cluster/watched_ranges.h"
#include "config/duration.h"
#include "etcd/client.h"

namespace idetcd::app {

namespace {

// Where a duration counts seconds: DNS TTLs and etcd leases know nothing finer.
Result<int64_t> parseSeconds(DirectiveCursor& cursor, int64_t min, int64_t max) {
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
  explicit ClusterParser(const config::Directive& directive) : directive_(directive), cursor_(directive) {}

  Result<ClusterPlan> parse() {
    if (cursor_.nextArg()) return cursor_.argError();
    static constexpr OptionTable<ClusterParser, 16> kOptions{{
        {"endpoint", &ClusterParser::readEndpoint},
        {"tls", &ClusterParser::readTls},
        {"credentials", &ClusterParser::readCredentials},
        {"limit", &ClusterParser::readLimit},
        {"when-full", &ClusterParser::readWhenFull},
        {"pattern", &ClusterParser::readPattern},
        {"ttl", &ClusterParser::readTtl},
        {"lease", &ClusterParser::readLease},
        {"reconcile", &ClusterParser::readReconcile},
        {"watch", &ClusterParser::readWatch},
        {"address", &ClusterParser::readAddress},
        {"interface", &ClusterParser::readInterface},
        {"fallthrough", &ClusterParser::readFallthrough},
        {"observe", &ClusterParser::readObserve},
        {"state", &ClusterParser::readState},
        {"on-claim", &ClusterParser::readOnClaim},
    }};
    Problems problems;
    const auto read = readBlock(cursor_, *this, kOptions);
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
    plan_.endpoints = *endpoints;
    return {};
  }

  // Nothing: the system's CAs; CA; CERTIFICATE KEY; CERTIFICATE KEY CA. As CoreDNS has it for etcd.
  Result<void> readTls() {
    auto files = cursor_.args(0, 3);
    if (!files) return tl::unexpected(files.error());
    etcd::TlsFiles& tls = plan_.tls.emplace();
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
    const auto arguments = cursor_.args(2, 2);
    if (!arguments) return tl::unexpected(arguments.error());
    plan_.credentials = {arguments->front(), arguments->back()};
    return {};
  }

  Result<void> readLimit() {
    const auto argument = cursor_.oneArg();
    if (!argument) return tl::unexpected(argument.error());
    const auto limit = parseInteger(*argument);
    if (!limit || *limit < 1 || *limit > std::numeric_limits<int32_t>::max()) {
      return cursor_.error(
          fmt::format("limit must be a number from 1 to {}: '{}'", std::numeric_limits<int32_t>::max(), *argument));
    }
    plan_.limit = *limit;
    return {};
  }

  Result<void> readWhenFull() {
    const auto argument = cursor_.oneArg();
    if (!argument) return tl::unexpected(argument.error());
    if (*argument != "wait" && *argument != "exit")
      return cursor_.error(fmt::format("when-full must be wait or exit: '{}'", *argument));
    plan_.exit_when_full = *argument == "exit";
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
    plan_.ttl_seconds = static_cast<uint32_t>(*seconds);
    return {};
  }

  Result<void> readLease() { return readInterval(&plan_.lease); }

  Result<void> readReconcile() { return readInterval(&plan_.reconcile); }

  Result<void> readWatch() {
    const auto words = cursor_.args(1);
    if (!words) return tl::unexpected(words.error());
    for (const std::string& word : *words) {
      if (word == "pattern") continue;
      if (const auto range = cluster::parseWatchedRange(word); !range)
        return cursor_.error(
            fmt::format("watch takes `pattern`, the beginning of names, or FROM:TO: {}", range.error().message));
    }
    plan_.watch.insert(plan_.watch.end(), words->begin(), words->end());
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
      plan_.address.addresses.push_back(*address);
    }
    return {};
  }

  Result<void> readInterface() {
    const auto argument = cursor_.oneArg();
    if (!argument) return tl::unexpected(argument.error());
    plan_.address.interface_name = *argument;
    return {};
  }

  Result<void> readFallthrough() {
    auto zones = parseZones(cursor_, cursor_.remainingArgs());
    if (!zones) return tl::unexpected(zones.error());
    if (zones->empty()) zones->emplace_back();  // every name
    plan_.fallthrough = std::move(*zones);
    return {};
  }

  Result<void> readObserve() { return readFlag(cursor_, plan_.observe); }

  Result<void> readState() {
    const auto directory = cursor_.oneArg();
    if (!directory) return tl::unexpected(directory.error());
    if (directory->empty()) return cursor_.error("state needs a directory");
    plan_.state_directory = *directory;
    return {};
  }

  Result<void> readOnClaim() {
    const auto command = cursor_.args(1);
    if (!command) return tl::unexpected(command.error());
    if (command->front().empty()) return cursor_.error("on-claim needs a program");
    plan_.on_claim = *command;
    return {};
  }

  Result<void> checkPattern() {
    if (pattern_.empty() && has_pattern_) return {};  // that was said already
    if (pattern_.empty()) {
      return cursor_.error(fmt::format("idetcd needs a pattern; write: {}", syntaxOf("idetcd", "pattern")));
    }
    auto pattern = cluster::NamePattern::parse(pattern_, plan_.limit);
    if (!pattern) {
      return config::errorAt(directive_.file, pattern_line_,
                             fmt::format("bad pattern '{}': {}; write: {}", pattern_, pattern.error().message,
                                         syntaxOf("idetcd", "pattern")));
    }
    plan_.pattern = std::move(*pattern);
    return {};
  }

  // What only shows when every option is right.
  Result<ClusterPlan> check() {
    if (const auto valid = etcd::Client::validateOptions(plan_.etcdOptions()); !valid)
      return cursor_.error(valid.error().message);
    // What can be wrong with the addresses that the file names can be told without looking at the machine.
    if (!plan_.address.addresses.empty()) {
      const auto addresses = cluster::selectNodeAddresses(plan_.address, {});
      if (!addresses) return cursor_.error(addresses.error().message);
    }
    return std::move(plan_);
  }

  const config::Directive& directive_;
  DirectiveCursor cursor_;
  ClusterPlan plan_;
  std::string pattern_;
  bool has_pattern_ = false;
  int pattern_line_ = 0;
};

}  // namespace

bool ClusterPlan::isSameMember(const ClusterPlan& other) const {
  return endpoints == other.endpoints && tls == other.tls && credentials == other.credentials && limit == other.limit &&
         exit_when_full == other.exit_when_full && lease == other.lease && reconcile == other.reconcile &&
         watch == other.watch && ttl_seconds == other.ttl_seconds && address.addresses == other.address.addresses &&
         address.interface_name == other.address.interface_name && observe == other.observe &&
         state_directory == other.state_directory && on_claim == other.on_claim;
}

etcd::Client::Options ClusterPlan::etcdOptions() const {
  etcd::Client::Options options;
  options.endpoints = endpoints;
  options.tls = tls;
  options.credentials = credentials;
  return options;
}

Result<ClusterPlan> parseCluster(const config::Directive& directive) { return ClusterParser(directive).parse(); }

}  // namespace idetcd::app
