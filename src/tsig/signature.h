// Transaction signatures (RFC 8945): a TSIG record at the end of a message says with which key it was signed, and when. The
// MAC covers the message, the record, and the MAC before: of a response the query's, of a later message of a zone transfer
// the last one's (§5.3.1). Times are seconds since 1970. No I/O. One thread.
#pragma once

#include "base/result.h"
#include "dns/wire.h"
#include "tsig/key.h"

namespace idetcd::tsig {

inline constexpr uint16_t kFudgeSeconds = 300;  // by which the clocks of both may differ (§10)

// The error of a TSIG record (§3).
enum class TsigError : uint16_t { kNone = 0, kBadSig = 16, kBadKey = 17, kBadTime = 18, kBadTrunc = 22 };

// A TSIG record as it was read.
struct Record {
  size_t offset = 0;  // in the message
  dns::Name key{};
  dns::Name algorithm{};
  uint64_t signed_at = 0;
  uint16_t fudge_seconds = 0;
  std::vector<uint8_t> mac{};
  uint16_t original_id = 0;
  uint16_t error = 0;
  std::vector<uint8_t> other{};
};

// Nothing: the record at this offset cannot be read. Its owner may be compressed: dnspython does that.
std::optional<Record> readRecord(std::span<const uint8_t> message, size_t offset);

// Where the TSIG record of the message is, its last one; 0: it has none, or cannot be read.
size_t findRecord(std::span<const uint8_t> message);

// How a signed query is to be answered.
struct QueryCheck {
  enum class Kind : uint8_t {
    kGood,
    kMalformed,  // FORMERR
    kRefused,    // NOTAUTH, with `error` in a TSIG record
  };
  Kind kind = Kind::kMalformed;
  TsigError error = TsigError::kNone;
  Record record{};
  const Key* key = nullptr;  // of the keyring; null: there is none
};

// The TSIG record of the query is at `offset`. In the order of §5.2: key, MAC, time; a MAC that was truncated is BADTRUNC,
// however much is left of it.
QueryCheck checkQuery(std::span<const uint8_t> query, size_t offset, const Keyring& keys, uint64_t now);

// Signs the messages of one side of a transaction, one after the other.
class Signer {
 public:
  // Of a query, or with its MAC of what answers it.
  explicit Signer(Key key, std::vector<uint8_t> query_mac = {}) : key_(std::move(key)), mac_(std::move(query_mac)) {}

  // Of a record without `other` data.
  static size_t recordSize(const Key& key);
  // Appends a TSIG record to the message in the first `size` bytes, and counts it in the header. Returns the new size.
  // REQUIRES: there is room.
  size_t sign(std::span<uint8_t> buffer, size_t size, uint64_t now);
  // The same for a response with BADTRUNC or BADTIME, which says what time it is here (§5.2.3). `query`: its record.
  size_t signError(std::span<uint8_t> buffer, size_t size, TsigError error, const Record& query, uint64_t now);

  const std::vector<uint8_t>& mac() const { return mac_; }  // of the last message

 private:
  size_t append(std::span<uint8_t> buffer, size_t size, Record record);

  const Key key_;
  std::vector<uint8_t> mac_;
  bool is_first_ = true;
};

// Appends a record without a MAC, for a response with BADKEY or BADSIG (§5.3.2). As Signer::sign().
size_t appendUnsigned(std::span<uint8_t> buffer, size_t size, TsigError error, const Record& query);

// Verifies what answers a query.
class Verifier {
 public:
  static constexpr size_t kMaxUnsigned = 99;  // messages in a row (§5.3.1)

  Verifier(Key key, std::vector<uint8_t> query_mac) : key_(std::move(key)), mac_(std::move(query_mac)) {}

  // The next message. `offset`: of its TSIG record; 0: it has none, which the first one and the last one must have.
  Result<void> verify(std::span<const uint8_t> message, size_t offset, uint64_t now);
  // Whether the last message was signed.
  bool isSigned() const { return unsigned_ == 0 && !is_first_; }

 private:
  const Key key_;
  std::vector<uint8_t> mac_;
  std::vector<uint8_t> digest_;  // of messages that were not signed
  size_t unsigned_ = 0;
  bool is_first_ = true;
};

}  // namespace idetcd::tsig
