// A response as one value: its records in wire form, as they stand behind any client's question, and all that is needed
// to write them there. One block of memory that holds no pointer, so it is kept, copied and compared as bytes:
//
//   PackedResponse (24 bytes) | records | 0 or 1 byte | the offset of each record's TTL, 2 bytes each
//
// Every compression pointer in the records is right behind the question that the response was made for, in any case.
// The records of the authority section that prove something come first in it. Immutable but for copyTo()'s caller; any
// thread.
#pragma once

#include <new>

#include "base/ip_address.h"
#include "dns/query.h"
#include "dns/wire.h"

namespace idetcd::dns {

// The sections of a response. Sizes are bytes of the records, from their beginning.
struct ResponseSections {
  Rcode rcode = Rcode::kNoError;
  uint16_t answers = 0;
  uint16_t authorities = 0;
  uint16_t additionals = 0;    // without OPT
  uint16_t proofs = 0;         // of `authorities`, those that must not be left out alone: they stand in front
  uint16_t answer_size = 0;    // the answer section
  uint16_t proof_end = 0;      // and these proofs
  uint16_t authority_end = 0;  // and the answer and authority sections
  uint16_t ede = 0;            // the Extended DNS Error of whose response it is (RFC 8914 §3), if has_ede
  bool has_ede = false;
  bool authentic_data = false;
};

class PackedResponse;
struct FreePackedResponse {
  void operator()(const PackedResponse* packed) const { ::operator delete(const_cast<PackedResponse*>(packed)); }
};
using PackedResponsePtr = std::unique_ptr<const PackedResponse, FreePackedResponse>;

class PackedResponse : public ResponseSections {
 public:
  // REQUIRES: body.size() <= kMaxMessageSize; ttl_offsets in order, one a record.
  static PackedResponsePtr make(const ResponseSections& sections, std::span<const uint8_t> body,
                                std::span<const uint16_t> ttl_offsets);
  PackedResponse(const PackedResponse&) = delete;
  PackedResponse& operator=(const PackedResponse&) = delete;

  std::span<const uint8_t> body() const { return {records(), body_size_}; }
  std::span<const uint16_t> ttlOffsets() const {
    return {reinterpret_cast<const uint16_t*>(records() + align(body_size_)), ttl_count_};
  }
  // The counts as a header has them, all four, with one question.
  uint64_t counts() const {
    return uint64_t{1} << 48 | uint64_t{answers} << 32 | uint64_t{authorities} << 16 | additionals;
  }

  size_t blockSize() const { return sizeof(PackedResponse) + align(body_size_) + ttl_count_ * sizeof(uint16_t); }
  // `to` has room for blockSize() bytes and is aligned for 16-bit numbers. What is returned lives there.
  PackedResponse* copyTo(void* to) const {
    std::memcpy(to, static_cast<const void*>(this), blockSize());
    return static_cast<PackedResponse*>(to);
  }
  // Each record's TTL becomes `change(ttl)`: of a copy, before it is shared.
  template <typename Change>
  void changeTtls(Change change) {
    for (const uint16_t offset : ttlOffsets()) {
      uint8_t* ttl = const_cast<uint8_t*>(records()) + offset;
      store32(ttl, change(load32(ttl)));
    }
  }

 private:
  explicit PackedResponse(const ResponseSections& sections) : ResponseSections(sections) {}
  static constexpr size_t align(size_t size) { return (size + 1) & ~size_t{1}; }
  const uint8_t* records() const { return reinterpret_cast<const uint8_t*>(this + 1); }

  uint16_t body_size_ = 0;
  uint16_t ttl_count_ = 0;
};
static_assert(sizeof(PackedResponse) == 24 && alignof(PackedResponse) == 2);

// The order of the addresses of an answer (`loadbalance`). Any thread.
struct AddressOrder {
  uint32_t rotation = 0;  // the records begin at this one, modulo their number
  // Those within the first network come first, then the second's, and so on; each group keeps its order.
  std::span<const IpNetwork> preferred{};

  bool isGiven() const { return rotation > 0 || !preferred.empty(); }
};

// Puts `records`, A or AAAA records of `record_size` bytes each, into that order, in place. Allocates only where
// networks are preferred. REQUIRES: each has a compression pointer for its owner; at least one.
void orderAddresses(std::span<uint8_t> records, size_t record_size, const AddressOrder& order);

struct WriteOptions {
  uint32_t age_seconds = 0;               // taken off every TTL
  std::optional<uint32_t> ttl_seconds{};  // instead of counting down (stale answers, `keepttl`)
  uint32_t min_ttl_seconds = 0;           // what is counted down from, at least and at most: as the cache keeps it
  uint32_t max_ttl_seconds = std::numeric_limits<uint32_t>::max();
  std::optional<EdeCode> ede{};  // ours; else the response's
  bool minimal = false;          // where there are answers, leave out what is neither answer nor proof
  AddressOrder addresses{};      // `loadbalance`: of each run of A or AAAA records
};

// Writes the response over the query, with the client's ID, question, opcode, RD and CD, and RA. What does not fit is
// left out: first the additional section, then what proves nothing of the authority section, then, with TC, the proofs
// (RFC 4035 §3.1.1) and the RRsets at the answer's end, never a part of one (RFC 2181 §9). Returns its size. REQUIRES:
// the question is the one that the response was made for.
size_t writePackedResponse(const PackedResponse& response, const Query& query, size_t limit,
                           const WriteOptions& options);

}  // namespace idetcd::dns
