#include "resolver/make_resolver.h"

#include "config/directive_cursor.h"
#include "node/state_directory.h"
#include "resolve/query_meter.h"
#include "resolver/kept_caches.h"
#include "resolver/loop_probe.h"
#include "resolver/upstream_budget.h"

namespace idetcd::resolver {

namespace {

// Where a block listens on several addresses its cache is one, which has the name of the first.
metrics::Scope cacheScope(const resolve::LoopContext& context, const std::vector<dns::Name>& zones) {
  std::string joined;
  for (const dns::Name& zone : zones) joined += (joined.empty() ? "" : ",") + zone.toString();
  std::string server;
  if (!context.listening.empty()) {
    const SocketAddress& first = context.listening.front();
    server = resolve::serverLabel(first, context.block.schemeOn(first.port));
  }
  return context.process.metrics.scope().with("server", server).with("zones", joined).with("view", "");
}

// The forwarders of one loop share this: it lives as long as any of them, those that a reload replaces included.
class UpstreamBudgets final : public resolve::ProcessState {
 public:
  explicit UpstreamBudgets(resolve::Process& process) : process_(process) {}

  Result<std::shared_ptr<UpstreamBudget>> of(size_t worker, net::EventLoop& loop) {
    if (auto room = rooms_[worker].lock()) return room;
    auto room = UpstreamBudget::make(loop, process_.descriptors->account(worker));
    if (room) rooms_[worker] = *room;
    return room;
  }

 private:
  resolve::Process& process_;
  std::map<size_t, std::weak_ptr<UpstreamBudget>> rooms_;  // by worker
};

// The files are told apart by the block's name and the worker.
std::shared_ptr<CacheSaver> makeSaver(const ResolverSettings& settings, const KeptCaches::Found& found,
                                      const KeptCaches::Block& block, const resolve::LoopContext& context) {
  constexpr size_t kMaxBytesEach = 2048;  // more than the cache has, on average, and what a file adds
  const CacheSettings& cache = *settings.cache;
  const size_t answers = cache.options.success.capacity + cache.options.denial.capacity + 1;
  return CacheSaver::make(
      {.file = fmt::format("{}/cache-{}-{}", cache.directory, node::fileStem(block.name), context.worker),
       .rules = block.rules + KeptCaches::serversOf(settings),
       .seed = context.process.hash_seed,
       .loads = found.is_new,
       .max_bytes = answers * kMaxBytesEach},
      found.cache, context.loop, context.process);
}

// The cache of the block, and in `options` what is said of it.
std::shared_ptr<Cache> useCache(const ResolverSettings& settings, const KeptCaches::Block& block,
                                const resolve::LoopContext& context, ForwardingResolver::Options& options) {
  const CacheSettings& cache = *settings.cache;
  options.cache_zones = cache.zones;
  options.verify_stale = cache.verify_stale;
  options.verify_time = std::min(cache.verify_time, Forwarder::kTotalTime);  // later the upstream has failed
  options.stale_ttl = cache.stale_ttl;
  auto& caches = context.process.state<KeptCaches>();
  const auto found = caches.of(block, context.worker, context.loop, cache.options, cacheScope(context, cache.zones));
  if (!cache.directory.empty()) options.saver = makeSaver(settings, found, block, context);
  options.user = std::make_shared<LiveCaches::User>(caches.live(), found.cache, options.saver, context.loop);
  return found.cache;
}

Result<std::vector<std::unique_ptr<Forwarder>>> makeForwarders(const ResolverSettings& settings,
                                                               const resolve::LoopContext& context) {
  auto room = context.process.state<UpstreamBudgets>().of(context.worker, context.loop);
  if (!room) return fail(fmt::format("plugin/forward: {}", room.error().message));
  std::shared_ptr<ZoneLimiter> limiter;
  if (settings.zone_limit) {
    limiter =
        std::make_shared<ZoneLimiter>(*settings.zone_limit, context.process.hash_seed, context.process.metrics.scope());
  }
  std::vector<std::unique_ptr<Forwarder>> forwarders;
  const std::vector<dns::Name> zones = config::zonesOf(context.block.keys);
  for (Forwarder::Options options : settings.forwards) {
    options.own.assign(context.listening.begin(), context.listening.end());
    options.named = settings.own_names;
    options.named.insert(options.named.end(), zones.begin(), zones.end());
    options.room = *room;
    options.zones = limiter;
    options.udp_payload = settings.udp_payload;
    options.cookies = settings.cookies;
    options.metrics = context.process.metrics.scope();
    auto forwarder = Forwarder::make(context.loop, std::move(options), context.process.log.named("plugin/forward"));
    if (!forwarder) return fail(fmt::format("plugin/forward: {}", forwarder.error().message));
    // No probe is needed where there is no server to ask but ourselves.
    if (const auto ourselves = (*forwarder)->ourselves();
        settings.detects_loops && !ourselves.empty() && (*forwarder)->upstreams().empty()) {
      return fail("plugin/loop: " + LoopProbe::describe(ourselves.front().address, zones.front()));
    }
    forwarders.push_back(std::move(*forwarder));
  }
  return forwarders;
}

}  // namespace

Result<MadeResolver> makeResolver(const ResolverSettings& settings, const resolve::Chain& chain,
                                  const resolve::LoopContext& context) {
  const resolve::Chain::Parts& parts = chain.parts;
  auto forwarders = makeForwarders(settings, context);
  if (!forwarders) return tl::unexpected(forwarders.error());
  ForwardingResolver::Options options{.cancel_time = settings.cancel_time,
                                      .minimal = settings.minimal,
                                      .loadbalance = settings.loadbalance,
                                      .preferred_networks = settings.preferred_networks,
                                      .directive = context.process.names.idOf("forward"),
                                      .cache_directive = context.process.names.idOf("cache"),
                                      .own_names = settings.own_names,
                                      .nsid = parts.nsid,
                                      .limiter = parts.limiter,
                                      .log = parts.log,
                                      .errors = parts.errors,
                                      .chain = &chain,
                                      .epochs = &context.process.epochs,
                                      .hash_seed = context.process.hash_seed};
  std::string name = KeptCaches::keysOf(context.block);
  if (settings.withheld) {
    options.rebinding = std::make_shared<RebindingFilter>(settings.address_rules, parts.errors,
                                                          context.process.metrics.scope().with("block", name));
  }
  std::shared_ptr<Cache> cache;
  if (settings.cache) {
    name = context.process.state<KeptCaches>().nameOf(name, settings.listen);
    cache = useCache(settings, {.name = name, .rules = KeptCaches::rulesOf(settings)}, context,
                     options);
  }
  return MadeResolver{
      std::make_unique<ForwardingResolver>(context.loop, std::move(options), std::move(cache), std::move(*forwarders)),
      std::move(name)};
}

}  // namespace idetcd::resolver
