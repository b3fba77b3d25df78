#include "simulation/process.h"

#include <algorithm>

#include "naming/saved_names.h"

namespace idetcd::simulation {
namespace {

// The process lives as long as its tasks. Parameters, not captures: a lambda's captures would die before the coroutine.
runtime::Task<void> keepAlive([[maybe_unused]] std::shared_ptr<Process> process, runtime::Task<void> task) {
  co_await task;
}

records::RecordStore::Options recordOptions(const slots::NamePattern& pattern) {
  records::RecordStore::Options made;
  made.zone = pattern.zone();
  return made;
}

}  // namespace

Process::Process(VirtualTime& time, const SimulatedClock& clock, Network& network, Options options)
    : options_(std::move(options)),
      random_(options_.seed),
      records_(epochs_, recordOptions(options_.protocol.claim.pattern)),
      scheduler_(time, clock, [this] { options_.after_turn(*this); }),
      store_(scheduler_, network, options_.store),
      protocol_(scheduler_, store_, random_, records_, protocolOptions(), options_.log),
      reporter_(scheduler_, protocol_.lifetime(), protocol_.name(),
                {.claimed = [this](const naming::Ownership& owned) { options_.on_claimed(*this, owned); },
                 .lost = [this] { options_.on_lost(*this); }}) {
  protocol_.sawToken(options_.seen_token);
  if (options_.preferred_slot > 0) protocol_.prefer(options_.preferred_slot);
}

Process::~Process() = default;

naming::Protocol::Options Process::protocolOptions() {
  naming::Protocol::Options made = options_.protocol;
  made.on_change = [this] { reporter_.report(); };
  made.on_released = [this] {
    if (protocol_.stopping() && !scheduler_.stopping()) options_.on_released(*this);
  };
  return made;
}

void Process::start() {
  scheduler_.deliver([this] {
    protocol_.start(shared_from_this());
    scheduler_.spawn(keepAlive(shared_from_this(), reporter_.watchDeadline()));
  });
}

// Where there are relays, not all is of the mirror that the store's watches have delivered: a relay's copy of the names has
// a watch of its own; and not all that the mirror has seen is the store's. So its table says it.
int64_t Process::highestSeen() const {
  if (options_.protocol.relay.fan_out == 0) return store_.highestSeen();
  int64_t highest = 0;
  naming::forEachName(records_, [&](const naming::SavedName& name) { highest = std::max(highest, name.mod_revision); });
  return highest;
}

void Process::terminate() {
  scheduler_.deliver([this] {
    protocol_.stop();
    reporter_.report();
  });
}

}  // namespace idetcd::simulation
