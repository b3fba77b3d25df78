#include "naming/protocol.h"

namespace idetcd::naming {
namespace {

using runtime::Task;
using namespace std::chrono_literals;

}  // namespace

Protocol::Protocol(runtime::Scheduler& scheduler, store::Store& store, RandomSource& random,
                   records::RecordStore& records, Options options, const Logger& log)
    : scheduler_(scheduler),
      store_(store),
      options_(std::move(options)),
      counters_(options_.metrics),
      jitter_(random),
      lifetime_(scheduler),
      trouble_(log),
      round_trip_(options_.claim.lease, log),
      context_{scheduler, store, lifetime_, trouble_, counters_, random, jitter_, round_trip_, log},
      shared_address_(
          options_.claim.pattern, [this]() -> const NodeRecord& { return keeper_.record(); }, counters_, log),
      generation_(
          context_, options_.claim.pattern, records, [this] { return keeper_.heldId(); }, !options_.observe,
          [this] { changed(); }),
      confirmation_(context_, confirmationOptions()),
      names_(context_, namesOptions(), [&records] { return records.size(); }),
      mirror_(context_, mirrorOptions(), names_, records, own_key_, confirmation_),
      keeper_(context_, options_.claim, options_.exit_when_full, records, own_key_, confirmation_, options_.on_refused,
              [this] { changed(); }),
      relay_(context_, relayOptions(), [&records] { return records.size(); }),
      roster_(context_, options_.claim.pattern, times_, generation_, keeper_) {
  counters_.setWatch(false);
}

Confirmation::Options Protocol::confirmationOptions() const {
  Confirmation::Options made{
      .lease = options_.claim.lease, .beat_keys = {}, .watches_elsewhere = [this] { return names_.isRelayed(); }};
  for (const store::KeyRange& range : options_.watched) made.beat_keys.push_back(beatKey(range));
  return made;
}

Mirror::Options Protocol::mirrorOptions() {
  Mirror::Options made;
  made.stale_after = options_.claim.lease;
  made.reconcile_interval = options_.reconcile_interval;
  made.max_names = options_.max_names;
  made.limit = options_.claim.pattern.limit();
  made.ranges = options_.watched;
  made.times = &times_;
  made.generation = &generation_;
  if (!options_.observe) made.shared_address = &shared_address_;
  if (!options_.observe) made.most_at_once = options_.most_at_once;
  made.on_lost = [this] { relay_.forget(); };
  made.on_freshness = [this] { changed(); };
  return made;
}

RelayedNames::Options Protocol::namesOptions() const {
  return {.fan_out = options_.relay.connect ? options_.relay.fan_out : 0,
          .limit = options_.claim.pattern.limit(),
          .ranges = options_.watched,
          .prefix = relayPrefix(options_.claim.pattern.text()),
          .connect = options_.relay.connect};
}

Relay::Options Protocol::relayOptions() {
  return {.fan_out = options_.relay.serve && !options_.observe && names_.mayHaveRelays() ? options_.relay.fan_out : 0,
          .ranges = options_.watched,
          .prefix = relayPrefix(options_.claim.pattern.text()),
          .lease = std::chrono::ceil<std::chrono::seconds>(options_.claim.lease),
          .slot = [this] { return keeper_.heldId(); },
          .on_relay = [this](bool is_relay) { names_.setRelay(is_relay); },
          .addresses = [this] { return keeper_.addresses(); },
          .serve = options_.relay.serve};
}

void Protocol::changed() {
  if (options_.on_change) options_.on_change();
}

void Protocol::start(const std::shared_ptr<void>& owner) {
  const auto spawn = [this, &owner](Task<void> task) { return scheduler_.spawn(withOwner(owner, std::move(task))); };
  spawn(mirror_.run());
  spawn(mirror_.reconcileRegularly());
  spawn(mirror_.watchFreshness());
  if (store_.endpoints().size() != 1) spawn(returnHomeRegularly(scheduler_, lifetime_, jitter_, store_));
  spawn(confirmation_.run());
  spawn(generation_.keep());
  spawn(names_.lookRegularly());
  spawn(relay_.run(owner));
  if (!options_.observe) {
    spawn(keeper_.keepRecord());
    spawn(keeper_.keepReservation());
    spawn(keeper_.watchQueue());
    spawn(keeper_.endFormerLeases());
  }
  // Last: if the scheduler is being stopped, this one is refused and nothing will be released.
  if (!spawn(keepName()) && options_.on_released) options_.on_released();
}

void Protocol::stop() {
  lifetime_.stop();
  keeper_.stop();
  generation_.stop();
  relay_.stop();
  confirmation_.stop();
}

Task<void> Protocol::keepName() {
  if (!options_.observe) {
    auto keeping = keeper_.run();
    co_await keeping;
  }
  if (options_.on_released) options_.on_released();
}

}  // namespace idetcd::naming
