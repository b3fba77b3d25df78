// An upstream's response, checked, cleaned and re-encoded so that it can be answered from any number of times.
//
// What is kept: the records that belong to the question — in the answer those on the CNAME chain that begins at the
// qname, in the authority SOA and NS (and their DNSSEC proofs) at or above the chain's end, in the additional section
// what the kept records point to. OPT is hop-by-hop and goes. Names are expanded and compressed again by us, so that
// every pointer is ours: a pointer below the end of the question points into the question, which has the same octets
// count whoever asks. One thread; immutable once made.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dns/query.h"
#include "dns/wire.h"

namespace idetcd::resolve {

struct StoredResponse {
  // How it may be cached (RFC 2308, RFC 9520).
  enum class Kind : uint8_t {
    kPositive,  // `ttl_seconds`: the least of the answer's
    kNoData,    // negative: by the SOA
    kNxDomain,
    kFailure,      // SERVFAIL and other rcodes that are no answer
    kUncacheable,  // no SOA in a denial, truncated, nothing kept
  };

  Kind kind = Kind::kUncacheable;
  dns::Rcode rcode = dns::Rcode::kNoError;
  uint16_t flags = 0;  // of AA and AD, as the upstream said
  uint16_t answers = 0;
  uint16_t authorities = 0;
  uint16_t additionals = 0;  // without OPT
  uint32_t ttl_seconds = 0;
  std::vector<uint8_t> body;          // the records, as they stand behind the question
  std::vector<uint16_t> ttl_offsets;  // of each record's TTL in `body`
  std::vector<uint16_t> record_ends;  // offset behind each record in `body`, in order
  std::optional<uint16_t> ede;        // the upstream's Extended DNS Error, passed on (RFC 8914 §3)
};

enum class UpstreamVerdict : uint8_t {
  kAccepted,
  kMismatch,   // not an answer to this query (QR, opcode, question): discard and go on waiting
  kTruncated,  // TC: ask again over TCP
  kMalformed,  // ours, but cannot be read: this upstream failed
};

// Reads `message`, the response to a query for the question of `query` (case-insensitively the same name, type and
// class) with `id`. Work and memory are bounded by the size of the message. kAccepted: `response` is set.
UpstreamVerdict readUpstreamResponse(std::span<const uint8_t> message, uint16_t id, const dns::Query& query,
                                     StoredResponse& response);

struct WriteOptions {
  uint32_t age_seconds = 0;             // taken off every TTL
  std::optional<uint32_t> ttl_seconds;  // instead of counting down (stale answers, `keepttl`)
  std::optional<dns::EdeCode> ede;      // of ours; else the upstream's
  bool minimal = false;                 // leave authority and additional out of a positive answer
  uint32_t rotate = 0;  // `loadbalance`: begin each run of A or AAAA records at this one, modulo their number
};

// Writes the response over the query, with the client's ID, question, opcode, RD and CD; RA is set. What does not fit
// is cut with TC set. Returns its size. REQUIRES: the question is the one that `response` was read for.
size_t writeStoredResponse(const StoredResponse& response, const dns::Query& query, size_t limit,
                           const WriteOptions& options);

}  // namespace idetcd::resolve
