// A zone from the messages of a zone transfer: of a whole zone (AXFR, RFC 5936 §2.2), or of the changes since a copy (IXFR, RFC 1995 §4).
#pragma once

#include "base/result.h"
#include "zones/zone_builder.h"

namespace idetcd::zones {

// The order of a transfer's records, of which the zone's SOA records are the marks. Errors say what is wrong with it.
class TransferCourse {
 public:
  // `have`: the serial of the copy to which changes may belong; nothing: the zone has to be whole.
  explicit TransferCourse(std::optional<uint32_t> have) : have_(have) {}

  // The next record: the zone's SOA, or another.
  Result<void> addSoa(uint32_t serial);
  Result<void> addOther();

  bool hasEnded() const { return step_ == Step::kEnd; }
  // Known behind the second record; before that neither.
  bool isIncremental() const { return is_incremental_; }
  bool isWhole() const { return step_ == Step::kWhole || (step_ == Step::kEnd && !is_incremental_); }
  bool isRemoving() const { return step_ == Step::kRemoving; }  // else it adds

 private:
  enum class Step : uint8_t { kBegin, kFirstSoa, kWhole, kRemoving, kAdding, kEnd };

  const std::optional<uint32_t> have_;
  Step step_ = Step::kBegin;
  bool is_incremental_ = false;
  uint32_t newest_ = 0;   // of the first SOA
  uint32_t current_ = 0;  // to which the changes lead that are added
};

// Keeps the messages until all have come. One thread.
class TransferReader {
 public:
  static constexpr size_t kMaxBytes = size_t{2} << 30;
  static constexpr size_t kMessageOverhead = 64;  // of memory, which counts, too

  // `have`: see TransferCourse.
  explicit TransferReader(const dns::Name& origin, std::optional<uint32_t> have = std::nullopt)
      : origin_(origin), course_(have) {}

  // The next message, a response. True: it was the last one. Errors say what is wrong with it.
  Result<bool> add(std::span<const uint8_t> message);
  const TransferCourse& course() const { return course_; }

  using Messages = std::vector<std::vector<uint8_t>>;
  Messages take() { return std::exchange(messages_, {}); }

 private:
  const dns::Name origin_;
  Messages messages_;
  size_t bytes_ = 0;
  TransferCourse course_;
};

// REQUIRES: all that a TransferReader has taken. `from`: what errors begin with. `copy`: whose serial the reader had, if it had one;
// changes that do not fit it, because they remove what it has not or add what it has, are an error, and so are many more than it
// has records. Takes long for a large zone; any thread.
Result<std::unique_ptr<Zone>> buildZone(const dns::Name& origin, HashSeed seed,
                                        const TransferReader::Messages& messages, const std::string& from,
                                        const std::shared_ptr<const Zone>& copy = nullptr);

// The serial in the answer to a query for the zone's SOA; nothing: it has none.
std::optional<uint32_t> readSerial(std::span<const uint8_t> message, const dns::Name& origin);

}  // namespace idetcd::zones
