#include "naming/confirmation.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "naming/keyspace.h"
#include "naming/record_codec.h"
#include "node/uuid.h"

namespace idetcd::naming {
namespace {

using runtime::Task;
using store::Compare;
using store::RangeOp;
using store::RangeResult;
using store::StoreError;
using store::StoreResult;
using store::TxnRequest;
using store::TxnResult;
using namespace std::chrono_literals;

constexpr std::string_view kConfirming = "confirming the present";
constexpr std::chrono::nanoseconds kClockLook = 250ms;
constexpr size_t kMaxPending = 16;
constexpr size_t kMaxOurs = 64;

bool isRefusal(const StoreError& error) {
  return error.code == ErrorCode::kPermissionDenied || error.code == ErrorCode::kNoSpace ||
         error.code == ErrorCode::kOther;
}

}  // namespace

Confirmation::Confirmation(Context& context, Options options)
    : context_(context),
      options_(std::move(options)),
      grace_(std::clamp<std::chrono::nanoseconds>(options_.lease / 8, 500ms, 2500ms)),
      standstill_(context.scheduler),
      wake_(context.scheduler),
      retry_(context.jitter, 100ms, std::max<std::chrono::nanoseconds>(200ms, options_.lease / 16)),
      beat_revisions_(options_.beat_keys.size(), 0),
      beat_wait_(drawBeatWait()) {}

Task<void> Confirmation::run() {
  while (!context_.lifetime.stopping()) {
    wake_.reset();
    noteStandstill();
    const BootClock::time_point now = context_.now();
    const BootClock::time_point due = nextDue();
    if (now >= due) {
      co_await ask();
      continue;
    }
    const std::chrono::nanoseconds longest = uuid_.empty() ? options_.lease / 4 : kClockLook;
    co_await wake_.wait(std::min<std::chrono::nanoseconds>(due - now, longest));
  }
}

Task<void> Confirmation::ask() {
  const Write write = whatToWrite(context_.now());
  const uint64_t holds = holds_;
  const uint64_t loads = loads_;
  const uint64_t watches = watches_;
  const int64_t least = delivered_;
  TxnRequest wanted = request(write);
  const size_t beats = options_.beat_keys.size();
  const bool with_slot = readsSlot();
  const size_t reads = beats + (with_slot ? 1 : 0) + (uuid_.empty() ? 0 : 1);
  // Before the request: what it shows is as new as this at least.
  Reading reading{context_.now(), 0};
  const node::Standstill::Mark mark = standstill_.mark();
  next_read_ = BootClock::time_point::max();  // unless something happens meanwhile that wants another
  const StoreResult<TxnResult> answer = co_await context_.store.txn(std::move(wanted));
  if (context_.lifetime.stopping()) co_return;
  if (!answer) co_return failed(answer.error(), write);
  if (answer->results.size() < reads) co_return failed(unfitting().value(), write);
  const size_t first = answer->results.size() - reads;
  for (size_t i = first; i < answer->results.size(); ++i) {
    if (!std::holds_alternative<RangeResult>(answer->results[i])) co_return failed(unfitting().value(), write);
  }
  context_.trouble.succeeded(kConfirming);
  retry_.reset();
  not_before_ = {};
  context_.counters.confirmations.add();
  if (write == Write::kBeat) beat_wait_ = drawBeatWait();
  readBy(reading.at + context_.jitter.around(options_.lease / 4, 0.1));
  reading.revision = answer->revision;
  if (write == Write::kBeat && answer->succeeded) context_.counters.beats.add();
  std::vector<int64_t> found;
  for (size_t i = 0; i < beats; ++i) {
    const std::vector<store::KeyValue>& kvs = std::get<RangeResult>(answer->results[first + i]).kvs;
    found.push_back(kvs.empty() ? 0 : kvs.front().mod_revision);
  }
  learnBeats(found);
  if (loaded_ && loads == loads_) {
    // Only a new snapshot ends that: the store may have gone on beyond our revision when it is looked at again.
    other_store_ = other_store_ || answer->cluster_id != cluster_id_ || reading.revision < least;
    if (!other_store_) take(reading);
  }
  if (with_slot && holds == holds_) {
    slot_unread_ = slot_unread_ && watches != watches_;
    judgeSlot(std::get<RangeResult>(answer->results[first + beats]).kvs, reading);
  }
  if (reads > beats && holds == holds_) judge(std::get<RangeResult>(answer->results.back()).kvs, reading, mark);
}

TxnRequest Confirmation::request(Write write) const {
  TxnRequest made;
  made.timeout = grace_;
  made.repeatable = true;  // what it writes depends on a revision that it changes
  const std::string incarnation_key = incarnationKey(uuid_);
  if (write == Write::kIncarnation) {
    made.compares.push_back(
        {.key = incarnation_key, .target = Compare::Target::kModRevision, .number = incarnation_revision_});
    made.success.emplace_back(store::PutOp{incarnation_key, wanted_, lease_});
  } else if (write == Write::kBeat) {
    for (size_t i = 0; i < options_.beat_keys.size(); ++i) {
      const std::string& key = options_.beat_keys[i];
      made.compares.push_back({.key = key, .target = Compare::Target::kModRevision, .number = beat_revisions_[i]});
      made.success.emplace_back(store::PutOp{key, "{}", 0});
    }
  }
  for (auto* branch : {&made.success, &made.failure}) {
    if (branch == &made.failure && write == Write::kNothing) break;
    for (const std::string& key : options_.beat_keys)
      branch->emplace_back(RangeOp{store::KeyRange::single(key), {.keys_only = true}});
    if (readsSlot()) branch->emplace_back(RangeOp{store::KeyRange::single(slot_.key), {}});
    if (!uuid_.empty()) branch->emplace_back(RangeOp{store::KeyRange::single(incarnation_key), {}});
  }
  return made;
}

Confirmation::Write Confirmation::whatToWrite(BootClock::time_point now) const {
  if (!uuid_.empty() && !wanted_.empty() && now >= writes_refused_until_) return Write::kIncarnation;
  return now >= beatDue() ? Write::kBeat : Write::kNothing;
}

// A write that etcd refuses is not tried again for a while: what can be read is confirmed without it.
void Confirmation::failed(const StoreError& error, Write write) {
  const BootClock::time_point now = context_.now();
  context_.counters.confirmation_failures.add();
  if (write != Write::kNothing && isRefusal(error)) {
    context_.trouble.failed(kConfirming, error);
    (write == Write::kBeat ? beats_refused_until_ : writes_refused_until_) = now + options_.lease;
    return readBy(now);
  }
  if (error.code != ErrorCode::kLeaseNotFound) {
    context_.trouble.failed(kConfirming, error);
  } else if (on_standstill_) {
    on_standstill_();  // whether the lease has ended, its next renewal says
  }
  // A beat that is due, too: a call to an endpoint that is away fails at once.
  not_before_ = now + retry_.next();
  readBy(not_before_);
}

// --- the table ---

void Confirmation::take(const Reading& reading) {
  if (pending_.empty()) beat_wait_ = drawBeatWait();
  if (pending_.size() == kMaxPending) pending_.pop_front();
  pending_.push_back(reading);
  settle();
}

void Confirmation::settle() {
  const BootClock::time_point now = context_.now();
  const int64_t evidence = beatsRefused(now) ? std::max(delivered_, progressed_) : delivered_;
  std::optional<BootClock::time_point> confirmed;
  while (!pending_.empty() && pending_.front().revision <= evidence) {
    confirmed = pending_.front().at;
    pending_.pop_front();
  }
  const int64_t lag = pending_.empty() ? 0 : pending_.back().revision - evidence;
  context_.counters.watch_lag_revisions.set(static_cast<double>(lag));
  if (!confirmed) return;
  lags_ = false;
  if (on_current_) on_current_(*confirmed);
}

void Confirmation::loaded(int64_t revision, uint64_t cluster_id) {
  loaded_ = true;
  ++loads_;
  other_store_ = lags_ = false;
  cluster_id_ = cluster_id;
  delivered_ = progressed_ = revision;
  pending_.clear();
  beat_revisions_.assign(options_.beat_keys.size(), 0);
  askSoon();
}

void Confirmation::delivered(int64_t revision) {
  if (revision <= delivered_) return;
  delivered_ = revision;
  lacking_since_ = context_.now();
  settle();
}

void Confirmation::progressed(int64_t revision) {
  progressed_ = std::max(progressed_, revision);
  if (pending_.empty()) return;
  lags_ = pending_.front().revision > revision && context_.now() - pending_.front().at > grace_;
  settle();
}

void Confirmation::sawBeat(std::string_view key, int64_t revision) {
  std::vector<int64_t> revisions = beat_revisions_;
  for (size_t i = 0; i < revisions.size(); ++i) {
    if (options_.beat_keys[i] == key) revisions[i] = std::max(revisions[i], revision);
  }
  learnBeats(revisions);
}

void Confirmation::learnBeats(const std::vector<int64_t>& revisions) {
  if (revisions == beat_revisions_) return;
  const BootClock::time_point now = context_.now();
  const int64_t before = beatRevision();
  beat_revisions_ = revisions;
  // One that was there before this node came may be of any age.
  if (before != 0 || beatRevision() > delivered_) beat_seen_at_ = now;
  if (before <= delivered_) lacking_since_ = now;
}

// Every range has had one at this revision or later: an event of each is in the store.
int64_t Confirmation::beatRevision() const {
  return beat_revisions_.empty() ? 0 : *std::min_element(beat_revisions_.begin(), beat_revisions_.end());
}

void Confirmation::watchOpened(bool is_current) {
  const BootClock::time_point now = context_.now();
  watchEnded();  // another may have been open until now
  ++watches_;
  slot_unread_ = true;
  if (!is_current && !std::exchange(slot_is_missing_, true) && on_holder_) on_holder_();
  lags_ = false;
  lacking_since_ = now;
  wantNewIncarnation();
  askSoon();
}

bool Confirmation::behind() const {
  if (other_store_ || lags_) return true;
  return loaded_ && beatRevision() > delivered_ && context_.now() - lacking_since_ > grace_;
}

// When the beat is to be rewritten, if no event comes until then.
BootClock::time_point Confirmation::beatDue() const {
  constexpr auto kNever = BootClock::time_point::max();
  if (pending_.empty() || beatRevision() > delivered_ || beatsRefused(context_.now())) return kNever;
  const BootClock::time_point old_enough = beat_seen_at_ + options_.lease / 4;
  return std::max(pending_.front().at, old_enough) + beat_wait_;
}

// Exponentially distributed towards the end of an eighth of the lease (Nonnenmacher and Biersack: scalable feedback; as
// in RFC 5740 §5.5): the first of 10,000 nodes writes early, few others before its event reaches them, and a lone node
// waits little longer.
std::chrono::nanoseconds Confirmation::drawBeatWait() {
  constexpr double kLogOfNodes = 10.0;
  const double uniform =
      static_cast<double>(context_.jitter.around(std::chrono::nanoseconds(500'000'000), 1.0).count()) / 1e9;
  const double share = std::log(uniform * (std::exp(kLogOfNodes) - 1) + 1) / kLogOfNodes;
  return std::chrono::nanoseconds(static_cast<int64_t>(share * static_cast<double>((options_.lease / 8).count())));
}

BootClock::time_point Confirmation::nextDue() const {
  if (!loaded_ && uuid_.empty()) return BootClock::time_point::max();
  return std::max(std::min(next_read_, beatDue()), not_before_);
}

void Confirmation::askSoon() {
  readBy(context_.now());
  wake_.set();
}

// --- the incarnation ---

void Confirmation::hold(std::string uuid, int64_t lease, HeldKey slot) {
  letGo();
  uuid_ = std::move(uuid);
  lease_ = lease;
  slot_ = std::move(slot);
  looked_mark_ = standstill_.mark();
  wantNewIncarnation();
  askSoon();
}

void Confirmation::letGo() {
  ++holds_;
  uuid_.clear();
  slot_ = {};
  slot_as_of_.reset();
  slot_unread_ = slot_is_missing_ = false;
  current_.clear();
  wanted_.clear();
  ours_.clear();
  in_doubt_ = false;
  incarnation_revision_ = 0;
  holder_ = Holder::kUnconfirmed;
}

// Clones may draw the same random number: the kernel's generator was copied with the rest. Their clocks are read at
// different moments.
std::string Confirmation::newIncarnation() {
  return fmt::format("{}-{:x}-{:x}", node::randomUuid(context_.random), context_.scheduler.wallTime().count(),
                     context_.now().time_since_epoch().count());
}

void Confirmation::wantNewIncarnation() {
  if (uuid_.empty()) return;
  wanted_ = newIncarnation();
  if (ours_.size() == kMaxOurs) ours_.erase(ours_.begin());
  ours_.push_back(wanted_);
}

// Before judge(), which reports both.
void Confirmation::judgeSlot(const std::vector<store::KeyValue>& found, const Reading& reading) {
  bool is_ours = false;
  if (!found.empty()) {
    const store::KeyValue& kv = found.front();
    const Result<NodeRecord> record = decodeRecord(kv.value);  // by hand it can be overwritten under our lease, too
    is_ours = kv.lease == lease_ && kv.create_revision == slot_.create_revision && record && record->id == uuid_;
  }
  const bool changes = is_ours == slot_is_missing_ || (!is_ours && slot_as_of_);
  slot_as_of_ = is_ours ? std::optional(reading.at) : std::nullopt;
  slot_is_missing_ = !is_ours;
  if (changes && on_holder_) on_holder_();
}

void Confirmation::judge(const std::vector<store::KeyValue>& found, const Reading& reading,
                         const node::Standstill::Mark& mark) {
  if (holder_ == Holder::kForeign || holder_ == Holder::kDuplicateNodeId) return;  // the keeper gives the name up
  const bool may_write = reading.at >= writes_refused_until_;
  bool confirmed = false;
  if (found.empty()) {  // not written yet, deleted, or the lease has ended
    incarnation_revision_ = 0;
    if (wanted_.empty()) wantNewIncarnation();
  } else {
    const store::KeyValue& kv = found.front();
    const bool ours = std::find(ours_.begin(), ours_.end(), kv.value) != ours_.end();
    // What another process has written since is not overwritten: the next compare-and-swap, if any, fails.
    const bool foreign = !ours && (kv.lease == lease_ || !current_.empty());
    const bool is_newer = kv.mod_revision > incarnation_revision_;
    if (foreign) {
      wanted_.clear();
    } else {
      incarnation_revision_ = kv.mod_revision;
    }
    if (ours && kv.value == wanted_) {
      current_ = std::exchange(wanted_, {});
      in_doubt_ = false;
      confirmed = true;
    } else if (ours && kv.value == current_) {
      // An incarnation that etcd refuses to write leaves the one before in force; but after a standstill a copy of this
      // process may have that too.
      confirmed = wanted_.empty() || (!may_write && !in_doubt_);
    } else if (ours) {  // an older one of ours: the store was set back, or an answer was lost
      current_ = kv.value;
      if (wanted_.empty()) wantNewIncarnation();
    } else if (kv.lease == lease_) {
      holder_ = Holder::kForeign;
      if (on_holder_) on_holder_();
      return;
    } else if (!current_.empty()) {
      // Written after ours: another process with our UUID holds a lease of its own. If not, the store was set back, and
      // the watch will show what became of the name.
      if (is_newer) holder_ = Holder::kDuplicateNodeId;
      if (is_newer && on_holder_) on_holder_();
      return;
    } else if (wanted_.empty()) {
      wantNewIncarnation();
    }
  }
  if (!confirmed) {
    if (may_write && !wanted_.empty()) readBy(reading.at + retry_.next() / 4);
    return;
  }
  held_as_of_ = reading.at;
  held_mark_ = looked_mark_ = mark;
  holder_ = Holder::kOurs;
  if (on_holder_) on_holder_();
}

void Confirmation::noteStandstill() {
  if (uuid_.empty() || !standstill_.since(looked_mark_, tolerance())) return;
  context_.log.info("the wall clock has jumped, or this machine has stood still: confirming the name");
  suspect();
}

void Confirmation::suspect() {
  context_.counters.standstills.add();
  looked_mark_ = standstill_.mark();
  in_doubt_ = true;
  wantNewIncarnation();
  if (on_standstill_) on_standstill_();
  askSoon();
}

}  // namespace idetcd::naming
