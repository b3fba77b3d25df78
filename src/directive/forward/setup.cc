// The directive `forward`: asks other servers.
#include "base/text.h"
#include "config/duration.h"
#include "config/option_table.h"
#include "directive/forward/control_paths.h"
#include "net/local_addresses.h"
#include "net/tls_stream.h"
#include "resolve/directive.h"
#include "resolver/forward_files.h"
#include "resolver/kept_caches.h"
#include "resolver/make_resolver.h"
#include "resolver/resolver_settings.h"

namespace idetcd::directive {

namespace {

using config::DirectiveCursor;
using Upstreams = resolver::Forwarder::Options;

// `forward FROM TO…`
Result<void> readServers(DirectiveCursor& cursor, Upstreams& options) {
  const auto arguments = cursor.args(2);
  if (!arguments) return tl::unexpected(arguments.error());
  config::Problems problems;
  auto from = config::parseZones(cursor, {arguments->front()});
  if (!from) problems.add(from.error().message);
  if (from) options.from = std::move(*from);
  if (arguments->size() - 1 > resolver::Forwarder::kMaxTargets) {
    problems.add(cursor.error(
        fmt::format("more than {} TOs configured: {}", resolver::Forwarder::kMaxTargets, arguments->size() - 1)));
  }
  for (size_t i = 1; i < arguments->size(); ++i) {
    auto target = resolver::parseUpstreamTarget((*arguments)[i]);
    if (!target) problems.add(cursor.error(target.error().message));
    if (target) options.to.push_back(std::move(*target));
  }
  return problems.result();
}

constexpr std::string_view kNegative = "a duration can't be negative: {word}";

Result<void> readTimeout(DirectiveCursor& cursor, Upstreams& options) {
  const auto time = config::readDuration(cursor, {.wrong = kNegative});
  if (!time) return tl::unexpected(time.error());
  if (time->count() == 0) return cursor.error("read_timeout must be above 0");
  options.attempt_time = std::chrono::ceil<std::chrono::milliseconds>(*time);
  return {};
}

Result<void> readSourceAddress(DirectiveCursor& cursor, Upstreams& options) {
  const auto argument = cursor.oneArg();
  if (!argument) return tl::unexpected(argument.error());
  const auto ip = IpAddress::parse(*argument);
  if (!ip || ip->isUnspecified() || ip->isMulticast() || (ip->isV6() && ip->isLinkLocal())) {
    return cursor.error(fmt::format("not an address that can be sent from: '{}'", *argument));
  }
  options.source_address = ip->unmapped();
  return {};
}

// `tls`: no file, CA; CERT KEY; CERT KEY CA
Result<void> readTls(DirectiveCursor& cursor, Upstreams& options) {
  const auto files = cursor.args(0, 3);
  if (!files) return tl::unexpected(files.error());
  resolver::Forwarder::Tls& tls = options.tls;
  if (files->size() % 2 == 1) tls.ca_file = files->back();
  if (files->size() < 2) return {};
  tls.certificate_file = (*files)[0];
  tls.key_file = (*files)[1];
  return {};
}

Result<void> readDohMethod(DirectiveCursor& cursor, Upstreams& options) {
  const auto argument = cursor.oneArg();
  if (!argument) return tl::unexpected(argument.error());
  const std::string method = lowerCase(*argument);
  if (method != "get" && method != "post") return cursor.error(fmt::format("unknown doh_method '{}'", *argument));
  options.doh_method = method == "get" ? resolver::DohMethod::kGet : resolver::DohMethod::kPost;
  return {};
}

// `health_check DURATION [no_rec] [domain FQDN]`
Result<void> readHealthCheck(DirectiveCursor& cursor, Upstreams& options) {
  const auto arguments = cursor.args(1, 4);
  if (!arguments) return tl::unexpected(arguments.error());
  const auto duration = config::parseDuration(arguments->front());
  if (!duration) return cursor.error(duration.error().message);
  if (duration->count() < 0) return cursor.error(fmt::format("a duration can't be negative: {}", arguments->front()));
  options.health_check.interval = std::chrono::ceil<std::chrono::milliseconds>(*duration);
  for (size_t i = 1; i < arguments->size(); ++i) {
    const std::string& word = (*arguments)[i];
    if (word == "no_rec") {
      options.health_check.recursion_desired = false;
    } else if (word == "domain" && i + 1 < arguments->size()) {
      const auto name = dns::Name::parse((*arguments)[++i]);
      if (!name) return cursor.error(fmt::format("health_check: invalid domain name {}", (*arguments)[i]));
      options.health_check.domain = *name;
    } else {
      return cursor.error(fmt::format("health_check: unknown option {}", word));
    }
  }
  return {};
}

Result<void> readResolver(DirectiveCursor& cursor, Upstreams& options) {
  const auto words = cursor.args(1);
  if (!words) return tl::unexpected(words.error());
  for (const std::string& word : *words) {
    const auto target = resolver::parseUpstreamTarget(word);
    if (!target || !target->server || target->server->protocol != resolver::UpstreamProtocol::kDns) {
      return cursor.error(fmt::format("not the address of a resolver: '{}'", word));
    }
    options.resolvers.push_back(target->server->address);
  }
  return {};
}

Result<void> readRcodes(DirectiveCursor& cursor, std::vector<dns::Rcode>& rcodes) {
  const auto words = cursor.args(1);
  if (!words) return tl::unexpected(words.error());
  for (const std::string& word : *words) {
    const auto rcode = dns::kRcodeNames.parse(word);
    if (!rcode) return cursor.error(fmt::format("{} is not a valid rcode", word));
    rcodes.push_back(static_cast<dns::Rcode>(*rcode));
  }
  return {};
}

struct Lines {
  Upstreams options;
  bool has_failover = false;
  bool has_expire = false;
};

Result<void> readFailover(DirectiveCursor& cursor, Lines& lines) {
  auto& rcodes = lines.options.failover;
  if (!std::exchange(lines.has_failover, true)) rcodes.clear();  // the default
  if (auto read = readRcodes(cursor, rcodes); !read) return read;
  if (std::find(rcodes.begin(), rcodes.end(), dns::Rcode::kNoError) == rcodes.end()) return {};
  return cursor.error("NOERROR cannot be used in failover");
}

const config::Options<Lines>& forwardOptions() {
  using namespace config;
  using O = Upstreams;
  using Policy = resolver::Forwarder::Policy;
  constexpr DurationRange kTime{.wrong = kNegative};
  const auto of = [](Field<O> field) { return within(&Lines::options, std::move(field)); };
  const auto count = [&of](auto field) {
    return of(number(field, 0, std::numeric_limits<int32_t>::max(), "not a number: '{word}'"));
  };
  const Field<Lines> expire = of(duration(&O::expire, kTime));
  const auto readExpire = [read = expire.read](DirectiveCursor& cursor, void* settings) {
    static_cast<Lines*>(settings)->has_expire = true;
    return read(cursor, settings);
  };
  static const Options<Lines> kOptions{
      of(readServers),
      {{"except", "except ZONES...", of(zones(&O::except))},
       {"force_tcp", "force_tcp", of(flag(&O::force_tcp))},
       {"prefer_udp", "prefer_udp", of(flag(&O::prefer_udp))},
       {"expire", "expire DURATION, like 10s", Field<Lines>(FieldReader{readExpire, expire.text})},
       {"max_age", "max_age DURATION, like 5m", of(duration(&O::max_age, kTime))},
       {"max_idle_conns", "max_idle_conns N", count(&O::max_idle_conns)},
       {"read_timeout", "read_timeout DURATION, like 2s",
        of(Field<O>(readTimeout).orElse(durationText(O{}.attempt_time)))},
       {"source_address", "source_address IP", of(readSourceAddress)},
       {"max_fails", "max_fails N", count(&O::max_fails)},
       {"max_connect_attempts", "max_connect_attempts N", count(&O::max_connect_attempts)},
       {"tls", "tls [[CERT KEY] CA]", of(readTls)},
       {"tls_servername", "tls_servername NAME", of(within(&O::tls, text(&resolver::Forwarder::Tls::server_name)))},
       {"doh_method", "doh_method GET|POST", of(readDohMethod)},
       {"policy", "policy random|round_robin|sequential",
        of(choice(
            &O::policy,
            {{"random", Policy::kRandom}, {"round_robin", Policy::kRoundRobin}, {"sequential", Policy::kSequential}},
            "unknown policy '{word}'"))},
       {"health_check", "health_check DURATION [no_rec] [domain NAME]",
        of(Field<O>(readHealthCheck).orElse(durationText(O{}.health_check.interval)))},
       {"max_concurrent", "max_concurrent N", count(&O::max_concurrent)},
       {"next", "next RCODE..., like next NXDOMAIN",
        of([](DirectiveCursor& cursor, O& upstreams) { return readRcodes(cursor, upstreams.next); })},
       {"next_on_nodata", "next_on_nodata", of(flag(&O::next_on_nodata))},
       {"failover", "failover RCODE...", readFailover},
       {"failfast_all_unhealthy_upstreams", "failfast_all_unhealthy_upstreams",
        of(flag(&O::failfast_all_unhealthy_upstreams))},
       {"resolver", "resolver IP[:port]...", of(readResolver)},
       {"trust-ad", "trust-ad", of(flag(&O::trust_ad))},
       {"use_caps_for_id", "use_caps_for_id", of(flag(&O::use_caps_for_id))}}};
  return kOptions;
}

// A TO that is neither an address nor a file that exists is refused where the directive is read.
void checkTargets(config::NamedFiles& files, std::span<const std::string> words, int line) {
  bool has_server = false;
  std::string empty;  // the last file without a server
  for (const std::string& word : words) {
    const auto target = resolver::parseUpstreamTarget(word);
    if (!target) return;
    const bool is_file = !target->server && !target->host;
    const auto content = is_file ? files.read(target->file, line) : std::nullopt;
    if (is_file && content && resolver::parseResolvConf(*content).empty()) {
      empty = target->file;
    } else {
      has_server = true;
    }
  }
  if (!has_server && !empty.empty())
    files.add(line, fmt::format("{}: there is no server in it; write: nameserver IP", empty));
}

void checkFiles(config::NamedFiles& files) {
  const auto& line = files.lines().front();
  if (line.words.size() > 2) checkTargets(files, std::span(line.words).subspan(2), line.number);
  files.checkTls([](std::span<const std::string> paths) -> Result<void> {
    net::TlsContext::Options options;
    if (paths.size() % 2 == 1) options.ca_file = paths.back();
    if (paths.size() >= 2) {
      options.certificate_file = paths[0];
      options.key_file = paths[1];
    }
    if (const auto made = net::TlsContext::make(options); !made) return tl::unexpected(made.error());
    return {};
  });
}

// Says once, whatever is reloaded, that anybody on the Internet may ask.
class OpenResolverWarning final : public resolve::ProcessState {
 public:
  explicit OpenResolverWarning(resolve::Process& process) : log_(process.log.named("plugin/forward")) {}

  void warn(const SocketAddress& address) {
    if (std::exchange(warned_, true)) return;
    log_.warning(
        "{} is a public address, and everybody may ask there; acl says who may, rrl how often, bind where else",
        address.toString());
  }

 private:
  const Logger log_;
  bool warned_ = false;
};

bool isPublic(const IpAddress& ip) { return !ip.isPrivate() && !ip.isUnspecified() && !ip.isMulticast(); }

// The first public address that is listened on.
std::optional<SocketAddress> findPublic(std::span<const SocketAddress> listening,
                                        const std::vector<SocketAddress>& local) {
  for (const SocketAddress& address : listening) {
    if (isPublic(address.ip)) return address;
    if (!address.ip.isUnspecified()) continue;
    for (const SocketAddress& own : local) {
      if (own.ip.family() == address.ip.family() && isPublic(own.ip)) return SocketAddress{own.ip, address.port};
    }
  }
  return std::nullopt;
}

// Of each `forward` those among its targets, for a message.
std::vector<std::string> filesOf(const std::vector<resolver::Forwarder::Options>& forwards) {
  std::vector<std::string> all;
  for (const resolver::Forwarder::Options& forward : forwards) {
    std::vector<std::string_view> files;
    for (const resolver::UpstreamTarget& target : forward.to) {
      if (!target.file.empty()) files.push_back(target.file);
    }
    all.push_back(fmt::format("{}", fmt::join(files, " ")));
  }
  return all;
}

// Its settings: one for each `forward` of the block, in the file's order.
class ForwardDirective final : public resolve::Configured<std::vector<Upstreams>>, public resolver::SettingsSource {
 public:
  Result<void> read(DirectiveCursor& cursor, const resolve::Block&) override {
    Lines lines;
    if (auto read = forwardOptions().read(cursor, lines); !read) return read;
    if (lines.has_expire && lines.options.max_age.count() > 0 && lines.options.expire > lines.options.max_age)
      return cursor.error("expire is longer than max_age");
    for (const resolver::UpstreamTarget& target : lines.options.to) {
      if (!target.server || target.server->server_name.empty() || lines.options.tls.server_name.empty()) continue;
      return cursor.error(fmt::format("both tls_servername and %{} name a server", target.server->server_name));
    }
    settings_.push_back(std::move(lines.options));
    return {};
  }
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override {
    process_ = &process;
    using resolver::KeptCaches;
    if (resolver::settingsOf(block).cache) process.state<KeptCaches>().announce(KeptCaches::keysOf(block));
    report_ = BlockReport::make(process);
    local_addresses_ = net::localAddresses();
    for (resolver::Forwarder::Options& options : settings_) {
      auto files = resolver::ForwardFiles::read(options, *process.executor);
      if (!files) return fail(fmt::format("plugin/forward: {}", files.error().message));
      options.files = std::move(*files);
    }
    return {};
  }
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override {
    const resolver::ResolverSettings settings = resolver::settingsOf(context.block);
    auto made = resolver::makeResolver(settings, chain, context);
    if (!made) return tl::unexpected(made.error());
    if (!settings.limits_clients) public_address_ = findPublic(context.listening, local_addresses_);
    const resolver::Cache* cache = made->resolver->cache();
    report_->add(made->name,
                 {.cache = cache != nullptr ? cache->counters() : std::weak_ptr<const resolver::CacheCounters>(),
                  .upstreams = made->resolver->reports(),
                  .files = filesOf(settings.forwards)});
    chain.parts.internal_queries = made->resolver.get();
    chain.parts.recursion_available = true;
    chain.add(std::move(made->resolver));
    return {};
  }
  // Warns of a public address at which everybody may ask, once a process.
  void start() override {
    if (public_address_) process_->state<OpenResolverWarning>().warn(*public_address_);
  }
  void fill(resolver::ResolverSettings& to) const override { to.forwards = settings_; }

 private:
  std::shared_ptr<BlockReport> report_;
  resolve::Process* process_ = nullptr;
  std::vector<SocketAddress> local_addresses_;
  std::optional<SocketAddress> public_address_;  // where everybody may ask
};

}  // namespace

extern const resolve::DirectiveType kForwardDirective{
    .name = "forward",
    .syntax =
        "forward FROM TO... [{ ... }], TO being IP[:port], HOST[:port], tls://IP, https://IP or a file like "
        "/etc/resolv.conf",
    .make = resolve::makeDirective<ForwardDirective>,
    .check_files = checkFiles,
    .defaults = [] { return forwardOptions().defaults(); }};

}  // namespace idetcd::directive
