// The messages of a zone transfer: all records of a zone (RFC 5936 §2.2), or of changes (ZoneJournal::since()), the newest SOA
// first and last. Each message has the question, to whose name others are compressed, and as many records as fit kSize, or one
// that is larger. One thread.
#pragma once

#include "dns/query.h"
#include "zones/zone_copy.h"

namespace idetcd::zones {

class TransferWriter {
 public:
  static constexpr size_t kSize = size_t{16} << 10;  // no further can names be pointed to

  // `query`: for the zone's name. `flags`: of the header.
  TransferWriter(const dns::Query& query, uint16_t flags, std::unique_ptr<ZoneCopy> zone);

  // The size of the next message, in `room`; 0: all was written. REQUIRES: `room` takes any record.
  size_t next(std::span<uint8_t> room);

  const ZoneCopy& zone() const { return *zone_; }
  size_t records() const { return records_; }  // that were written, both SOAs among them
  size_t bytes() const { return bytes_; }

 private:
  enum class Step : uint8_t { kFirstSoa, kRecords, kLastSoa, kDone };

  void advance();
  void put(std::span<const uint8_t> bytes);
  void put16(uint16_t value);
  void putName(std::span<const uint8_t> name);
  void putOwner(std::span<const uint8_t> owner);
  void putRecord(const ZoneCopy::Record& record);

  std::unique_ptr<ZoneCopy> zone_;
  dns::Name origin_;
  std::vector<uint8_t> head_;  // header and question
  bool with_opt_;              // in the first message
  bool dnssec_ok_;
  Step step_ = Step::kFirstSoa;
  ZoneCopy::Record record_;  // the next one
  size_t records_ = 0;
  size_t bytes_ = 0;

  // Of the message that is being written.
  std::span<uint8_t> room_;
  size_t size_ = 0;
  std::vector<uint8_t> owner_;  // of the last record
  size_t owner_offset_ = 0;     // 0: it cannot be pointed to
};

}  // namespace idetcd::zones
