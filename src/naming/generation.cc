#include "naming/generation.h"

#include "base/text.h"
#include "naming/keyspace.h"
#include "naming/record_codec.h"
#include "store/transaction.h"

namespace idetcd::naming {
namespace {

using runtime::Task;
using store::Compare;
using store::StoreResult;
using namespace std::chrono_literals;

constexpr std::string_view kReading = "reading the generation";
constexpr std::string_view kNoting = "noting the generation";
constexpr size_t kNoters = 3;
constexpr std::chrono::nanoseconds kUntilNoted = 100ms;     // by the first
constexpr std::chrono::nanoseconds kUntilNextNotes = 1s;    // each, after the one before
constexpr std::chrono::nanoseconds kBetweenReads = 4s;      // all of them would have noted it
constexpr std::chrono::nanoseconds kLongestBetweenReads = 5min;
constexpr std::chrono::nanoseconds kUntilAnyCatchesUp = 16s;
constexpr std::chrono::nanoseconds kReadAgain = 5s;

}  // namespace

Generation::Generation(Context& context, slots::NamePattern pattern, records::RecordStore& records,
                       std::function<int64_t()> own_id, bool may_note, std::function<void()> on_change)
    : context_(context),
      key_(generationKey(pattern.text())),
      records_(records),
      own_id_(std::move(own_id)),
      may_note_(may_note),
      on_change_(std::move(on_change)),
      changed_(context.scheduler),
      count_(std::move(pattern)) {}

std::optional<int64_t> Generation::of(const Members& members) const {
  const bool is_settled = is_loaded_ && !count_.isUnsettled() && count_.generation() == records_.generation();
  return is_settled && count_.hasExactly(members) ? std::optional(records_.generation()) : std::nullopt;
}

void Generation::goOnFrom(int64_t generation) {
  records_.setGeneration(std::max(generation, records_.generation()));
  reads_ = Reads::kSecond;
  read_at_ = context_.now();
  changed_.set();
}

void Generation::readAgain() {
  if (reads_ != Reads::kNone) return;
  reads_ = Reads::kSecond;
  read_at_ = context_.now();
  changed_.set();
}

// --- mirror ---

void Generation::beginSnapshot(bool revisions_restarted) {
  count_.beginSnapshot(revisions_restarted);
  if (!revisions_restarted) return;
  noted_ = {};
  key_revision_ = 0;
  is_loaded_ = false;
  ++restarts_;
}

void Generation::endSnapshot() {
  count_.endSnapshot();
  reads_ = is_loaded_ && !count_.isUnsettled() ? Reads::kSecond : Reads::kFirst;
  read_at_ = context_.now();
  changed_.set();
}

void Generation::endBatch() { publish(); }

void Generation::publish() {
  if (!is_loaded_ || count_.generation() <= records_.generation()) return;
  records_.setGeneration(count_.generation());
  changed_.set();
  on_change_();
}

// --- the key ---

// By catchUp() alone the offset is another than what was noted.
std::optional<size_t> Generation::place() const {
  const int64_t own = own_id_();
  const size_t before = count_.nodesBelow(own, kNoters);
  if (own != 0 && before < kNoters) return before;
  const bool is_last_resort = before == 0 || count_.note().offset != noted_.offset;
  return is_last_resort && may_note_ ? std::optional(kNoters - 1) : std::nullopt;
}

Task<void> Generation::keep() {
  constexpr std::chrono::hours kUntilChange{1};
  while (!context_.lifetime.stopping()) {
    const bool reads = reads_ != Reads::kNone;
    const std::chrono::nanoseconds until_read = read_at_ - context_.now();
    if (reads && until_read <= 0ns) {
      co_await read();
      continue;
    }
    co_await changed_.wait(reads ? until_read : kUntilChange);
    changed_.reset();
    const std::optional<size_t> place = this->place();
    if (!is_loaded_ || !place || count_.isShownBy(noted_)) continue;
    const bool go_on = co_await context_.lifetime.pause(kUntilNoted + *place * kUntilNextNotes);
    if (!go_on || !is_loaded_ || count_.isShownBy(noted_)) continue;
    co_await note();
  }
}

Task<void> Generation::read() {
  const uint64_t restarts = restarts_;
  const StoreResult<store::RangeResult> found = co_await context_.store.range(store::KeyRange::single(key_), {});
  if (context_.lifetime.stopping()) co_return;
  if (found && restarts != restarts_) co_return;  // of the store before
  if (!found) {
    context_.trouble.failed(kReading, found.error());
    read_at_ = context_.now() + context_.jitter.around(kReadAgain, 0.5);
    co_return;
  }
  context_.trouble.succeeded(kReading);
  learn(*found);
  const bool was_first = reads_ == Reads::kFirst;
  reads_ = was_first ? Reads::kSecond : Reads::kNone;
  is_loaded_ = true;
  count_.settle(!was_first);
  const bool has_to_catch_up = !was_first && isBehind();
  between_reads_ = has_to_catch_up ? std::min<std::chrono::nanoseconds>(2 * between_reads_, kLongestBetweenReads) : kBetweenReads;
  read_at_ = context_.now() + context_.jitter.around(between_reads_, 0.1);
  if (has_to_catch_up) catchUp();
  publish();
}

// The store was set back: this node has said more than its revisions come to, and not by a stale read, which would have been
// followed by others. Those that note changes do so with the offset, and the others read it: some time later they note it
// themselves, as those have seen nothing of what was before.
void Generation::catchUp() {
  reads_ = Reads::kSecond;
  if (!may_note_ || (!place() && between_reads_ < kUntilAnyCatchesUp)) return;
  count_.goOnFrom(records_.generation());
  changed_.set();
}

void Generation::learn(const store::RangeResult& found) {
  if (found.kvs.empty()) {
    noted_ = {};
    key_revision_ = 0;
    return;
  }
  const store::KeyValue& kv = found.kvs.front();
  if (kv.mod_revision == key_revision_) return;
  key_revision_ = kv.mod_revision;
  const auto note = GenerationCount::Note::parse(kv.value);
  noted_ = note.value_or(GenerationCount::Note{});
  if (!note) {
    context_.log.warning("etcd key {} is no generation: {}; what is known without it counts", key_,
                         printable(kv.value));
    return changed_.set();  // it may have to be noted again
  }
  noted_.revision = std::min(noted_.revision, kv.mod_revision);
  count_.learn(noted_);
}

// If another node has noted something meanwhile, that is read.
Task<void> Generation::note() {
  const GenerationCount::Note noted = count_.note();
  store::Transaction transaction;
  transaction.require({.key = key_, .target = Compare::Target::kModRevision, .number = key_revision_});
  transaction.put({key_, noted.text(), 0});
  const auto there = transaction.read({store::KeyRange::single(key_), {}}, store::Transaction::Branch::kFailure);
  StoreResult<store::TxnResult> answer = co_await context_.store.txn(transaction.request());
  if (context_.lifetime.stopping()) co_return;
  changed_.set();  // there may be more
  if (!answer) {
    context_.trouble.failed(kNoting, answer.error());
    co_await context_.lifetime.pause(context_.jitter.around(kReadAgain, 0.5));
    co_return;
  }
  context_.trouble.succeeded(kNoting);
  if (!answer->succeeded) {
    if (transaction.fits(*answer)) learn(transaction.result(*answer, there));
    publish();
    co_return;
  }
  key_revision_ = answer->revision;
  noted_ = noted;
}

}  // namespace idetcd::naming
