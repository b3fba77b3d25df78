#include "directive/hosts/setup.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "config/arguments.h"
#include "config/duration.h"
#include "config/named_files.h"
#include "config/option_table.h"
#include "directive/loadbalance/setup.h"

namespace idetcd::directive {

namespace {

class HostsParser {
 public:
  HostsParser(config::DirectiveCursor& cursor, const std::vector<config::ServerKey>& keys)
      : cursor_(cursor), keys_(keys) {}

  Result<HostsOptions> parse() {
    std::vector<std::string> arguments = cursor_.remainingArgs();
    if (!arguments.empty()) {
      options_.file = arguments.front();
      arguments.erase(arguments.begin());
    }
    auto zones = config::parseZonesOr(keys_, cursor_, arguments);
    const auto head = zones ? Result<void>() : tl::unexpected(zones.error());
    if (zones) options_.zones = std::move(*zones);
    static constexpr config::OptionTable<HostsParser, 4> kOptions{{
        {"ttl", "ttl SECONDS, from 1 to 65535", &HostsParser::readTtl},
        {"reload", "reload DURATION, like 5s", &HostsParser::readReload},
        {"fallthrough", "fallthrough [ZONES...]", &HostsParser::readFallthrough},
        {"no_reverse", "no_reverse", &HostsParser::readNoReverse},
    }};
    const auto read = config::readBlock(cursor_, *this, kOptions, &HostsParser::readInline, head);
    if (!read) return tl::unexpected(read.error());
    return std::move(options_);
  }

 private:
  Result<void> readNoReverse() { return config::readFlag(cursor_, options_.no_reverse); }

  // `ADDRESS NAME…`
  Result<void> readInline() {
    std::string line = cursor_.value();
    if (!parseHostsAddress(line)) {
      static constexpr std::array<std::string_view, 5> kKnown{"ttl", "reload", "no_reverse", "fallthrough",
                                                              "ADDRESS NAME..."};
      return cursor_.error(fmt::format("unknown property '{}'{}", line, config::suggestion(line, kKnown)));
    }
    for (const std::string& name : cursor_.remainingArgs()) line += " " + name;
    options_.inline_lines.push_back(std::move(line));
    return {};
  }

  Result<void> readTtl() {
    constexpr int64_t kMax = 65535;
    const auto argument = cursor_.oneArg();
    if (!argument) return tl::unexpected(argument.error());
    const auto ttl = parseNumber<int64_t>(*argument);
    if (!ttl || *ttl <= 0 || *ttl > kMax) return cursor_.error(fmt::format("ttl provided is invalid: {}", *argument));
    options_.ttl_seconds = static_cast<uint32_t>(*ttl);
    return {};
  }

  Result<void> readReload() {
    const auto argument = cursor_.oneArg();
    if (!argument) return tl::unexpected(argument.error());
    const auto interval = config::parseDuration(*argument);
    if (!interval || interval->count() < 0) {
      return cursor_.error(fmt::format("invalid duration for reload '{}'", *argument));
    }
    options_.reload = std::chrono::ceil<std::chrono::milliseconds>(*interval);  // 0 alone means never
    return {};
  }

  Result<void> readFallthrough() {
    auto zones = config::parseZones(cursor_, cursor_.remainingArgs());
    if (!zones) return tl::unexpected(zones.error());
    if (zones->empty()) zones->emplace_back();
    options_.fallthrough = std::move(*zones);
    return {};
  }

  config::DirectiveCursor& cursor_;
  const std::vector<config::ServerKey>& keys_;
  HostsOptions options_;
};

// What all directives of the process share; the metrics go on while a file is being read.
class HostsState final : public resolve::ProcessState {
 public:
  explicit HostsState(resolve::Process& process) : reload(std::make_shared<HostsReload>(process.metrics.scope())) {}
  const std::shared_ptr<HostsReload> reload;
};

class HostsHandler final : public resolve::Handler {
 public:
  // `loadbalance` may be null.
  HostsHandler(std::shared_ptr<const HostsSource> source, const LoadbalanceDirective* loadbalance)
      : hosts_(std::move(source)), rotates_(loadbalance != nullptr) {
    if (loadbalance != nullptr) preferred_ = loadbalance->preferred();
  }

  bool prefetches() const override { return true; }
  void prefetchBucket(const dns::Query& query) override { hosts_.prefetchBucket(query.hash); }
  void prefetchEntry(const dns::Query& query) override { hosts_.prefetchEntry(query.hash); }
  resolve::QueryOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) override {
    dns::AddressOrder order{.preferred = preferred_};
    if (rotates_) order.rotation = dns::load16(query.message);  // the ID is random enough
    return hosts_.answer(query, request.response_limit, flags, order);
  }

 private:
  const Hosts hosts_;
  const bool rotates_;
  std::vector<IpNetwork> preferred_;
};

// The lines of the file itself.
std::vector<Error> checkFiles(const config::Directive& directive) {
  config::NamedFiles files(directive);
  const auto& line = files.lines().front();
  const auto content = line.words.size() > 1 ? files.read(line.words[1], line.number) : std::nullopt;
  std::string_view rest = content ? std::string_view(*content) : std::string_view();
  for (int number = 1; !rest.empty(); ++number) {
    std::string_view text = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(text.size() + 1, rest.size()));
    text = text.substr(0, text.find('#'));
    const size_t begin = text.find_first_not_of(" \t\r");
    if (begin == text.npos) continue;
    const std::string_view address = text.substr(begin, text.find_first_of(" \t\r", begin) - begin);
    if (parseHostsAddress(address)) continue;
    files.add(line.number,
              fmt::format("{}:{}: not an IP address: '{}'; write: ADDRESS NAME...", line.words[1], number, address));
  }
  return std::move(files).errors();
}

}  // namespace

Result<void> HostsDirective::read(config::DirectiveCursor& cursor, const resolve::Block& block) {
  auto options = HostsParser(cursor, block.keys).parse();
  if (!options) return tl::unexpected(options.error());
  options_ = std::move(*options);
  return {};
}

Result<void> HostsDirective::prepare(resolve::Process& process, const resolve::Block&) {
  source_ = std::make_shared<const HostsSource>(options_, process.hash_seed, process.executor,
                                                process.log.named("plugin/hosts"), process.metrics.scope(),
                                                process.state<HostsState>().reload);
  return {};
}

Result<void> HostsDirective::addTo(resolve::Chain& chain, const resolve::LoopContext& context) {
  chain.add(std::make_unique<HostsHandler>(source_, context.block.find<LoadbalanceDirective>()));
  return {};
}

const resolve::DirectiveType kHostsDirective{.name = "hosts",
                                             .syntax = "hosts [FILE [ZONES...]] [{ ... }]",
                                             .make = resolve::makeDirective<HostsDirective>,
                                             .check_files = checkFiles,
                                             .once = true};

}  // namespace idetcd::directive
