#include "simulation/judge.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "naming/keyspace.h"
#include "naming/record_codec.h"

namespace idetcd::simulation {
namespace {

using naming::NodeRecord;
using naming::Ownership;
using store::KeyRange;
using store::KeyValue;
using store::WatchEvent;
using namespace std::chrono_literals;

constexpr std::chrono::seconds kLongLease{20};

std::string textOf(const NodeRecord& record) {
  std::string text;
  for (const auto& address : {record.ipv4, record.ipv6}) {
    if (address) text += (text.empty() ? "" : " ") + address->toString();
  }
  return text.empty() ? "no data" : text;
}

bool isPut(const WatchEvent& event) { return event.type == WatchEvent::Type::kPut; }

}  // namespace

Judge::Judge(const VirtualTime& time, const EtcdModel& model, slots::NamePattern pattern, store::KeyRange watched,
             std::chrono::seconds lease, std::chrono::seconds hold)
    : time_(time),
      model_(model),
      pattern_(std::move(pattern)),
      queue_(naming::queuePrefix(pattern_.text())),
      watched_(std::move(watched)),
      lease_(lease),
      hold_(hold) {}

void Judge::violated(std::string property, std::string text, std::vector<size_t> machines) {
  if (!violation_) violation_ = Violation{std::move(property), std::move(text), std::move(machines)};
}

std::string Judge::describe(const Witness& witness) const {
  const Ownership& owned = *witness.owned;
  return fmt::format("node {} (process {}) says that it owns {}, token {}, claimed at revision {}, lease {:x}",
                     witness.process->machine(), witness.process->id(), owned.name, owned.token, owned.revision,
                     owned.lease);
}

// What the names of a process show of this key; none: they leave it out.
std::optional<NodeRecord> Judge::recordOf(const KeyValue& kv) const {
  if (!contains(watched_, kv.key) || !naming::decodeKey(kv.key)) return std::nullopt;
  const Result<NodeRecord> record = naming::decodeRecord(kv.value);
  return record ? std::optional(*record) : std::nullopt;
}

// --- what happens ---

void Judge::began(Process& process, uint64_t family) {
  for (const auto& [id, other] : witnesses_) {
    if (other.process->uuid() == process.uuid()) shared_.insert(process.uuid());
  }
  Witness& witness = witnesses_[process.id()];
  witness.process = &process;
  witness.family = family;
}

void Judge::ended(const Process& process) {
  const auto found = witnesses_.find(process.id());
  if (found == witnesses_.end()) return;
  if (found->second.owned) claimants_[found->second.owned->id].erase(process.id());
  witnesses_.erase(found);
  somebody_ended_ = true;
}

std::optional<Ownership> Judge::owned(const Witness& witness) const {
  if (witness.process->scheduler().isStanding()) return std::nullopt;
  return witness.process->ownership();
}

void Judge::look(Process& process) {
  const auto found = witnesses_.find(process.id());
  if (found == witnesses_.end()) return;
  Witness& witness = found->second;
  noteStaleReads(witness);
  judgeClaim(witness);
  std::optional<Ownership> now = process.ownership();
  const bool same = now && witness.owned && now->id == witness.owned->id && now->revision == witness.owned->revision &&
                    now->lease == witness.owned->lease;
  if (witness.owned && !(now && now->id == witness.owned->id)) claimants_[witness.owned->id].erase(process.id());
  witness.owned = std::move(now);
  if (!witness.owned) return;
  claimants_[witness.owned->id].insert(process.id());
  if (process.reserves()) last_owners_[witness.owned->id] = {process.uuid(), time_.now()};
  if (!same) witness.history = historyOf(witness);
  // From now on the original finds another incarnation, when it looks.
  if (const auto original = witnesses_.find(std::exchange(witness.unaware_original, 0)); original != witnesses_.end())
    original->second.excused_until = witness.excused_until = time_.now() + lease_;
  judgeOwner(witness);
  judgeTwo(witness);
  judgeToken(witness);
}

void Judge::lookAtAll() {
  // What was in the store a lease ago, but for a twentieth by which the clock may go wrong, must show. A store that was
  // set back and has come as far again is found out by a comparison, some seconds after a new watch.
  std::vector<Change> changes;
  if (history_ == 0 || time_.now() >= set_back_at_ + 3 * lease_ + 10s)
    changes = changesUntil(time_.now() - lease_ - Duration(lease_) / 20);
  for (auto& [id, witness] : witnesses_) {
    if (witness.process->scheduler().isStanding()) {
      witness.spoke_of_lease_at = time_.now();
      continue;
    }
    look(*witness.process);
    if (!witness.fresh_since && witness.process->isFresh()) witness.fresh_since = time_.now();
    judgeFreshness(witness, changes);
  }
}

void Judge::reportedClaim(const Process& process, const Ownership& owned) {
  const auto found = witnesses_.find(process.id());
  if (found == witnesses_.end()) return;
  std::optional<Ownership>& reported = found->second.reported;
  if (reported) {
    violated("turns",
             fmt::format("node {} reports the claim of {} without the loss of {} before it", process.machine(),
                         owned.name, reported->name),
             {process.machine()});
  }
  reported = owned;
}

void Judge::reportedLoss(const Process& process) {
  const auto found = witnesses_.find(process.id());
  if (found == witnesses_.end()) return;
  if (!found->second.reported) {
    violated("turns", fmt::format("node {} reports a loss and has no name", process.machine()), {process.machine()});
  }
  found->second.reported.reset();
}

void Judge::sent(uint64_t process, const Request& request) {
  const auto found = witnesses_.find(process);
  if (found == witnesses_.end()) return;  // a twin
  Witness& witness = found->second;
  if (const auto* txn = std::get_if<store::TxnRequest>(&request)) {
    std::vector<store::Op> ops = txn->success;
    ops.insert(ops.end(), txn->failure.begin(), txn->failure.end());
    for (const store::Op& op : ops) {
      const auto* put = std::get_if<store::PutOp>(&op);
      if (put == nullptr) continue;
      const auto slot = pattern_.recognise(put->key);
      if (slot) witness.tried = Try{*slot, put->lease, time_.now(), std::nullopt};
      if (slot) witness.lease = 0;
      if (put->key.starts_with(queue_)) {
        users_[nodeOf(put->key)].insert(process);
        witness.lease = put->lease;
        witness.spoke_of_lease_at = time_.now();
      }
    }
  } else if (const auto* read = std::get_if<RangeRequest>(&request)) {
    if (witness.tried && read->range.begin == keyOf(witness.tried->slot)) witness.tried->looked_at = time_.now();
  } else if (const auto* revocation = std::get_if<LeaseRevokeRequest>(&request)) {
    judgeKept(witness, revocation->id);
    revokers_[revocation->id] = witness.process->machine();
    witness.lease = 0;
  } else if (const auto* renewal = std::get_if<LeaseKeepAliveRequest>(&request)) {
    if (renewal->id == witness.lease) witness.spoke_of_lease_at = time_.now();
  }
}

std::string Judge::nodeOf(const std::string& ticket) const { return ticket.substr(ticket.rfind('/') + 1); }

int64_t Judge::limitOf(const std::string& ticket) const {
  return naming::limitOf(ticket, queue_).value_or(pattern_.limit());
}

void Judge::storeChanged() {
  const std::vector<WatchEvent>& history = model_.history();
  std::set<int64_t> changed;
  while (judged_ < history.size()) {
    const size_t first = judged_;
    const int64_t revision = history[first].kv.mod_revision;
    while (judged_ < history.size() && history[judged_].kv.mod_revision == revision) ++judged_;
    judgeQueue(history, first, judged_);
    for (size_t i = first; i < judged_; ++i) {
      judgeTicket(history[i]);
      const std::optional<int64_t> slot = pattern_.recognise(history[i].kv.key);
      if (!slot) continue;
      changed.insert(*slot);
      noteChange(history[i], *slot);
      noteNames(history[i], *slot);
      somebody_ended_ = somebody_ended_ || !isPut(history[i]);
    }
  }
  revisions_.emplace_back(time_.now(), model_.revision());
  for (const int64_t slot : changed) {
    for (const uint64_t id : std::set<uint64_t>(claimants_[slot])) {
      const Witness& witness = witnesses_.at(id);
      if (!witness.process->scheduler().isStanding()) look(*witness.process);
    }
  }
}

// --- what is excused ---

void Judge::operatorTouches(const std::string& key) {
  if (const auto slot = pattern_.recognise(key)) {
    touched_[*slot] = {time_.now(), model_.revision()};
    released_[*slot] = time_.now();
  }
  somebody_ended_ = true;
}

void Judge::operatorDeletesInternal(const std::string& key) {
  // By this key alone a copy and its original learn of each other.
  std::vector<Witness*> users;
  for (auto& [id, witness] : witnesses_) {
    if (key == naming::incarnationKey(witness.process->uuid())) users.push_back(&witness);
  }
  incarnations_deleted_[key] = time_.now();
  if (key.starts_with(naming::kReservationPrefix)) {
    if (const auto slot = pattern_.recognise(naming::reservedName(key)))
      released_[*slot] = time_.now();
  }
  for (Witness* const user : users) {
    if (users.size() > 1) user->excused_until = time_.now() + lease_;
  }
}

void Judge::storeWasSetBack() {
  ++history_;
  set_back_at_ = time_.now();
  somebody_ended_ = true;
  judged_ = model_.history().size();
  revisions_.clear();
  names_.clear();
  const auto stored = model_.range(KeyRange::prefix(pattern_.literalPrefix()), {});
  for (const KeyValue& kv : stored->kvs) {
    const auto slot = pattern_.recognise(kv.key);
    const Result<NodeRecord> record = naming::decodeRecord(kv.value);
    if (slot) names_[*slot] = record ? record->id : std::string();
  }
  for (auto& [id, witness] : witnesses_) {
    if (!witness.process->scheduler().isStanding())
      witness.seen_when_set_back[history_ - 1] = witness.process->highestSeen();
  }
}

void Judge::readsAreStale(size_t member, bool on) {
  if (on) {
    stale_members_.insert(member);
    reads_were_stale_ = true;
  } else {
    stale_members_.erase(member);
  }
}

void Judge::leaseIsLost(int64_t lease) { lost_leases_[lease] = time_.now(); }

// What others would have shown it counts for a lease time, and is found out that much later.
void Judge::noteStaleReads(Witness& witness) {
  if (!stale_members_.contains(witness.process->store().currentMember())) return;
  const Time until = time_.now() + lease_ + Duration(lease_) / 20;
  if (witness.excused_until > time_.now()) witness.excused_until = until;
  witness.reads_stale_until = until;
}

void Judge::copied(const Process& original, const Process& copy, bool original_is_aware) {
  Witness& first = witnesses_.at(original.id());
  Witness& second = witnesses_.at(copy.id());
  // It has seen nothing since the snapshot, also where its original has gone on until the store was set back.
  for (const auto& [history, revision] : first.seen_when_set_back)
    second.seen_when_set_back[history] = std::min(revision, copy.highestSeen());
  const auto deleted = incarnations_deleted_.find(naming::incarnationKey(copy.uuid()));
  if (deleted != incarnations_deleted_.end() && time_.now() < deleted->second + lease_)
    first.excused_until = second.excused_until = time_.now() + lease_;
  if (original_is_aware) return;
  second.unaware_original = original.id();
}

void Judge::machineStoodStill(const Process& process, Duration duration) {
  const auto found = witnesses_.find(process.id());
  if (found == witnesses_.end()) return;
  found->second.freshness_excused_until = time_.now() + 2 * lease_;
  found->second.stood_still += duration;
}

bool Judge::isExcused(const Witness& witness) const {
  const Time now = time_.now();
  const Duration a_lease = lease_ + Duration(lease_) / 20 + witness.stood_still;  // by a clock that may go wrong
  if (now < witness.excused_until) return true;
  if (witness.history < history_ && now < set_back_at_ + a_lease) return true;
  const auto lost = lost_leases_.find(witness.owned->lease);
  if (lost != lost_leases_.end() && now < std::max(lost->second + a_lease, witness.reads_stale_until)) return true;
  const auto touched = touched_.find(witness.owned->id);
  return touched != touched_.end() && witness.owned->revision <= touched->second.revision &&
         now < std::max(touched->second.at + a_lease, witness.reads_stale_until);
}

// --- properties ---

bool Judge::isInStore(const Witness& witness) const {
  const auto found = model_.range(KeyRange::single(keyOf(witness.owned->id)), {});
  if (!found || found->kvs.empty()) return false;
  const Result<NodeRecord> record = naming::decodeRecord(found->kvs.front().value);
  return found->kvs.front().lease == witness.owned->lease && record && record->id == witness.process->uuid();
}

// A claim that is first seen after the store was set back, and is not in it, is of the store before.
uint64_t Judge::historyOf(const Witness& witness) const {
  return history_ > 0 && !isInStore(witness) ? history_ - 1 : history_;
}

void Judge::judgeOwner(const Witness& witness) {
  if (isExcused(witness) || isInStore(witness)) return;
  const auto found = model_.range(KeyRange::single(keyOf(witness.owned->id)), {});
  const std::string there = !found || found->kvs.empty()
                                ? "not there"
                                : fmt::format("{} under lease {:x}, revision {}", found->kvs.front().value,
                                              found->kvs.front().lease, found->kvs.front().mod_revision);
  std::vector<size_t> machines{witness.process->machine()};
  if (const auto revoker = revokers_.find(witness.owned->lease); revoker != revokers_.end())
    machines.push_back(revoker->second);
  violated("owner", fmt::format("{}; in the store it is {}", describe(witness), there), std::move(machines));
}

// Two processes use it, or have done so: a node that was started again, too.
bool Judge::isAmbiguous(const std::string& uuid) const {
  const auto found = users_.find(uuid);
  return found != users_.end() && found->second.size() > 1;
}

// A process that was copied has ended and is started again: it takes its name back from the copy, of which its state
// directory knows nothing. And a copy takes the name of an original that does not know of it: both remember that the
// process before them has ended. In a store that was set back either takes the other's claim for a remnant of its own.
void Judge::excuseCopies(const KeyValue& kv, int64_t slot, const std::string& uuid) {
  for (const uint64_t id : claimants_[slot]) {
    Witness& witness = witnesses_.at(id);
    if (witness.owned->lease == kv.lease || witness.process->uuid() != uuid) continue;
    const bool is_copy = witness.family != id;
    const bool takes_for_remnant = history_ > 0 && hasCopy(id);
    if (is_copy || hasUnknownCopy(id) || takes_for_remnant) witness.excused_until = time_.now() + lease_;
  }
}

bool Judge::hasUnknownCopy(uint64_t id) const {
  return std::any_of(witnesses_.begin(), witnesses_.end(),
                     [id](const auto& other) { return other.second.unaware_original == id; });
}

bool Judge::hasCopy(uint64_t id) const {
  return std::any_of(witnesses_.begin(), witnesses_.end(),
                     [id](const auto& other) { return other.first != id && other.second.family == id; });
}

void Judge::noteChange(const WatchEvent& event, int64_t slot) {
  const bool is_named = isPut(event) && naming::decodeRecord(event.kv.value);
  const bool was_named = named_.erase(slot) > 0;
  if (is_named) named_.insert(slot);
  const bool is_new = is_named && event.kv.version == 1;
  if (is_new || (was_named && !is_named)) changed_[slot] = {time_.now(), event.kv.mod_revision};
}

void Judge::noteNames(const WatchEvent& event, int64_t slot) {
  if (!isPut(event)) {
    names_.erase(slot);
    return;
  }
  const Result<NodeRecord> record = naming::decodeRecord(event.kv.value);
  const std::string uuid = record ? record->id : std::string();
  if (uuid.empty()) names_by_operator_ = true;
  if (event.kv.lease != 0) leases_of_names_.insert(event.kv.lease);
  names_[slot] = uuid;
  judgeReserved(event, slot, uuid);
  excuseCopies(event.kv, slot, uuid);
  if (uuid.empty() || isAmbiguous(uuid) || history_ > 0) return;
  for (const auto& [other, whose] : names_) {
    if (other == slot || whose != uuid || touched_.contains(other) || touched_.contains(slot)) continue;
    std::vector<size_t> machines;
    for (const uint64_t user : users_[uuid]) {
      if (const auto witness = witnesses_.find(user); witness != witnesses_.end())
        machines.push_back(witness->second.process->machine());
    }
    violated("one", fmt::format("{} has {} and {}", uuid, keyOf(other), keyOf(slot)), std::move(machines));
  }
}

void Judge::judgeReserved(const WatchEvent& event, int64_t slot, const std::string& uuid) {
  if (event.kv.version != 1 || event.kv.lease == 0 || uuid.empty()) return;
  const auto before = model_.range(KeyRange::single(naming::reservationKey(event.kv.key)),
                                   {.revision = event.kv.mod_revision - 1});
  if (before && !before->kvs.empty() && before->kvs.front().value != uuid) {
    violated("reserved", fmt::format("{} takes {}, which is reserved for {}", uuid, event.kv.key,
                                     before->kvs.front().value),
             {});
  }
  // Who takes another name leaves the former one.
  std::erase_if(last_owners_, [&](const auto& last) { return last.second.uuid == uuid && last.first != slot; });
  const auto last = last_owners_.find(slot);
  if (last == last_owners_.end() || last->second.uuid == uuid || shared_.contains(last->second.uuid) || history_ > 0 ||
      !lost_leases_.empty())
    return;
  // It goes on to say so until it learns of that, and reserves the name again some time after its reservation has gone.
  if (const auto at = released_.find(slot);
      at != released_.end() && last->second.at <= at->second + lease_ + Duration(hold_) / 4)
    return;
  if (time_.now() - last->second.at >= Duration(hold_) * 3 / 4) return;
  violated("reserved",
           fmt::format("{} takes {} {:.1f} s after {} had it", uuid, event.kv.key,
                       std::chrono::duration<double>(time_.now() - last->second.at).count(), last->second.uuid),
           {});
}

// One revision of the store. Where names were put past the queue, or the store was set back, its order is not held to.
void Judge::judgeQueue(const std::vector<WatchEvent>& history, size_t first, size_t last) {
  for (size_t i = first; i < last; ++i) {
    const KeyValue& kv = history[i].kv;
    if (!isPut(history[i]) || kv.version != 1 || !pattern_.recognise(kv.key)) continue;
    const Result<NodeRecord> record = naming::decodeRecord(kv.value);
    if (!record || record->id.empty()) continue;
    const auto end = history.begin() + static_cast<ptrdiff_t>(last);
    const auto ticket =
        std::find_if(history.begin() + static_cast<ptrdiff_t>(first), end, [&](const WatchEvent& event) {
          return event.kv.key.starts_with(queue_) && nodeOf(event.kv.key) == record->id && !isPut(event);
        });
    if (ticket == end) return violated("queue", fmt::format("{} puts {} and gives no ticket", record->id, kv.key), {});
    if (names_by_operator_ || history_ > 0) continue;
    const auto reserved =
        model_.range(KeyRange::single(naming::reservationKey(kv.key)), {.revision = kv.mod_revision - 1});
    if (reserved && !reserved->kvs.empty()) continue;  // judgeReserved()
    const auto turn = turnAt(kv.mod_revision - 1, ticket->kv.key);
    if (!turn) continue;  // compacted
    // Of limits that differ, a name that is taken instead of a lower one leaves that to an older node with a lower limit,
    // and the node whose turn it was may not know of it yet.
    bool had_turn = turn->free > 0;
    for (int64_t at = kv.mod_revision - 2; !had_turn && turn->limits_differ && at >= turn->since; --at) {
      const auto before = turnAt(at, ticket->kv.key);
      had_turn = !before || before->free > 0;
    }
    if (had_turn) continue;
    return violated(
        "queue",
        fmt::format("{} puts {} when none is left for it by {} older tickets", record->id, kv.key, turn->older), {});
  }
}

std::optional<Judge::Turn> Judge::turnAt(int64_t revision, const std::string& ticket) const {
  const auto names =
      model_.range(KeyRange::prefix(pattern_.literalPrefix()), {.revision = revision, .keys_only = true});
  const auto tickets = model_.range(KeyRange::prefix(queue_),
                                    {.revision = revision, .keys_only = true, .sort_by_create_revision = true});
  const auto reserved =
      model_.range(KeyRange::prefix(naming::reservationKey(pattern_.literalPrefix())), {.revision = revision});
  if (!names || !tickets || !reserved) return std::nullopt;
  const int64_t limit = limitOf(ticket);
  std::set<int64_t> free;
  for (int64_t slot = 1; slot <= limit; ++slot) free.insert(slot);
  for (const KeyValue& name : names->kvs) {
    if (const auto slot = pattern_.recognise(name.key)) free.erase(*slot);
  }
  for (const KeyValue& waiting : reserved->kvs) {
    if (const auto slot = pattern_.recognise(naming::reservedName(waiting.key)))
      free.erase(*slot);
  }
  Turn turn;
  for (const KeyValue& other : tickets->kvs) {
    turn.since = other.create_revision;
    turn.free = free.size();
    if (other.key == ticket) return turn;
    ++turn.older;
    turn.limits_differ = turn.limits_differ || limitOf(other.key) != limit;
    if (!free.empty() && *free.begin() <= limitOf(other.key)) free.erase(free.begin());
  }
  return std::nullopt;
}

void Judge::judgeClaim(Witness& witness) {
  const uint64_t claims = witness.process->protocol().counters().claims.value();
  if (claims == std::exchange(witness.claims, claims) || !witness.tried) return;
  if (leases_of_names_.contains(witness.tried->lease)) return;
  violated(
      "claim",
      fmt::format("node {} (process {}) has claimed {}, which was never there under its lease {:x}",
                  witness.process->machine(), witness.process->id(), keyOf(witness.tried->slot), witness.tried->lease),
      {witness.process->machine()});
}

// A ticket that goes while its node waits: with a lease that has ended, after that node has said nothing of it. A call
// may take five seconds, so that of shorter leases nothing can be said.
void Judge::judgeTicket(const WatchEvent& event) {
  if (isPut(event) || !event.kv.key.starts_with(queue_) || lease_ < kLongLease) return;
  for (const auto& [id, witness] : witnesses_) {
    if (witness.lease == 0 || model_.hasLease(witness.lease) || nodeOf(event.kv.key) != witness.process->uuid())
      continue;
    if (witness.process->scheduler().isStanding() || witness.process->protocol().stopping()) continue;
    if (lost_leases_.contains(witness.lease)) continue;
    if (time_.now() - witness.spoke_of_lease_at < lease_ - Duration(lease_) / 20) continue;
    violated("kept",
             fmt::format("node {} (process {}) waits, and has let the lease of its ticket end",
                         witness.process->machine(), id),
             {witness.process->machine()});
  }
}

// The process is about to revoke this lease. A look shows what was there before it was sent.
void Judge::judgeKept(const Witness& witness, int64_t lease) {
  const std::optional<Try>& tried = witness.tried;
  if (!tried || tried->lease != lease || witness.process->protocol().stopping() || history_ > 0) return;
  if (touched_.contains(tried->slot) || isAmbiguous(witness.process->uuid())) return;
  if (tried->sent_at < witness.reads_stale_until) return;
  if (const auto asked = revokers_.find(lease); asked != revokers_.end() && asked->second == witness.process->machine())
    return;  // this is a repetition
  const auto found = model_.range(KeyRange::single(keyOf(tried->slot)), {});
  if (!found || found->kvs.empty() || found->kvs.front().lease != lease) return;
  const int64_t put = found->kvs.front().mod_revision;
  const auto at = std::find_if(revisions_.begin(), revisions_.end(),
                               [put](const auto& revision) { return revision.second >= put; });
  if (tried->looked_at && at != revisions_.end() && at->first >= *tried->looked_at) return;
  violated("kept",
           fmt::format("node {} (process {}) gives up {}, which it has in the store", witness.process->machine(),
                       witness.process->id(), keyOf(tried->slot)),
           {witness.process->machine()});
}

void Judge::judgeTwo(const Witness& witness) {
  for (const uint64_t id : claimants_[witness.owned->id]) {
    const Witness& other = witnesses_.at(id);
    if (other.process == witness.process || isExcused(witness) || isExcused(other)) continue;
    const std::optional<Ownership> also = owned(other);
    if (!also || also->id != witness.owned->id) continue;
    violated("two", fmt::format("{}; and {}", describe(witness), describe(other)),
             {witness.process->machine(), other.process->machine()});
  }
}

void Judge::judgeToken(const Witness& witness) {
  const Ownership& owned = *witness.owned;
  std::vector<Holder>& holders = holders_[owned.id];
  const auto is_this_claim = [&](const Holder& holder) {
    return holder.revision == owned.revision && holder.token == owned.token && holder.family == witness.family;
  };
  if (!holders.empty() && is_this_claim(holders.back())) return;
  const bool excused = isExcused(witness);
  const bool is_there = isInStore(witness);  // a claim may be of the store before, and of the one that was set back to
  for (const Holder& holder : holders) {
    if (is_this_claim(holder)) continue;
    const auto seen = witness.seen_when_set_back.find(holder.history);
    const bool knows = seen != witness.seen_when_set_back.end() && seen->second >= holder.token;
    const bool is_of_before = holder.history < (is_there ? history_ : witness.history);
    if (holder.token < owned.token || excused || (is_of_before && !knows)) continue;
    violated("token",
             fmt::format("{}; process {} had token {} before", describe(witness), holder.process, holder.token),
             {witness.process->machine()});
  }
  if (excused) return;
  holders.push_back({owned.token, owned.revision, witness.process->id(), witness.family, witness.history});
}

// The last changes up to this time. Of a key that was changed again since, either may show.
std::vector<Judge::Change> Judge::changesUntil(Time past) const {
  constexpr size_t kChanges = 40;
  const auto later = std::upper_bound(revisions_.begin(), revisions_.end(), past,
                                      [](Time time, const auto& revision) { return time < revision.first; });
  if (later == revisions_.begin()) return {};
  const std::vector<WatchEvent>& history = model_.history();
  size_t index = model_.historyFrom(std::prev(later)->second + 1);
  std::set<std::string_view> changed;
  for (size_t i = index; i < history.size(); ++i) changed.insert(history[i].kv.key);
  std::set<std::string_view> seen;
  std::vector<Change> changes;
  for (size_t left = kChanges; left > 0 && index > 0; --left) {
    const WatchEvent& event = history[--index];
    const Result<dns::Name> name = naming::decodeKey(event.kv.key);
    if (!name || !contains(watched_, event.kv.key) || !seen.insert(event.kv.key).second) continue;
    const bool is_there = isPut(event) && recordOf(event.kv);
    changes.push_back({*name, &event, !is_there || changed.contains(event.kv.key)});
  }
  return changes;
}

void Judge::judgeFreshness(const Witness& witness, const std::vector<Change>& changes) {
  if (!witness.process->isFresh()) return;
  if (time_.now() < std::max(witness.freshness_excused_until, witness.reads_stale_until)) return;
  for (const Change& change : changes) {
    const KeyValue& kv = change.event->kv;
    const int64_t stored = witness.process->records().revisionOf(change.name);
    const bool shown = stored >= kv.mod_revision || (stored == 0 && change.may_be_gone);
    if (shown) continue;
    violated("fresh",
             fmt::format("node {} (process {}) calls its names fresh; of {} it has revision {}, and {} was {} at {}",
                         witness.process->machine(), witness.process->id(), kv.key, stored, kv.key,
                         isPut(*change.event) ? "changed" : "deleted", kv.mod_revision),
             {witness.process->machine()});
    return;
  }
}

// --- at rest ---

std::optional<Violation> Judge::mirrorAtRest(const Witness& witness, size_t names) const {
  const auto differs = [&](const std::string& text) {
    return Violation{"mirror",
                     fmt::format("node {} (process {}): {}", witness.process->machine(), witness.process->id(), text),
                     {witness.process->machine()}};
  };
  if (!witness.process->isFresh()) return differs("its names are not fresh");
  if (witness.process->records().size() != names)
    return differs(fmt::format("{} names instead of {}", witness.process->records().size(), names));
  const auto stored = model_.range(watched_, {});
  for (const KeyValue& kv : stored->kvs) {
    const auto record = recordOf(kv);
    if (!record) continue;
    const std::string found = witness.process->lookUp(kv.key);
    if (found != textOf(*record)) return differs(fmt::format("{} is {} instead of {}", kv.key, found, textOf(*record)));
  }
  return std::nullopt;
}

std::optional<Violation> Judge::atRest() const {
  slots::SlotSet taken;
  std::vector<const Process*> nameless;
  for (const auto& [id, witness] : witnesses_) {
    const std::optional<Ownership> has = owned(witness);
    if (has) taken.insert(has->id);
    if (!has) nameless.push_back(witness.process);
  }
  // Who has no name, and a limit below the one that is missing, has held it up for those that have higher ones.
  const bool held_up =
      std::ranges::any_of(nameless, [&taken](const Process* process) { return process->limit() < taken.missing(0); });
  if (!somebody_ended_ && !held_up && taken.missing(0) <= taken.size())
    return Violation{"dense", fmt::format("{} names, and {} is not among them", taken.size(), taken.missing(0)), {}};
  size_t names = 0;
  const auto stored = model_.range(watched_, {});
  for (const KeyValue& kv : stored->kvs) {
    const auto slot = pattern_.recognise(kv.key);
    if (slot && kv.lease == 0) taken.insert(*slot);
    if (recordOf(kv)) ++names;
  }
  for (const Process* const process : nameless) {
    if (taken.missing(0) > process->limit()) continue;
    return Violation{"named",
                     fmt::format("{} nodes have no name, such as node {}; {} of its {} slots are free", nameless.size(),
                                 process->machine(), taken.missingUpTo(process->limit()), process->limit()),
                     {process->machine()}};
  }
  for (const auto& [id, witness] : witnesses_) {
    if (auto violation = mirrorAtRest(witness, names)) return violation;
  }
  return generationsAtRest();
}

std::optional<Violation> Judge::generationsAtRest() const {
  if (history_ > 0 || reads_were_stale_ || witnesses_.empty()) return std::nullopt;
  const Process& first = *witnesses_.begin()->second.process;
  const bool is_one_limit = std::ranges::all_of(
      witnesses_, [&first](const auto& witness) { return witness.second.process->limit() == first.limit(); });
  for (const auto& [id, witness] : witnesses_) {
    const int64_t limit = witness.process->limit();
    const int64_t generation = witness.process->generation();
    const size_t machine = witness.process->machine();
    const int64_t other = first.generation();
    if (is_one_limit && other != generation)
      return Violation{"generation",
                       fmt::format("it is {} for node {}, and {} for node {}", generation, machine, other, first.machine()),
                       {machine, first.machine()}};
    for (const auto& [slot, changed] : changed_) {
      if (slot > limit || changed.revision <= generation || !witness.fresh_since || changed.at < *witness.fresh_since) continue;
      return Violation{"generation",
                       fmt::format("it is {}, and {} has changed at {}", generation, keyOf(slot), changed.revision),
                       {machine}};
    }
  }
  return std::nullopt;
}

}  // namespace idetcd::simulation
