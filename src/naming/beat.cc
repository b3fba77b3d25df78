#include "naming/beat.h"

#include <cmath>

namespace idetcd::naming {

Beat::Beat(Context& context, std::vector<std::string> keys, std::chrono::nanoseconds lease,
           std::chrono::nanoseconds patience)
    : context_(context), keys_(std::move(keys)), lease_(lease), patience_(patience), revisions_(keys_.size(), 0) {
  drawWait();
}

void Beat::addWrite(store::Transaction* transaction) const {
  for (size_t i = 0; i < keys_.size(); ++i) {
    transaction->require({.key = keys_[i], .target = store::Compare::Target::kModRevision, .number = revisions_[i]});
    transaction->put({keys_[i], "{}", 0});
  }
}

Beat::Reads Beat::addReads(store::Transaction* transaction) const {
  Reads reads;
  for (const std::string& key : keys_) {
    const store::RangeOp range{store::KeyRange::single(key), {.keys_only = true}};
    reads.push_back(transaction->read(range, store::Transaction::Branch::kBoth));
  }
  return reads;
}

void Beat::learn(const store::Transaction& transaction, store::TxnResult& answer, const Reads& reads,
                 int64_t delivered) {
  std::vector<int64_t> found;
  for (const store::Transaction::Read read : reads) {
    const std::vector<store::KeyValue>& kvs = transaction.result(answer, read).kvs;
    found.push_back(kvs.empty() ? 0 : kvs.front().mod_revision);
  }
  learn(found, delivered);
}

void Beat::saw(std::string_view key, int64_t revision, int64_t delivered) {
  std::vector<int64_t> revisions = revisions_;
  for (size_t i = 0; i < revisions.size(); ++i) {
    if (keys_[i] == key) revisions[i] = std::max(revisions[i], revision);
  }
  learn(revisions, delivered);
}

void Beat::learn(const std::vector<int64_t>& revisions, int64_t delivered) {
  if (revisions == revisions_) return;
  const int64_t before = revision();
  revisions_ = revisions;
  // One that was there before this node came may be of any age.
  if (before != 0 || revision() > delivered) seen_at_ = context_.now();
  if (before <= delivered) beginPatience();
}

// Every range has had one at this revision or later: an event of each is in the store.
int64_t Beat::revision() const {
  return revisions_.empty() ? 0 : *std::min_element(revisions_.begin(), revisions_.end());
}

BootClock::time_point Beat::dueFor(BootClock::time_point waits_since, int64_t delivered) const {
  if (revision() > delivered || isRefused()) return BootClock::time_point::max();
  return std::max(waits_since, seen_at_ + lease_ / 4) + wait_;
}

// Exponentially distributed towards the end of an eighth of the lease (Nonnenmacher and Biersack: scalable feedback; as
// in RFC 5740 §5.5): the first of 10,000 nodes writes early, few others before its event reaches them, and a lone node
// waits little longer.
void Beat::drawWait() {
  constexpr double kLogOfNodes = 10.0;
  const double uniform =
      static_cast<double>(context_.jitter.around(std::chrono::nanoseconds(500'000'000), 1.0).count()) / 1e9;
  const double share = std::log(uniform * (std::exp(kLogOfNodes) - 1) + 1) / kLogOfNodes;
  wait_ = std::chrono::nanoseconds(static_cast<int64_t>(share * static_cast<double>((lease_ / 8).count())));
}

}  // namespace idetcd::naming
