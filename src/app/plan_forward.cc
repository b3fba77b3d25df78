// The directive `forward`.
#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "app/plan_internal.h"
#include "config/duration.h"

namespace idetcd::app {

namespace {

class ForwardParser {
 public:
  explicit ForwardParser(const config::Directive& directive) : cursor_(directive) {}

  // `forward FROM TO… { … }`
  Result<resolve::Forwarder::Options> parse() {
    const auto arguments = cursor_.args(2);
    if (!arguments) return tl::unexpected(arguments.error());
    auto from = parseZones(cursor_, {arguments->front()});
    if (!from) return tl::unexpected(from.error());
    options_.from = std::move(*from);
    if (arguments->size() - 1 > resolve::Forwarder::kMaxTargets) {
      return cursor_.error(
          fmt::format("more than {} TOs configured: {}", resolve::Forwarder::kMaxTargets, arguments->size() - 1));
    }
    for (size_t i = 1; i < arguments->size(); ++i) {
      auto target = resolve::parseUpstreamTarget((*arguments)[i]);
      if (!target) return cursor_.error(target.error().message);
      options_.to.push_back(std::move(*target));
    }
    static constexpr OptionTable<ForwardParser, 14> kOptions{{
        {"except", &ForwardParser::readExcept},
        {"force_tcp", &ForwardParser::readForceTcp},
        {"prefer_udp", &ForwardParser::readPreferUdp},
        {"expire", &ForwardParser::readExpire},
        {"max_fails", &ForwardParser::readMaxFails},
        {"tls", &ForwardParser::readTls},
        {"tls_servername", &ForwardParser::readTlsServerName},
        {"policy", &ForwardParser::readPolicy},
        {"health_check", &ForwardParser::readHealthCheck},
        {"max_concurrent", &ForwardParser::readMaxConcurrent},
        {"next", &ForwardParser::readNext},
        {"failover", &ForwardParser::readFailover},
        {"failfast_all_unhealthy_upstreams", &ForwardParser::readFailfast},
        {"trust-ad", &ForwardParser::readTrustAd},
    }};
    if (auto read = readBlock(cursor_, *this, kOptions); !read) return tl::unexpected(read.error());
    return std::move(options_);
  }

 private:
  Result<void> readForceTcp() { return readFlag(cursor_, options_.force_tcp); }
  Result<void> readPreferUdp() { return readFlag(cursor_, options_.prefer_udp); }
  Result<void> readTrustAd() { return readFlag(cursor_, options_.trust_ad); }
  Result<void> readFailfast() { return readFlag(cursor_, options_.failfast_all_unhealthy_upstreams); }

  Result<void> readExcept() {
    const auto names = cursor_.args(1);
    if (!names) return tl::unexpected(names.error());
    auto zones = parseZones(cursor_, *names);
    if (!zones) return tl::unexpected(zones.error());
    options_.except.insert(options_.except.end(), zones->begin(), zones->end());
    return {};
  }

  Result<std::chrono::milliseconds> readDuration(const std::string& text) {
    const auto duration = config::parseDuration(text);
    if (!duration) return cursor_.error(duration.error().message);
    if (duration->count() < 0) return cursor_.error(fmt::format("a duration can't be negative: {}", text));
    return std::chrono::ceil<std::chrono::milliseconds>(*duration);
  }

  Result<void> readExpire() {
    const auto argument = cursor_.oneArg();
    if (!argument) return tl::unexpected(argument.error());
    const auto duration = readDuration(*argument);
    if (!duration) return tl::unexpected(duration.error());
    options_.expire = *duration;
    return {};
  }

  Result<int64_t> readCount() {
    const auto argument = cursor_.oneArg();
    if (!argument) return tl::unexpected(argument.error());
    const auto number = parseInteger(*argument);
    if (!number || *number < 0 || *number > std::numeric_limits<int32_t>::max()) {
      return cursor_.error(fmt::format("not a number: '{}'", *argument));
    }
    return *number;
  }
  Result<void> readMaxFails() {
    const auto number = readCount();
    if (!number) return tl::unexpected(number.error());
    options_.max_fails = static_cast<uint32_t>(*number);
    return {};
  }
  Result<void> readMaxConcurrent() {
    const auto number = readCount();
    if (!number) return tl::unexpected(number.error());
    options_.max_concurrent = static_cast<size_t>(*number);
    return {};
  }

  // `tls`: no file, CA; CERT KEY; CERT KEY CA
  Result<void> readTls() {
    const auto files = cursor_.args(0, 3);
    if (!files) return tl::unexpected(files.error());
    resolve::Forwarder::Tls& tls = options_.tls;
    if (files->size() == 1) tls.ca_file = (*files)[0];
    if (files->size() >= 2) {
      tls.certificate_file = (*files)[0];
      tls.key_file = (*files)[1];
    }
    if (files->size() == 3) tls.ca_file = (*files)[2];
    return {};
  }

  Result<void> readTlsServerName() {
    const auto argument = cursor_.oneArg();
    if (!argument) return tl::unexpected(argument.error());
    options_.tls.server_name = *argument;
    return {};
  }

  Result<void> readPolicy() {
    using Policy = resolve::Forwarder::Policy;
    const auto argument = cursor_.oneArg();
    if (!argument) return tl::unexpected(argument.error());
    if (*argument == "random") {
      options_.policy = Policy::kRandom;
    } else if (*argument == "round_robin") {
      options_.policy = Policy::kRoundRobin;
    } else if (*argument == "sequential") {
      options_.policy = Policy::kSequential;
    } else {
      return cursor_.error(fmt::format("unknown policy '{}'", *argument));
    }
    return {};
  }

  // `health_check DURATION [no_rec] [domain FQDN]`
  Result<void> readHealthCheck() {
    const auto arguments = cursor_.args(1, 4);
    if (!arguments) return tl::unexpected(arguments.error());
    const auto duration = readDuration(arguments->front());
    if (!duration) return tl::unexpected(duration.error());
    options_.health_check.interval = *duration;
    for (size_t i = 1; i < arguments->size(); ++i) {
      const std::string& word = (*arguments)[i];
      if (word == "no_rec") {
        options_.health_check.recursion_desired = false;
      } else if (word == "domain" && i + 1 < arguments->size()) {
        const auto name = dns::Name::parse((*arguments)[++i]);
        if (!name) return cursor_.error(fmt::format("health_check: invalid domain name {}", (*arguments)[i]));
        options_.health_check.domain = *name;
      } else {
        return cursor_.error(fmt::format("health_check: unknown option {}", word));
      }
    }
    return {};
  }

  Result<void> readNext() { return readRcodes(options_.next); }

  Result<void> readFailover() {
    if (!std::exchange(has_failover_, true)) options_.failover.clear();  // the default
    if (auto read = readRcodes(options_.failover); !read) return read;
    const auto& rcodes = options_.failover;
    if (std::find(rcodes.begin(), rcodes.end(), dns::Rcode::kNoError) == rcodes.end()) return {};
    return cursor_.error("NOERROR cannot be used in failover");
  }

  Result<void> readRcodes(std::vector<dns::Rcode>& rcodes) {
    const auto words = cursor_.args(1);
    if (!words) return tl::unexpected(words.error());
    for (const std::string& word : *words) {
      const auto rcode = resolve::parseRcode(word);
      if (!rcode) return cursor_.error(fmt::format("{} is not a valid rcode", word));
      rcodes.push_back(*rcode);
    }
    return {};
  }

  DirectiveCursor cursor_;
  bool has_failover_ = false;
  resolve::Forwarder::Options options_;
};

}  // namespace

Result<resolve::Forwarder::Options> parseForward(const config::Directive& directive) {
  return ForwardParser(directive).parse();
}

}  // namespace idetcd::app
