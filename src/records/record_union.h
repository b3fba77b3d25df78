// Joins the names of two stores while a cluster moves from one etcd to another: a name has the records of both. The
// sum is fresh while both are, since a name that one lacks may be in the other, and is complete once both are.
#pragma once

#include "records/record_store.h"

namespace idetcd::records {

class RecordUnion {
 public:
  // From when on the sum is no fresher and no more complete than the second store.
  enum class Second { kNeeded, kOnceFresh };

  // As Options of both. `first` and `second` outlive end().
  RecordUnion(EpochDomain& epochs, RecordStore::Options options, RecordStore& first, RecordStore& second,
              Second counts);

  // --- writer of both stores, which is that of the sum, too ---
  // Takes in what they hold, and follows them from then on. Once.
  void begin();
  // They are not looked at any more.
  void end();

  // --- readers ---
  RecordStore& sum() { return sum_; }

 private:
  class Part;
  void take(Source source, const Entry& entry);
  void drop(Source source, const Entry& entry);
  int64_t serial() const;
  void setFreshness();

  RecordStore sum_;
  RecordStore& first_;
  RecordStore& second_;
  bool second_counts_;
  std::shared_ptr<Part> first_part_;
  std::shared_ptr<Part> second_part_;
};

}  // namespace idetcd::records
