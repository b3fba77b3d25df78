// The directive `hosts`: names from a hosts file.
#include "config/option_table.h"
#include "directive/hosts/hosts.h"
#include "directive/values/values.h"
#include "resolve/directive.h"

namespace idetcd::directive {

namespace {

// `hosts [FILE [ZONES…]]`
Result<void> readFile(config::DirectiveCursor& cursor, HostsOptions& hosts) {
  if (cursor.nextArg()) hosts.file = cursor.value();
  return config::zonesIfAny(&HostsOptions::zones).read(cursor, &hosts);
}

// `ADDRESS NAME…`
Result<void> readInline(config::DirectiveCursor& cursor, HostsOptions& hosts) {
  std::string line = cursor.value();
  if (!parseHostsAddress(line)) {
    static constexpr std::array<std::string_view, 6> kKnown{
        "ttl", "reload", "no_reverse", "fallthrough", "fallthrough_unsupported", "ADDRESS NAME..."};
    return cursor.error(fmt::format("unknown property '{}'{}", line, config::suggestion(line, kKnown)));
  }
  for (const std::string& name : cursor.remainingArgs()) line += " " + name;
  hosts.inline_lines.push_back(std::move(line));
  return {};
}

const config::Options<HostsOptions>& hostsOptions() {
  using namespace config;
  constexpr std::string_view kBadReload = "invalid duration for reload '{word}'";
  static const Options<HostsOptions> kOptions{
      readFile,
      {{"ttl", "ttl SECONDS, from 1 to 65535",
        number(&HostsOptions::ttl_seconds, 1, 65535, "ttl provided is invalid: {word}")},
       {"reload", "reload DURATION, like 5s",
        duration(&HostsOptions::reload, {.wrong = kBadReload, .invalid = kBadReload})},
       {"fallthrough", "fallthrough [ZONES...]", zonesOrAll(&HostsOptions::fallthrough)},
       {"fallthrough_unsupported", "fallthrough_unsupported", flag(&HostsOptions::fallthrough_unsupported)},
       {"no_reverse", "no_reverse", flag(&HostsOptions::no_reverse)}},
      readInline};
  return kOptions;
}

// Shared by all directives of the process; the metrics go on while a file is being read.
class HostsState final : public resolve::ProcessState {
 public:
  explicit HostsState(resolve::Process& process) : reload(std::make_shared<HostsReload>(process.metrics.scope())) {}
  const std::shared_ptr<HostsReload> reload;
};

class HostsHandler final : public resolve::Handler {
 public:
  HostsHandler(std::shared_ptr<const HostsSource> source, const Values& values)
      : hosts_(std::move(source)), rotates_(values.loadbalance), preferred_(values.preferred) {}

  bool prefetches() const override { return true; }
  void prefetchBucket(const dns::Query& query) override { hosts_.prefetchBucket(query.hash); }
  void prefetchEntry(const dns::Query& query) override { hosts_.prefetchEntry(query.hash); }
  resolve::QueryOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) override {
    dns::AddressOrder order{.preferred = preferred_};
    if (rotates_) order.rotation = dns::load16(query.message);  // the ID is random enough
    return hosts_.answer(query, request.response_limit, flags, order, request.name_exists, request.wildcard);
  }
  resolve::QueryOutcome answerNoData(const dns::Query& query, const resolve::Request& request,
                                     uint16_t flags) override {
    return hosts_.answerNoData(query, request.response_limit, flags);
  }

 private:
  const Hosts hosts_;
  const bool rotates_;
  const std::vector<IpNetwork> preferred_;
};

// The lines of the file itself.
void checkFiles(config::NamedFiles& files) {
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
}

class HostsDirective final : public resolve::Configured<HostsOptions> {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override {
    settings_.zones = config::zonesOf(block.keys);
    if (auto read = hostsOptions().read(cursor, settings_); !read) return read;
    const bool alone = settings_.fallthrough_unsupported && settings_.fallthrough.empty();
    if (alone) return cursor.error("fallthrough_unsupported needs fallthrough");
    return {};
  }
  Result<void> prepare(resolve::Process& process, const resolve::Block&) override {
    source_ = std::make_shared<const HostsSource>(settings_, process.hash_seed, process.executor,
                                                  process.log.named("plugin/hosts"), process.metrics.scope(),
                                                  process.state<HostsState>().reload);
    return {};
  }
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override {
    chain.add(std::make_unique<HostsHandler>(source_, valuesOf(context.block)));
    return {};
  }

 private:
  std::shared_ptr<const HostsSource> source_;
};

}  // namespace

extern const resolve::DirectiveType kHostsDirective{.name = "hosts",
                                                    .syntax = "hosts [FILE [ZONES...]] [{ ... }]",
                                                    .make = resolve::makeDirective<HostsDirective>,
                                                    .check_files = checkFiles,
                                                    .once = true,
                                                    .defaults = [] { return hostsOptions().defaults(); }};

}  // namespace idetcd::directive
