// The directive `etcd`: services that etcd has, as SkyDNS keeps them.
#include "config/option_table.h"
#include "control/control.h"
#include "directive/etcd/service_handler.h"
#include "directive/etcd/service_mirrors.h"
#include "directive/values/values.h"
#include "resolve/directive.h"

namespace idetcd::directive {

namespace {

// With a slash in front, and none at its end.
Result<void> readPath(config::DirectiveCursor& cursor, EtcdSettings& settings) {
  const auto word = cursor.oneArg();
  if (!word) return tl::unexpected(word.error());
  settings.path.clear();
  for (std::string_view rest = *word; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find('/'));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    if (!part.empty()) settings.path.append("/").append(part);
  }
  return {};
}

// Of earlier versions of CoreDNS, with any arguments.
Result<void> skipLine(config::DirectiveCursor& cursor, EtcdSettings&) {
  cursor.remainingArgs();
  return {};
}

Result<void> refuseStubzones(config::DirectiveCursor& cursor, EtcdSettings&) {
  return cursor.error("stubzones is not supported, nor is it by CoreDNS since 1.4; write: forward ZONE ADDRESS...");
}

const config::Options<EtcdSettings>& etcdOptions() {
  using namespace config;
  using Settings = EtcdSettings;
  using namespace std::chrono_literals;
  constexpr DurationRange kLeaseTtl{.least = 1s, .most = std::chrono::hours(24 * 365), .bare_seconds = true};
  static const Options<Settings> kOptions{
      zonesIfAny(&Settings::zones),
      {{"path", "path PATH", Field<Settings>(readPath).orElse("/skydns")},
       {"endpoint", "endpoint http://HOST:PORT...", Field<Settings>(readEndpoints).orElse("http://localhost:2379")},
       {"credentials", "credentials USER PASSWORD", readCredentials},
       {"tls", "tls [CERT KEY] [CA]", readTls},
       {"fallthrough", "fallthrough [ZONES...]", zonesOrAll(&Settings::fallthrough)},
       {"min-lease-ttl", "min-lease-ttl DURATION, like 30s", duration(&Settings::min_lease_ttl, kLeaseTtl)},
       {"max-lease-ttl", "max-lease-ttl DURATION, like 1h", duration(&Settings::max_lease_ttl, kLeaseTtl)},
       {"upstream", "upstream", skipLine},
       {"debug", "debug", skipLine},
       {"stubzones", "stubzones", refuseStubzones}}};
  return kOptions;
}

class EtcdDirective final : public resolve::Configured<EtcdSettings> {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override {
    settings_.zones = config::zonesOf(block.keys);
    if (auto read = etcdOptions().read(cursor, settings_); !read) return read;
    if (settings_.min_lease_ttl > settings_.max_lease_ttl)
      return cursor.error("min-lease-ttl is longer than max-lease-ttl");
    if (const auto valid = etcd::Client::validateOptions(settings_.etcdOptions()); !valid)
      return cursor.error(valid.error().message);
    return {};
  }

  Result<void> prepare(resolve::Process& process, const resolve::Block&) override {
    auto mirror = process.state<ServiceMirrors>().join(settings_);
    if (!mirror) return tl::unexpected(mirror.error());
    mirror_ = std::move(*mirror);
    process.state<control::Control>().addStatus("degraded", [mirror = mirror_] {
      nlohmann::json reasons = nlohmann::json::array();
      if (std::string reason = mirror->degraded(); !reason.empty()) reasons.push_back(std::move(reason));
      return reasons;
    });
    return {};
  }

  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override {
    const Values& values = valuesOf(context.block);
    chain.add(std::make_unique<ServiceHandler>(
        chain, chain.size(),
        ServiceHandler::Options{.services = mirror_->services(),
                                .zones = settings_.zones,
                                .fallthrough = settings_.fallthrough,
                                .rotates = values.loadbalance,
                                .preferred = values.preferred,
                                .hash_seed = context.process.hash_seed,
                                .directive = context.process.names.idOf("etcd"),
                                .nsid = chain.parts.nsid,
                                .limiter = chain.parts.limiter,
                                .log = chain.parts.log}));
    return {};
  }

  std::function<std::string()> readiness() const override {
    return [mirror = mirror_] { return mirror->missing(); };
  }

  void start() override { mirror_->start(); }

 private:
  std::shared_ptr<ServiceMirror> mirror_;
};

}  // namespace

extern const resolve::DirectiveType kEtcdDirective{.name = "etcd",
                                                   .syntax = "etcd [ZONES...] [{ ... }]",
                                                   .make = resolve::makeDirective<EtcdDirective>,
                                                   .check_files = checkEtcdTls,
                                                   .once = true,
                                                   .defaults = [] { return etcdOptions().defaults(); }};

}  // namespace idetcd::directive
