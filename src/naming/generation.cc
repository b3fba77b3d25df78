#include "naming/generation.h"

#include <xxhash.h>

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
constexpr std::chrono::nanoseconds kReadAgain = 5s;

// A hand may write anything.
int64_t numberOf(std::string_view text) {
  return std::clamp<int64_t>(parseNumber<int64_t>(text).value_or(0), 0, kMaxToken);
}

}  // namespace

Generation::Member Generation::memberOf(const store::KeyValue& kv) {
  return {.create_revision = kv.create_revision, .value = XXH3_64bits(kv.value.data(), kv.value.size())};
}

Generation::Generation(Context& context, slots::NamePattern pattern, records::RecordStore& records,
                       std::function<int64_t()> own_id, bool may_note, std::function<void()> on_change)
    : context_(context),
      pattern_(std::move(pattern)),
      key_(generationKey(pattern_.text())),
      records_(records),
      own_id_(std::move(own_id)),
      may_note_(may_note),
      on_change_(std::move(on_change)),
      changed_(context.scheduler) {}

std::optional<int64_t> Generation::of(const Members& members) const {
  const bool is_settled = is_loaded_ && vanished_at_ == 0 && generation() == records_.generation();
  if (!is_settled || members.size() != members_.size()) return std::nullopt;
  for (const auto& [id, member] : members) {
    const auto known = members_.find(id);
    if (known == members_.end() || static_cast<const Member&>(known->second) != member) return std::nullopt;
  }
  return records_.generation();
}

// --- mirror ---

void Generation::put(const store::KeyValue& kv, bool by_node) {
  const std::optional<int64_t> id = pattern_.recognise(kv.key);
  if (!id) return;
  const Member member = memberOf(kv);
  const auto [known, is_new] = members_.try_emplace(*id);
  Entry& entry = known->second;
  // The Go plugin writes the same value again and again; who reads that later sees when the key was made, and not what it
  // said before.
  const int64_t shown = by_node ? kv.mod_revision : kv.create_revision;
  const bool is_same_key = !is_new && entry.create_revision == member.create_revision;
  raise(shown);
  if (is_same_key && entry.value != member.value) raise(kv.mod_revision);
  entry = {member, shown, by_node};
}

void Generation::remove(std::string_view name, int64_t revision) {
  const std::optional<int64_t> id = pattern_.recognise(name);
  if (id && members_.erase(*id) > 0) raise(revision);
}

void Generation::beginSnapshot(bool revisions_restarted) {
  if (vanished_at_ == 0) newest_before_ = newest_;
  if (!revisions_restarted) return;
  vanished_at_ = newest_ = newest_before_ = offset_ = 0;
  key_revision_ = noted_revision_ = noted_offset_ = 0;
  is_loaded_ = false;
  ++restarts_;
}

void Generation::vanished(std::string_view name, int64_t revision) {
  const std::optional<int64_t> id = pattern_.recognise(name);
  if (id && members_.erase(*id) > 0) vanished_at_ = revision;
}

void Generation::endSnapshot() {
  for (const auto& [id, member] : members_) raise(member.shown);  // those that a snapshot of before has put, too
  reads_ = is_loaded_ && vanished_at_ == 0 ? Reads::kSecond : Reads::kFirst;
  read_at_ = context_.now();
  changed_.set();
}

void Generation::endBatch() { publish(); }

void Generation::goOnFrom(int64_t generation) {
  records_.setGeneration(std::max(generation, records_.generation()));
  reads_ = Reads::kSecond;
  read_at_ = context_.now();
  changed_.set();
}

// --- the key ---

void Generation::publish() {
  if (!is_loaded_) return;
  if (generation() <= records_.generation()) return;
  records_.setGeneration(generation());
  changed_.set();
  on_change_();
}

bool Generation::isNoted() const {
  int64_t shown = noted_revision_;
  for (const auto& [id, member] : members_) shown = std::max(shown, member.shown);
  return shown >= newest_ && offset_ == noted_offset_;
}

std::optional<size_t> Generation::place() const {
  const int64_t own = own_id_();
  size_t before = 0;
  for (const auto& [id, member] : members_) {
    if (member.by_node && (own == 0 || id < own) && ++before == kNoters) return std::nullopt;
  }
  if (own != 0) return before;
  return before == 0 && may_note_ ? std::optional(kNoters - 1) : std::nullopt;
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
    if (!is_loaded_ || !place || isNoted()) continue;
    const bool go_on = co_await context_.lifetime.pause(kUntilNoted + *place * kUntilNextNotes);
    if (!go_on || !is_loaded_ || isNoted()) continue;
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
  settleVanished();
  const bool is_behind = generation() < records_.generation();
  if (!was_first && is_behind) catchUp();
  between_reads_ = !was_first && is_behind ? std::min<std::chrono::nanoseconds>(2 * between_reads_, kLongestBetweenReads) : kBetweenReads;
  read_at_ = context_.now() + context_.jitter.around(between_reads_, 0.1);
  publish();
}

// The store was set back: what this node has said is above its revisions, and not by a stale read, which would have been
// followed by others. Those that may note the offset do so, and the others read it.
void Generation::catchUp() {
  reads_ = Reads::kSecond;
  if (!place()) return;
  offset_ = records_.generation() + 1 - newest_;
  changed_.set();
}

void Generation::settleVanished() {
  if (vanished_at_ == 0) return;
  if (newest_ <= newest_before_ && reads_ != Reads::kNone) return;
  if (newest_ <= newest_before_) raise(vanished_at_);
  vanished_at_ = 0;
}

// Where the offset is another than this node would take, that of the key counts.
void Generation::learn(const store::RangeResult& found) {
  if (found.kvs.empty()) {
    key_revision_ = noted_revision_ = noted_offset_ = 0;
    return;
  }
  const store::KeyValue& kv = found.kvs.front();
  if (kv.mod_revision == key_revision_) return;
  const std::string_view value = kv.value;
  const size_t space = std::min(value.find(' '), value.size());
  key_revision_ = kv.mod_revision;
  noted_revision_ = std::min(numberOf(value.substr(0, space)), kv.mod_revision);
  noted_offset_ = numberOf(value.substr(std::min(space + 1, value.size())));
  raise(noted_revision_);
  offset_ = noted_offset_;
}

// If another node has noted something meanwhile, that is read.
Task<void> Generation::note() {
  const int64_t newest = newest_;
  const int64_t offset = offset_;
  store::Transaction transaction;
  transaction.require({.key = key_, .target = Compare::Target::kModRevision, .number = key_revision_});
  transaction.put({key_, fmt::format("{} {}", newest, offset), 0});
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
  noted_revision_ = newest;
  noted_offset_ = offset;
}

}  // namespace idetcd::naming
