#include "naming/roster.h"

#include "naming/keyspace.h"
#include "runtime/scheduler.h"
#include "slots/slot_choice.h"

namespace idetcd::naming {

using runtime::Task;
using store::KeyValue;
using store::StoreResult;
using namespace std::chrono_literals;

// NameKeeper::kWithdrawal, and what the requests take.
constexpr std::chrono::milliseconds kUntilGivenUp = 1500ms;

namespace {

store::TxnRequest ifStill(const std::string& key, store::Compare::Target target, int64_t number, store::Op op) {
  store::TxnRequest request;
  request.compares.push_back({.key = key, .target = target, .number = number});
  request.success.push_back(std::move(op));
  return request;
}

}  // namespace

// How long each lease still lives. Shared with the tasks that ask.
struct RosterReader::Leases {
  explicit Leases(runtime::Scheduler& scheduler) : done(scheduler) {}

  std::map<int64_t, std::optional<std::chrono::seconds>> left;
  std::map<int64_t, std::optional<std::chrono::seconds>>::iterator next;
  size_t asking = 0;
  runtime::Event done;
};

RosterSlot RosterReader::slotOf(const KeyValue& kv, const Result<NodeRecord>& record, int64_t id) const {
  RosterSlot slot;
  slot.id = id;
  slot.name = kv.key;
  slot.permanent = kv.lease == 0;
  slot.revision = kv.mod_revision;
  if (record) {
    slot.addresses = {{record->ipv4, record->ipv6}, record->networks};
    slot.node = record->id;
    slot.place = record->place;
    const std::optional<Ownership> owned = own_.ownership();
    slot.own = owned && owned->name == kv.key && record->id == own_.record().id;
    slot.foreign = record->slot != 0 && id != 0 && record->slot != id;
    slot.drained = !slot.permanent && !record->id.empty() && !record->ipv4 && !record->ipv6;
  }
  const auto since = times_.timeOf(kv.create_revision);
  if (since) slot.age = context_.now() - *since;
  if (!since && times_.begin()) slot.age_at_least = context_.now() - *times_.begin();
  return slot;
}

// None: it is no slot's.
std::optional<RosterSlot> RosterReader::reservedSlot(const KeyValue& kv) const {
  const std::string_view name = reservedName(kv.key);
  const std::optional<int64_t> id = pattern_.recognise(name);
  if (!id) return std::nullopt;
  RosterSlot slot;
  slot.id = *id;
  slot.name = name;
  slot.node = kv.value;
  slot.permanent = kv.lease == 0;
  slot.reserved = true;
  slot.revision = kv.mod_revision;
  return slot;
}

RosterReader::Answer<RosterReader::Reading> RosterReader::readSlots() {
  Reading reading;
  std::vector<RosterSlot>& slots = reading.roster.slots;
  std::function<bool(std::vector<KeyValue> &&)> add = [&](std::vector<KeyValue>&& page) {
    for (const KeyValue& kv : page) {
      const std::optional<int64_t> id = pattern_.recognise(kv.key);
      if (!id) continue;
      const Result<NodeRecord> record = decodeRecord(kv.value);
      slots.push_back(slotOf(kv, record, *id));
      reading.leases.push_back(kv.lease);
      if (record) reading.members.emplace(*id, GenerationCount::memberOf(kv));
    }
    return true;
  };
  const store::RangeOptions options;
  store::KeyRange range = slotRange(pattern_);
  const StoreResult<int64_t> read =
      co_await store::rangePaginated(context_.store, std::move(range), options, 0, std::move(add));
  if (!read) co_return tl::unexpected(read.error());
  slots::SlotSet held;
  for (const RosterSlot& slot : slots) held.insert(slot.id);
  std::function<bool(std::vector<KeyValue> &&)> add_reserved = [&](std::vector<KeyValue>&& page) {
    for (const KeyValue& kv : page) {
      std::optional<RosterSlot> slot = reservedSlot(kv);
      if (!slot || held.contains(slot->id)) continue;
      slots.push_back(*std::move(slot));
      reading.leases.push_back(kv.lease);
    }
    return true;
  };
  const StoreResult<int64_t> waiting =
      co_await store::rangePaginated(context_.store, store::KeyRange::prefix(reservationKey(pattern_.literalPrefix())),
                                     {.revision = *read}, 0, std::move(add_reserved));
  if (!waiting) co_return tl::unexpected(waiting.error());
  co_return reading;
}

// The watch shows a moment later what is in the store already. False: it shows something else, or nothing is known.
Task<bool> RosterReader::awaitGeneration(Reading* reading) const {
  constexpr std::chrono::nanoseconds kUntilShown = 500ms;
  const BootClock::time_point until = context_.now() + kUntilShown;
  while (generation_.isKnown() && context_.now() < until && !context_.lifetime.stopping()) {
    reading->roster.generation = generation_.of(reading->members);
    if (reading->roster.generation) co_return true;
    co_await context_.lifetime.pause(10ms);
  }
  co_return false;
}

RosterReader::Answer<Roster> RosterReader::read(std::shared_ptr<void> owner) {
  StoreResult<Reading> reading = co_await readSlots();
  if (!reading) co_return tl::unexpected(reading.error());
  const bool has_generation = co_await awaitGeneration(&*reading);
  if (!has_generation && generation_.isKnown()) {  // the table has changed since
    StoreResult<Reading> again = co_await readSlots();
    if (again) {
      reading = std::move(again);
      co_await awaitGeneration(&*reading);
    }
  }
  std::vector<RosterSlot>& slots = reading->roster.slots;
  const std::vector<int64_t>& leases_of = reading->leases;
  const auto leases = std::make_shared<Leases>(context_.scheduler);
  for (const int64_t lease : leases_of) {
    if (lease != 0 && leases->left.size() < kMostLeases) leases->left.try_emplace(lease);
  }
  co_await askLeases(leases, std::move(owner));
  for (size_t i = 0; i < slots.size(); ++i) {
    if (const auto found = leases->left.find(leases_of[i]); found != leases->left.end()) {
      slots[i].lease_left = found->second;
    }
  }
  std::sort(slots.begin(), slots.end(), [](const RosterSlot& a, const RosterSlot& b) { return a.id < b.id; });
  co_return std::move(reading->roster);
}

RosterReader::Answer<std::optional<RosterSlot>> RosterReader::readSlot(std::string name, std::shared_ptr<void> owner) {
  const store::KeyRange range = store::KeyRange::single(std::move(name));
  const StoreResult<store::RangeResult> found = co_await context_.store.range(range, {});
  if (!found) co_return tl::unexpected(found.error());
  if (found->kvs.empty()) {
    const StoreResult<store::RangeResult> reserved =
        co_await context_.store.range(store::KeyRange::single(reservationKey(range.begin)), {});
    if (!reserved) co_return tl::unexpected(reserved.error());
    if (reserved->kvs.empty()) co_return std::nullopt;
    co_return reservedSlot(reserved->kvs.front());
  }
  const KeyValue& kv = found->kvs.front();
  RosterSlot slot = slotOf(kv, decodeRecord(kv.value), pattern_.recognise(kv.key).value_or(0));
  if (slot.permanent) co_return slot;
  const auto leases = std::make_shared<Leases>(context_.scheduler);
  leases->left.try_emplace(kv.lease);
  co_await askLeases(leases, std::move(owner));
  slot.lease_left = leases->left[kv.lease];
  co_return slot;
}

RosterReader::Answer<bool> RosterReader::release(std::string name, int64_t revision) {
  using Target = store::Compare::Target;
  StoreResult<store::RangeResult> found = co_await context_.store.range(store::KeyRange::single(name), {});
  if (!found) co_return tl::unexpected(found.error());
  if (found->kvs.empty()) {
    const StoreResult<bool> released = co_await releaseReserved(std::move(name), revision);
    co_return released;
  }
  if (found->kvs.front().mod_revision != revision) co_return false;
  const KeyValue held = std::move(found->kvs.front());
  const std::string value = encodeRecord({.ipv4 = {}, .ipv6 = {}, .port = {}, .id = std::string(kReleased)});
  store::TxnRequest tell = ifStill(name, Target::kModRevision, revision, store::PutOp{name, value, held.lease});
  tell.success.emplace_back(store::DeleteOp{store::KeyRange::single(reservationKey(name))});
  const StoreResult<store::TxnResult> told = co_await context_.store.txn(std::move(tell));
  if (!told) co_return tl::unexpected(told.error());
  if (!told->succeeded) co_return false;

  const Result<NodeRecord> record = decodeRecord(held.value);
  const bool of_node = held.lease != 0 && record && !record->id.empty();
  const BootClock::time_point until = context_.now() + (of_node ? kUntilGivenUp : 0ms);
  while (context_.now() < until && !context_.lifetime.stopping()) {
    co_await context_.lifetime.pause(50ms);
    found = co_await context_.store.range(store::KeyRange::single(name), {.keys_only = true});
    if (!found) co_return tl::unexpected(found.error());
    if (found->kvs.empty()) co_return true;
  }
  // Not the key of whoever has claimed the name since.
  store::TxnRequest erase =
      ifStill(name, Target::kCreateRevision, held.create_revision, store::DeleteOp{store::KeyRange::single(name)});
  const StoreResult<store::TxnResult> deleted = co_await context_.store.txn(std::move(erase));
  if (!deleted) co_return tl::unexpected(deleted.error());
  co_return true;
}

RosterReader::Answer<bool> RosterReader::releaseReserved(std::string name, int64_t revision) {
  const std::string key = reservationKey(name);
  store::TxnRequest request = ifStill(key, store::Compare::Target::kModRevision, revision,
                                      store::DeleteOp{store::KeyRange::single(key)});
  const StoreResult<store::TxnResult> deleted = co_await context_.store.txn(std::move(request));
  if (!deleted) co_return tl::unexpected(deleted.error());
  co_return deleted->succeeded;
}

// Until all are answered, or cannot be.
Task<void> RosterReader::askLeases(std::shared_ptr<Leases> leases, std::shared_ptr<void> owner) {
  constexpr std::chrono::hours kUntilAnswered{1};  // each request has a time-out of its own
  leases->next = leases->left.begin();
  const size_t tasks = std::min(kAtOnce, leases->left.size());
  leases->asking = tasks;
  for (size_t i = 0; i < tasks; ++i) {
    if (context_.scheduler.spawn(askSome(leases, owner))) continue;
    if (--leases->asking == 0) leases->done.set();
  }
  if (tasks > 0) co_await leases->done.wait(kUntilAnswered);
}

Task<void> RosterReader::askSome(std::shared_ptr<Leases> leases, [[maybe_unused]] std::shared_ptr<void> owner) {
  while (leases->next != leases->left.end() && !context_.scheduler.stopping()) {
    auto& [lease, left] = *leases->next++;
    const StoreResult<std::chrono::seconds> answer = co_await context_.store.leaseTimeToLive(lease);
    if (answer) left = *answer;
    if (!answer && answer.error().code == ErrorCode::kLeaseNotFound) left = std::chrono::seconds(0);
  }
  if (--leases->asking == 0) leases->done.set();
}

}  // namespace idetcd::naming
