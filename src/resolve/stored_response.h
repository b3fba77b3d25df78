// An upstream's response, checked, cleaned and re-encoded so that it can be answered from any number of times.
//
// What is kept are the records that belong to the question: in the answer those on the CNAME chain that begins at the
// qname, in the authority section SOA and NS (and DNSSEC's proofs) at or above the chain's end, in the additional
// section the addresses that the kept records point to. OPT is hop-by-hop and goes. Names are expanded and compressed
// again by us: every pointer is ours, and one into the question is right for every client, whose questions differ in
// case only. One thread.
//
// The authority section is put in an order: first what proves something (of a denial the SOA, RFC 2308 §3; NSEC and
// NSEC3, which show that no closer name than a wildcard exists, RFC 4035 §3.1.3.3; their RRSIGs), then the rest.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "dns/name.h"
#include "dns/query.h"
#include "dns/wire.h"

namespace idetcd::resolve {

// How a response may be cached (RFC 2308, RFC 9520).
enum class ResponseKind : uint8_t {
  kPositive,
  kNoData,
  kNxDomain,
  kFailure,      // SERVFAIL and other rcodes that are no answer
  kUncacheable,  // a denial without SOA, a TTL of 0, aliases without what they lead to
};

// The records of a response as they stand behind the question. Borrowed.
struct ResponseView {
  dns::Rcode rcode = dns::Rcode::kNoError;
  bool authentic_data = false;
  uint16_t answers = 0;
  uint16_t authorities = 0;
  uint16_t additionals = 0;     // without OPT
  uint16_t proofs = 0;          // of `authorities`, those that must not be left out alone: they stand in front
  uint16_t answer_size = 0;     // octets of `body` that are the answer section
  uint16_t proof_end = 0;       // and these proofs
  uint16_t authority_end = 0;   // and the answer and authority sections
  std::optional<uint16_t> ede;  // the upstream's Extended DNS Error, passed on (RFC 8914 §3)
  std::span<const uint8_t> body;
  std::span<const uint16_t> ttl_offsets;  // of each record's TTL in `body`, in order
};

struct StoredResponse {
  ResponseKind kind = ResponseKind::kUncacheable;
  ResponseView sections;     // its spans point into the vectors below
  uint32_t ttl_seconds = 0;  // for how long it may be cached: the least TTL; of a denial what its SOA says
  std::vector<uint8_t> body;
  std::vector<uint16_t> ttl_offsets;
  // When the first of its signatures ends, in seconds since 1970 modulo 2^32 (RFC 4034 §3.1.5).
  std::optional<uint32_t> signature_end;
  // Set if the answer is a chain of CNAMEs that leads to this name, of which the response says nothing, not even that
  // there is nothing: it remains to be asked for (joinResponses()).
  std::optional<dns::Name> unfinished;

  StoredResponse() = default;
  StoredResponse(const StoredResponse&) = delete;
  StoredResponse& operator=(const StoredResponse&) = delete;
};

enum class UpstreamVerdict : uint8_t {
  kAccepted,
  kMismatch,   // not an answer to this query (ID, QR, opcode, question): discard and go on waiting
  kTruncated,  // TC: ask again over TCP
  kMalformed,  // ours, but it cannot be read or leads nowhere: this upstream failed
};

// Reads `message`, the response to a query with `id` for the question of `query` (the same name but for case, type and
// class). Memory is bounded by the size of the message, work by a few milliseconds: what would take more is malformed.
// kAccepted: `response`, fresh from its constructor, is filled.
UpstreamVerdict readUpstreamResponse(std::span<const uint8_t> message, uint16_t id, const dns::Query& query,
                                     StoredResponse& response);

// Of two responses the one that the second's server would have given: `first` is the answer to `query` and unfinished,
// `second` that to `target`, which asks for what `first` leads to. False: there is no end to the chain, or together
// they are too large. REQUIRES: `response` is fresh from its constructor.
bool joinResponses(const dns::Query& query, const StoredResponse& first, const dns::Query& target,
                   const StoredResponse& second, StoredResponse& response);

// For how long its signatures are valid, by this machine's clock: 0 if one is not, the largest value if there is none.
uint32_t signatureSecondsLeft(const StoredResponse& response);

struct WriteOptions {
  uint32_t age_seconds = 0;               // taken off every TTL
  std::optional<uint32_t> ttl_seconds{};  // instead of counting down (stale answers, `keepttl`)
  uint32_t min_ttl_seconds = 0;           // what is counted down from, at least and at most: as the cache keeps it
  uint32_t max_ttl_seconds = std::numeric_limits<uint32_t>::max();
  std::optional<dns::EdeCode> ede{};  // ours; else the upstream's
  bool minimal = false;               // where there are answers, leave out what is neither answer nor proof
  uint32_t rotation = 0;  // `loadbalance`: each run of A or AAAA records begins at this one, modulo their number
};

// Writes the response over the query, with the client's ID, question, opcode, RD and CD, and RA. What does not fit is
// left out: first the additional section, then what proves nothing of the authority section, then, with TC, the proofs
// (RFC 4035 §3.1.1) and the RRsets at the answer's end, never a part of one (RFC 2181 §9). Returns its size. REQUIRES:
// the question is the one that the response was read for.
size_t writeStoredResponse(const ResponseView& response, const dns::Query& query, size_t limit,
                           const WriteOptions& options);

}  // namespace idetcd::resolve
