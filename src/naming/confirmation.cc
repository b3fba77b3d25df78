#include "naming/confirmation.h"

namespace idetcd::naming {
namespace {

using runtime::Task;
using store::StoreError;
using store::StoreResult;
using store::TxnResult;
using namespace std::chrono_literals;

constexpr std::string_view kConfirming = "confirming the present";
constexpr std::chrono::nanoseconds kClockLook = 250ms;

bool isRefusal(const StoreError& error) {
  return error.code == ErrorCode::kPermissionDenied || error.code == ErrorCode::kNoSpace ||
         error.code == ErrorCode::kOther;
}

}  // namespace

// One transaction, and what was known when it was sent. What has changed when its answer comes takes nothing from it.
struct Confirmation::Question {
  Write write = Write::kNothing;
  store::Transaction transaction;
  Beat::Reads beats;
  std::optional<store::Transaction::Read> slot;
  std::optional<store::Transaction::Read> incarnation;
  TableFreshness::Asked table;
  uint64_t holds = 0;
  uint64_t watches = 0;
  BootClock::time_point at;  // what it shows is as new as this at least
  node::Standstill::Mark mark;
};

Confirmation::Confirmation(Context& context, Options options)
    : context_(context),
      lease_(options.lease),
      grace_(std::clamp<std::chrono::nanoseconds>(lease_ / 8, 500ms, 2500ms)),
      standstill_(context.scheduler),
      watches_elsewhere_(std::move(options.watches_elsewhere)),
      wake_(context.scheduler),
      retry_(context.jitter, 100ms, std::max<std::chrono::nanoseconds>(200ms, lease_ / 16)),
      beat_(context, std::move(options.beat_keys), lease_, grace_),
      table_(context, beat_, grace_),
      incarnation_(context, standstill_, lease_) {}

Task<void> Confirmation::run() {
  while (!context_.lifetime.stopping()) {
    wake_.reset();
    noteStandstill();
    noteBreak();
    if (table_.needsProgress() && context_.now() >= next_doubt_) doubtWatch();
    const BootClock::time_point now = context_.now();
    const BootClock::time_point due = nextDue();
    if (now >= due) {
      co_await ask();
      continue;
    }
    const std::chrono::nanoseconds longest = incarnation_.isHeld() ? kClockLook : lease_ / 4;
    co_await wake_.wait(std::min<std::chrono::nanoseconds>(due - now, longest));
  }
}

Task<void> Confirmation::ask() {
  Question asked = question();
  next_read_ = BootClock::time_point::max();  // unless something happens meanwhile that wants another
  StoreResult<TxnResult> answer = co_await context_.store.txn(asked.transaction.request());
  if (context_.lifetime.stopping()) co_return;
  if (answer && !asked.transaction.fits(*answer)) answer = unfitting();
  if (!answer) co_return failed(answer.error(), asked.write);
  succeeded(asked);
  takeUp(asked, *answer);
}

Confirmation::Question Confirmation::question() {
  Question made;
  made.at = context_.now();
  made.mark = standstill_.mark();
  made.table = table_.asking();
  made.holds = holds_;
  made.watches = watches_;
  made.write = whatToWrite();
  made.transaction.setTimeout(context_.round_trip.patience(grace_, lease_ / 5));
  made.transaction.setRepeatable();  // what it writes depends on a revision that it changes
  if (made.write == Write::kIncarnation) incarnation_.addWrite(&made.transaction);
  if (made.write == Write::kBeat) beat_.addWrite(&made.transaction);
  made.beats = beat_.addReads(&made.transaction);
  if (readsSlot()) {
    const store::RangeOp slot{store::KeyRange::single(slot_.key()), {}};
    made.slot = made.transaction.read(slot, store::Transaction::Branch::kBoth);
  }
  if (incarnation_.isHeld()) made.incarnation = incarnation_.addRead(&made.transaction);
  return made;
}

Confirmation::Write Confirmation::whatToWrite() const {
  if (incarnation_.isHeld() && incarnation_.wantsWrite()) return Write::kIncarnation;
  return context_.now() >= table_.beatDue() ? Write::kBeat : Write::kNothing;
}

bool Confirmation::readsSlot() const {
  const bool unseen = table_.state() == TableFreshness::State::kEmpty;
  return incarnation_.isHeld() && !slot_.key().empty() && (unseen || slot_.isWanted());
}

void Confirmation::succeeded(const Question& asked) {
  context_.trouble.succeeded(kConfirming);
  retry_.reset();
  not_before_ = {};
  context_.counters.confirmations.add();
  context_.round_trip.took(asked.at, context_.now());
  if (asked.write == Write::kBeat) beat_.drawWait();
  // Until the first snapshot is there, which may take all of a slow line, nothing else shows that the name is ours.
  const bool unseen = table_.state() == TableFreshness::State::kEmpty;
  readBy(asked.at + context_.jitter.around(unseen ? lease_ / 4 : lease_ * 6 / 10, 0.1));
}

void Confirmation::takeUp(const Question& asked, TxnResult& answer) {
  // Before the table: a name that is not there is not owned for a moment.
  if (asked.slot && asked.holds == holds_) {
    const std::vector<store::KeyValue>& found = asked.transaction.result(answer, *asked.slot).kvs;
    if (slot_.judge(found, asked.at, asked.watches == watches_, incarnation_.lease(), incarnation_.uuid()))
      tellHolder();
  }
  if (asked.write == Write::kBeat && answer.succeeded) context_.counters.beats.add();
  beat_.learn(asked.transaction, answer, asked.beats, table_.deliveredRevision());
  table_.answered(asked.table, answer.revision, answer.cluster_id);
  if (!asked.incarnation || asked.holds != holds_) return;
  const std::vector<store::KeyValue>& found = asked.transaction.result(answer, *asked.incarnation).kvs;
  switch (incarnation_.judge(found, asked.at, asked.mark)) {
    case Incarnation::HolderVerdict::kNothing:
      break;
    case Incarnation::HolderVerdict::kAskAgain:
      readBy(asked.at + retry_.next() / 4);
      break;
    case Incarnation::HolderVerdict::kHolder:
      tellHolder();
      break;
  }
}

// A write that the store refuses is not tried again for a while: what can be read is confirmed without it.
void Confirmation::failed(const StoreError& error, Write write) {
  const BootClock::time_point now = context_.now();
  context_.counters.confirmation_failures.add();
  if (write != Write::kNothing && isRefusal(error)) {
    context_.trouble.failed(kConfirming, error);
    write == Write::kBeat ? beat_.refused() : incarnation_.refused();
    return readBy(now);
  }
  if (error.code != ErrorCode::kLeaseNotFound) {
    context_.trouble.failed(kConfirming, error);
  } else if (on_standstill_) {
    on_standstill_();  // whether the lease has ended, its next renewal says
  }
  doubtWatch();
  // A beat that is due, too: a call to an endpoint that is away fails at once.
  not_before_ = now + retry_.next();
  readBy(not_before_);
}

BootClock::time_point Confirmation::nextDue() const {
  if (table_.state() == TableFreshness::State::kEmpty && !incarnation_.isHeld()) return BootClock::time_point::max();
  return std::max(std::min(next_read_, table_.beatDue()), not_before_);
}

void Confirmation::doubtWatch() {
  next_doubt_ = context_.now() + grace_;
  if (on_doubt_) on_doubt_();
}

void Confirmation::askSoon() {
  readBy(context_.now());
  wake_.set();
}

void Confirmation::tellHolder() {
  if (on_holder_) on_holder_();
}

void Confirmation::loaded(int64_t revision, uint64_t cluster_id) {
  table_.loaded(revision, cluster_id);
  askSoon();
}

// Where one member of etcd ends, many nodes come here at once: what need not be known now is asked with the next question,
// which is at another time for each.
void Confirmation::watchOpened(bool is_current) {
  table_.watchOpened();
  ++watches_;
  if (slot_.watchOpened(is_current)) tellHolder();
  if (!is_current) askSoon();
}

void Confirmation::watchEnded(bool was_reset) {
  if (was_reset) incarnation_.renew();
  table_.watchEnded();
  slot_.watchEnded();
}

void Confirmation::hold(std::string uuid, int64_t lease, HeldKey slot, Incarnation::Written written,
                        const node::Standstill::Mark& mark) {
  letGo();
  incarnation_.hold(std::move(uuid), lease, std::move(written), mark);
  slot_.hold(std::move(slot));
  askSoon();
}

void Confirmation::letGo() {
  ++holds_;
  incarnation_.letGo();
  slot_.letGo();
}

void Confirmation::noteStandstill() {
  if (!incarnation_.isHeld() || !incarnation_.stoodStill()) return;
  standstill_.noteGeneration();  // also for a clock that is set back before all is confirmed
  context_.log.info("the wall clock has jumped, or this machine has stood still: confirming the name");
  suspect();
}

// As watchEnded() of a watch that was reset.
void Confirmation::noteBreak() {
  const uint64_t breaks = context_.store.breaks();
  if (std::exchange(breaks_, breaks) == breaks) return;
  if (watches_elsewhere_ && watches_elsewhere_()) incarnation_.renew();
}

void Confirmation::suspect() {
  context_.counters.standstills.add();
  incarnation_.doubt();
  if (on_standstill_) on_standstill_();
  askSoon();
}

}  // namespace idetcd::naming
