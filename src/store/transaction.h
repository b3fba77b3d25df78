// Puts a transaction together, so that its results are asked for by what reads them, not by a number.
#pragma once

#include <variant>

#include "store/store.h"

namespace idetcd::store {

class Transaction {
 public:
  enum class Branch { kSuccess, kFailure, kBoth };
  // One read, by its place among the results of either branch.
  struct Read {
    size_t on_success = 0;
    size_t on_failure = 0;
  };

  void require(Compare compare) { request_.compares.push_back(std::move(compare)); }
  void setTimeout(std::chrono::nanoseconds timeout) { request_.timeout = timeout; }
  void setRepeatable() { request_.repeatable = true; }
  // If all that is required holds.
  void put(PutOp put) { request_.success.emplace_back(std::move(put)); }
  void erase(std::string key) { request_.success.emplace_back(DeleteOp{KeyRange::single(std::move(key))}); }
  Read read(const RangeOp& range, Branch branch = Branch::kSuccess) {
    Read made;
    if (branch != Branch::kFailure) made.on_success = add(range, &request_.success, &reads_[1]);
    if (branch != Branch::kSuccess) made.on_failure = add(range, &request_.failure, &reads_[0]);
    return made;
  }

  TxnRequest request() const {
    TxnRequest made = request_;
    if (made.compares.empty()) made.failure.clear();  // nothing fails
    return made;
  }
  // Whether the store's answer has a result for each read.
  bool fits(const TxnResult& answer) const {
    return std::ranges::all_of(reads_[answer.succeeded], [&answer](size_t at) {
      return at < answer.results.size() && std::holds_alternative<RangeResult>(answer.results[at]);
    });
  }
  // REQUIRES: fits(answer), and the read is of the branch that was taken.
  RangeResult& result(TxnResult& answer, Read read) const {
    const size_t at = answer.succeeded ? read.on_success : read.on_failure;
    assert(std::ranges::find(reads_[answer.succeeded], at) != reads_[answer.succeeded].end());
    return std::get<RangeResult>(answer.results[at]);
  }

 private:
  static size_t add(const RangeOp& range, std::vector<Op>* ops, std::vector<size_t>* reads) {
    reads->push_back(ops->size());
    ops->emplace_back(range);
    return reads->back();
  }

  TxnRequest request_;
  std::array<std::vector<size_t>, 2> reads_;  // their places: on failure, on success
};

}  // namespace idetcd::store
