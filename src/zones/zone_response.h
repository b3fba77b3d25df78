// Writes RRsets behind a question, with names compressed against the question and each other (RFC 1035 §4.1.4). No
// allocation. One thread.
#pragma once

#include "dns/packed_response.h"
#include "dns/record_writer.h"
#include "dns/response.h"
#include "records/entry.h"

namespace idetcd::zones {

class ZoneResponse {
 public:
  // As dns::ResponseBuilder.
  ZoneResponse(const dns::Query& query, size_t limit);

  enum class Section : uint8_t { kAnswer, kAuthority };
  // All records of `rrset` with this owner (folded); one that does not fit truncates the response. With `ttl_seconds` in
  // place of the records' own TTL, if that is larger.
  void add(Section section, std::span<const uint8_t> owner, const records::Entry::Rrset& rrset,
           uint32_t ttl_seconds = std::numeric_limits<uint32_t>::max());
  // The records of `signatures` that sign `type`.
  void addSignatures(Section section, std::span<const uint8_t> owner, const records::Entry::Rrset& signatures,
                     uint16_t type, uint32_t ttl_seconds = std::numeric_limits<uint32_t>::max());
  void addRecord(Section section, std::span<const uint8_t> owner, uint16_t type, uint32_t ttl_seconds,
                 std::span<const uint8_t> rdata);
  // To the additional section: all of it, with its signatures if there are any, or nothing. False: it does not fit.
  bool addAdditional(std::span<const uint8_t> owner, const records::Entry::Rrset& rrset,
                     const records::Entry::Rrset& signatures);

  // One record, as above.
  bool addAdditional(std::span<const uint8_t> owner, uint16_t type, uint32_t ttl_seconds,
                     std::span<const uint8_t> rdata);

  void setEde(dns::EdeCode ede) { response_.setEde(ede); }
  void cutHere() { response_.cutHere(); }
  void truncate() { response_.truncate(); }
  size_t finish(dns::Rcode rcode, uint16_t flags) { return response_.finish(rcode, flags); }

 private:
  static constexpr size_t kBufferSize = 4096;  // of a record without large RDATA, or of an additional RRset
  static constexpr size_t kMaxKnown = 48;
  static constexpr uint8_t kMaxJumps = 8;  // of one name: programs refuse long chains

  // A name that stands in the message, and can be pointed to.
  struct Known {
    uint16_t offset;
    uint8_t size;   // without compression
    uint8_t jumps;  // pointers in it, each of which leads to the next one
  };

  void append(Section section, std::span<const uint8_t> bytes, uint16_t count);
  bool isWhole(std::span<const uint8_t> owner) const;
  void put(std::span<const uint8_t> bytes);
  void put16(uint16_t value);
  void putHead(std::span<const uint8_t> owner, uint16_t type, uint32_t ttl_seconds, size_t rdata_size);
  void putName(std::span<const uint8_t> name, bool compress);
  void putRdata(const dns::RdataLayout& layout, std::span<const uint8_t> rdata);
  bool putAdditional(std::span<const uint8_t> owner, uint16_t type, uint32_t ttl_seconds,
                     std::span<const uint8_t> rdata);
  uint8_t byteAt(size_t offset) const { return offset < base_ ? message_[offset] : buffer_[offset - base_]; }
  bool isNameAt(size_t offset, std::span<const uint8_t> name) const;
  void remember(std::span<const uint8_t> name, size_t size, size_t offset, uint8_t jumps);

  const dns::Query& query_;
  const uint8_t* const message_;
  dns::ResponseBuilder response_;
  std::array<uint8_t, kBufferSize> buffer_;  // the record that is being written, at base_ of the message
  size_t size_ = 0;
  size_t base_;
  std::array<Known, kMaxKnown> known_;
  size_t known_count_ = 0;
  bool is_full_ = false;  // something did not fit: nothing but TC is said
};

// Puts the addresses of the queried name itself, which come first in the response of `size` bytes over the query, into that
// order. Nothing for other types.
void orderAddresses(const dns::Query& query, size_t size, const dns::AddressOrder& order);

// Calls visit(ttl_seconds, rdata) for each record.
template <typename Visit>
void visitRecords(const records::Entry::Rrset& rrset, Visit visit) {
  std::span<const uint8_t> wire = rrset.wire;
  while (!wire.empty()) {
    const size_t size = dns::load16(wire.data() + dns::kRecordHeadSize - 2);
    visit(dns::load32(wire.data() + dns::kTtlOffset), wire.subspan(dns::kRecordHeadSize, size));
    wire = wire.subspan(dns::kRecordHeadSize + size);
  }
}

}  // namespace idetcd::zones
