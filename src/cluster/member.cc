#include "cluster/member.h"

#include <algorithm>
#include <cassert>
#include <future>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "cluster/context.h"
#include "cluster/mirror.h"
#include "cluster/own_key.h"
#include "cluster/uuid.h"
#include "etcd/client.h"

namespace idetcd::cluster {

struct Member::Impl {
  Impl(etcd::CompletionThread& completion_thread, records::RecordStore& record_store, Options member_options,
       Logger logger, std::function<void(std::string)> on_fatal);

  Claim::Options claimOptions() const;
  Mirror::Options mirrorOptions();
  // What may be said about the own name now. Any thread.
  std::optional<Ownership> ownership() const;
  void reportOwnership();
  etcd::Task<void> watchDeadline();

  etcd::CompletionThread& thread;
  records::RecordStore& store;
  const Options options;

  Counters counters;
  Jitter jitter;
  etcd::Client client;
  Lifetime lifetime;
  EtcdTrouble trouble;
  Context context;
  OwnKey own_key;
  Mirror mirror;
  NameKeeper keeper;
  std::optional<Ownership> reported;  // completion thread only

  std::atomic<bool> started{false};
  std::once_flag stop_once;
  std::promise<void> quiet;     // nothing is published and no callback is called any more
  std::promise<void> released;  // the keeper holds nothing any more
  const std::shared_future<void> is_quiet = quiet.get_future().share();
  const std::shared_future<void> is_released = released.get_future().share();
};

namespace {

Member::Options withUuid(Member::Options options) {
  if (options.uuid.empty()) options.uuid = randomUuid();
  return options;
}

etcd::Client::Options clientOptions(const Member::Options& options) {
  etcd::Client::Options client;
  client.endpoints = options.endpoints;
  client.tls = options.tls;
  client.credentials = options.credentials;
  return client;
}

}  // namespace

Member::Impl::Impl(etcd::CompletionThread& completion_thread, records::RecordStore& record_store,
                   Options member_options, Logger logger, std::function<void(std::string)> on_fatal)
    : thread(completion_thread),
      store(record_store),
      options(withUuid(std::move(member_options))),
      client(thread, clientOptions(options), logger),
      lifetime(thread),
      trouble(logger),
      context{thread, client, lifetime, trouble, counters, jitter, logger},
      mirror(context, mirrorOptions(), store, own_key),
      keeper(context, claimOptions(), own_key, std::move(on_fatal), [this] { reportOwnership(); }) {}

Claim::Options Member::Impl::claimOptions() const {
  NodeRecord record;
  record.ipv4 = options.addresses.ipv4;
  record.ipv6 = options.addresses.ipv6;
  record.port = fmt::format("{}", options.dns_port);
  record.id = options.uuid;
  return {.pattern = options.pattern, .limit = options.limit, .lease = options.lease, .record = std::move(record)};
}

Mirror::Options Member::Impl::mirrorOptions() {
  Mirror::Options mirror_options;
  mirror_options.stale_after = options.lease;
  mirror_options.repair_interval = options.repair_interval;
  mirror_options.on_freshness = [this] { reportOwnership(); };
  return mirror_options;
}

// A watch that has fallen silent no longer shows whether the key is still ours, though the lease may live.
std::optional<Ownership> Member::Impl::ownership() const {
  if (store.freshness() != records::Freshness::kFresh) return std::nullopt;
  return keeper.ownership();
}

// Tells what changed since the last report. An ownership that ended unseen, since this process stood still, is told to
// have ended even if it was renewed meanwhile.
void Member::Impl::reportOwnership() {
  const std::optional<Ownership> now = ownership();
  const bool lasts = now && reported && reported->deadline > BootClock::now() && reported->token == now->token &&
                     reported->name == now->name;
  if (reported && !lasts) {
    reported.reset();
    if (options.on_ownership) options.on_ownership(std::nullopt);
  }
  const bool begins = now && !reported;
  reported = now;
  if (begins && options.on_ownership) options.on_ownership(now);
}

// A timer sleeps while the machine is suspended, the deadline does not: so no sleep is long.
etcd::Task<void> Member::Impl::watchDeadline() {
  constexpr std::chrono::nanoseconds kLongest = std::chrono::seconds(1);
  while (true) {
    reportOwnership();
    std::chrono::nanoseconds delay = kLongest;
    if (reported) delay = std::min(delay, reported->deadline - BootClock::now());
    const bool go_on = co_await lifetime.pause(delay);
    if (!go_on) co_return;
  }
}

Member::Member(etcd::CompletionThread& thread, records::RecordStore& store, Options options, Logger log,
               std::function<void(std::string)> on_fatal)
    : impl_(std::make_shared<Impl>(thread, store, std::move(options), std::move(log), std::move(on_fatal))) {}

Member::~Member() { stop(std::chrono::milliseconds(0)); }

namespace {

// Each task keeps what it works on alive. Parameters, not captures: a lambda's captures would die before the coroutine.
template <typename Impl>
etcd::Task<void> runMirror(std::shared_ptr<Impl> impl) {
  co_await impl->mirror.run();
}
template <typename Impl>
etcd::Task<void> runRepairs(std::shared_ptr<Impl> impl) {
  co_await impl->mirror.repairRegularly();
}
template <typename Impl>
etcd::Task<void> runFreshness(std::shared_ptr<Impl> impl) {
  co_await impl->mirror.watchFreshness();
}
template <typename Impl>
etcd::Task<void> runDeadline(std::shared_ptr<Impl> impl) {
  co_await impl->watchDeadline();
}
template <typename Impl>
etcd::Task<void> runKeeper(std::shared_ptr<Impl> impl) {
  if (!impl->options.observe) co_await impl->keeper.run();
  impl->released.set_value();
}

}  // namespace

void Member::start() {
  const bool first = !impl_->started.exchange(true);
  assert(first);
  if (!first) return;
  impl_->thread.spawn(runMirror(impl_));
  impl_->thread.spawn(runRepairs(impl_));
  impl_->thread.spawn(runFreshness(impl_));
  if (impl_->options.on_ownership) impl_->thread.spawn(runDeadline(impl_));
  // Last: if the thread is being stopped, this one is refused and nothing will be released.
  if (!impl_->thread.spawn(runKeeper(impl_))) impl_->released.set_value();
}

void Member::stop(std::chrono::milliseconds budget) {
  assert(!impl_->thread.onCompletionThread());
  if (!impl_->started) return;
  std::call_once(impl_->stop_once, [this] {
    const bool accepted = impl_->thread.post([impl = impl_] {
      impl->lifetime.stop();
      impl->keeper.stop();
      impl->quiet.set_value();
    });
    // Refused: the thread is at its end, and every task with it, or it will be when thread.stop() returns.
    if (!accepted) impl_->quiet.set_value();
  });
  impl_->is_quiet.wait();
  impl_->is_released.wait_for(budget);
}

std::optional<Ownership> Member::ownership() const { return impl_->ownership(); }

bool Member::ready() const {
  if (impl_->store.freshness() == records::Freshness::kLoading) return false;
  return impl_->options.observe || ownership().has_value();
}

const Counters& Member::counters() const { return impl_->counters; }

etcd::Client::Statistics Member::etcdStatistics() const { return impl_->client.statistics(); }
const std::string& Member::uuid() const { return impl_->options.uuid; }

}  // namespace idetcd::cluster
