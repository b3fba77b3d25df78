// Reading one query from untrusted bytes (RFC 1035 §4.1, RFC 6891, RFC 9619). No I/O, no allocation, work bounded by
// the size of the message. Any thread.
#pragma once

#include <cstdlib>

#include "base/hash.h"
#include "dns/name.h"
#include "dns/record.h"
#include "dns/wire.h"

namespace idetcd::dns {

// Readable bytes (maybe uninitialised) behind a message, so that names are folded sixteen bytes at a time.
inline constexpr size_t kReadSlack = 16;

enum class ParseOutcome : uint8_t {
  kQuery,  // every field below is set
  // As kQuery, for AXFR or IXFR (RFC 5936, RFC 1995), and `error` too: what is answered if nobody transfers the zone.
  kTransfer,
  kError,  // answer with `error`; the question is set if question_end > kHeaderSize, EDNS if has_edns. NOTIFY and UPDATE, too
  kDrop,   // not a query: answering would loop or reflect
};

// Options of a query that ask for one in the response.
enum AskedOption : uint8_t {
  kAsksNsid = 1,          // RFC 5001
  kAsksCookie = 2,        // RFC 7873
  kAsksKeepalive = 4,     // RFC 7828
  kMisusesKeepalive = 8,  // the same with a time-out, which is the server's to say (§3.2.1)
  kTellsKeepalive = 16,   // not of the query: its response says Query::idle_timeout. Set by who keeps the connection
  kAsksPadding = 32,      // RFC 7830
  kPads = 64,             // not of the query: its response is padded. Set by who encrypts the connection
};

// The COOKIE option of a query and of its response.
struct Cookie {
  static constexpr size_t kClientSize = 8;
  static constexpr size_t kServerSize = 16;  // of those that we make (RFC 9018 §4)

  enum class Judgement : uint8_t {
    kNew,       // the client knows no cookie of this server
    kUnjudged,  // `server` may be one of ours: ServerCookies says
    kBad,       // it is none, or it is too old
    kGood,      // the client has its address, or can read what is sent there
  };

  std::array<uint8_t, kClientSize> client;
  std::array<uint8_t, kServerSize> server;  // of the query; of the response once that is set
  Judgement judgement;
  bool in_response;  // set by ServerCookies
};

struct Query {
  uint8_t* message = nullptr;
  uint16_t size = 0;
  uint16_t question_end = kHeaderSize;  // offset behind the question; the header's size if there is none to echo
  uint16_t flags = 0;
  uint16_t qtype = 0;
  uint16_t qclass = 0;
  uint16_t qname_size = 0;
  // The records' content: without records, these eight bytes are written at once.
  uint16_t udp_payload = kMinUdpPayload;  // what the client accepts: at least 512 (RFC 6891 §6.2.3)
  uint16_t tsig_offset = 0;               // of a TSIG record (error kNotAuth), else 0
  Rcode error = Rcode::kNoError;
  bool has_edns = false;
  bool dnssec_ok = false;
  uint8_t asked_options = 0;  // of AskedOption
  // The response's edns-tcp-keepalive, in units of 100 ms. If asksFor(kTellsKeepalive).
  uint16_t idle_timeout = 0;
  // The response's NSID; null: none. Set before the response is written; borrowed.
  const std::string* nsid = nullptr;
  uint64_t hash = 0;  // of the folded qname
  // The qname, folded to lower case. What is behind qname_size is unspecified.
  alignas(16) uint8_t qname[kMaxNameLength + 1 + kReadSlack];
  Cookie cookie;  // if asksFor(kAsksCookie), else unspecified

  Opcode opcode() const { return static_cast<Opcode>((flags & kOpcodeMask) >> 11); }
  bool asksFor(AskedOption option) const { return (asked_options & option) != 0; }
  bool hasGoodCookie() const {
    return asksFor(kAsksCookie) && cookie.in_response && cookie.judgement == Cookie::Judgement::kGood;
  }
  std::span<const uint8_t> name() const { return {qname, qname_size}; }
};

// Fills `query` from message[0, size). REQUIRES: kReadSlack more bytes are readable; size <= 65535.
ParseOutcome parseQuery(uint8_t* message, size_t size, HashSeed seed, Query& query);

// After ParseOutcome::kError for a TSIG record alone (tsig_offset, error kNotAuth): what would have been said without it.
// Of one who can judge it.
ParseOutcome passTsig(Query& query);

// Copies sixteen bytes with ASCII upper case folded (RFC 4343).
inline void foldBlock(const uint8_t* from, uint8_t* to) {
  using Bytes = uint8_t __attribute__((vector_size(16)));  // one register on every 64-bit machine
  using SignedBytes = int8_t __attribute__((vector_size(16)));
  Bytes bytes;
  std::memcpy(&bytes, from, sizeof(bytes));
  // As signed bytes: 'Z' becomes the largest, what is above it wraps to negative ones, and nothing else reaches 'A'.
  const auto shifted = reinterpret_cast<SignedBytes>(bytes + static_cast<uint8_t>(127 - 'Z'));
  bytes |= reinterpret_cast<Bytes>(shifted > static_cast<int8_t>(127 - 'Z' + 'A' - 1)) & 0x20;
  std::memcpy(to, &bytes, sizeof(bytes));
}

// Copies [from, from+size) to `to` with ASCII upper case folded, sixteen bytes at a time. May read and write up to
// kReadSlack - 1 bytes more.
inline void foldCase(const uint8_t* from, size_t size, uint8_t* to) {
  for (size_t i = 0; i < size; i += kReadSlack) foldBlock(from + i, to + i);
}

// A query that this server asks itself, as if a client had sent it: without EDNS. No allocation; one thread.
class OwnQuery {
 public:
  // `flags`: of kFlagRd and kFlagCd. `seed`: of the hash by which what is asked knows the name.
  OwnQuery(const Name& name, uint16_t qtype, uint16_t qclass, uint16_t flags, HashSeed seed) {
    const size_t size = writeQuestion(message_.data(), flags, name.wire(), qtype, qclass);
    if (parseQuery(message_.data(), size, seed, query_) != ParseOutcome::kQuery) std::abort();
  }
  OwnQuery(const OwnQuery&) = delete;
  OwnQuery& operator=(const OwnQuery&) = delete;

  Query& query() { return query_; }
  const Query& query() const { return query_; }

 private:
  std::array<uint8_t, kMaxQuestionSize + kReadSlack> message_{};
  Query query_;
};

}  // namespace idetcd::dns
