#include "directive/etcd/service_mirrors.h"

#include <fmt/ranges.h>

namespace idetcd::directive {

namespace {

metrics::Scope scopeOf(const EtcdSettings& settings, const resolve::Process& process) {
  return process.metrics.scope()
      .with("path", settings.path)
      .with("endpoints", fmt::format("{}", fmt::join(settings.endpoints, " ")));
}

skydns::Follower::Options followerOptions(const EtcdSettings& settings) {
  return {.path = settings.path,
          .min_lease_ttl = static_cast<uint32_t>(settings.min_lease_ttl.count()),
          .max_lease_ttl = static_cast<uint32_t>(settings.max_lease_ttl.count())};
}

etcd::Client::Options clientOptions(const EtcdSettings& settings, const resolve::Process& process) {
  etcd::Client::Options options = settings.etcdOptions();
  options.spread = true;
  options.executor = process.executor;
  return options;
}

// Surely of the same etcd, whatever the password.
bool hasSameKeys(const EtcdSettings& a, const EtcdSettings& b) {
  const auto isOfB = [&](const std::string& endpoint) {
    return std::ranges::find(b.endpoints, endpoint) != b.endpoints.end();
  };
  return a.path == b.path && std::ranges::any_of(a.endpoints, isOfB);
}

}  // namespace

// Lives as long as its tasks.
struct ServiceMirror::Source {
  Source(etcd::CompletionThread& thread, const EtcdSettings& settings, std::shared_ptr<skydns::ServiceSet> services,
         const resolve::Process& process, const Logger& log)
      : client(thread, clientOptions(settings, process), log),
        follower(thread, client, random, std::move(services), followerOptions(settings), log,
                 scopeOf(settings, process)) {}

  KernelRandom random;
  etcd::Client client;
  skydns::Follower follower;
};

ServiceMirror::ServiceMirror(std::shared_ptr<etcd::CompletionThread> thread, EtcdSettings settings,
                             const resolve::Process& process)
    : thread_(std::move(thread)),
      settings_(std::move(settings)),
      services_(std::make_shared<skydns::ServiceSet>(process.executor)),
      source_(std::make_shared<Source>(*thread_, settings_, services_, process, process.log.named("plugin/etcd"))) {}

ServiceMirror::~ServiceMirror() {
  thread_->post([source = std::move(source_)] { source->follower.stop(); });
}

void ServiceMirror::start() {
  std::call_once(started_, [this] { source_->follower.start(source_); });
}

std::string ServiceMirror::missing() const {
  return services_->table() ? "" : fmt::format("the services below {} have not been read", settings_.path);
}

std::string ServiceMirror::degraded() const {
  if (!services_->table()) return fmt::format("etcd: {}", missing());
  if (BootClock::now() > services_->freshUntil())
    return fmt::format("etcd: the services below {} are stale: etcd is away", settings_.path);
  if (services_->lacksServices())
    return fmt::format("etcd: there are too many services below {}: some are left out", settings_.path);
  return {};
}

Result<std::shared_ptr<ServiceMirror>> ServiceMirrors::join(const EtcdSettings& settings) {
  const std::lock_guard lock(mutex_);
  std::erase_if(mirrors_, [](const auto& mirror) { return mirror.expired(); });
  for (const auto& known : mirrors_) {
    if (auto mirror = known.lock(); mirror && mirror->settings().isSameMirror(settings)) return mirror;
  }
  if (!thread_) {
    auto thread = etcd::CompletionThread::make();
    if (!thread) return fail("plugin/etcd: " + thread.error().message);
    thread_ = std::move(*thread);
  }
  auto mirror = std::make_shared<ServiceMirror>(thread_, settings, process_);
  for (const auto& known : mirrors_) {
    const auto other = known.lock();
    const auto table = other && hasSameKeys(other->settings(), settings) ? other->services()->table() : nullptr;
    if (!table) continue;
    mirror->services()->publish(*table);  // not started yet, so that no one else publishes
    break;
  }
  mirrors_.push_back(mirror);
  return mirror;
}

void ServiceMirrors::stop() {
  const std::lock_guard lock(mutex_);
  if (thread_) thread_->stop();
}

}  // namespace idetcd::directive
