// An upstream's response, checked, cleaned and re-encoded, to be answered from any number of times. One thread.
//
// Kept are the records of the question: the CNAME chain from the qname, SOA, NS and DNSSEC's proofs at or above its
// end, and the addresses that these point to. OPT goes. Names are compressed anew, so pointers into the question fit
// every client. In the authority section proofs come first (SOA of a denial, RFC 2308 §3; NSEC, NSEC3, RFC 4035
// §3.1.3.3; their RRSIGs).
#pragma once

#include "dns/name.h"
#include "dns/packed_response.h"
#include "dns/query.h"

namespace idetcd::resolver {

// How a response may be cached (RFC 2308, RFC 9520).
enum class ResponseKind : uint8_t {
  kPositive,
  kNoData,
  kNxDomain,
  kFailure,      // SERVFAIL and other rcodes that are no answer
  kUncacheable,  // a denial without SOA, a TTL of 0, aliases without what they lead to
};

struct StoredResponse {
  ResponseKind kind = ResponseKind::kUncacheable;
  uint32_t ttl_seconds = 0;  // for how long it may be cached: the least TTL; of a denial what its SOA says
  dns::PackedResponsePtr packed;
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
// kAccepted: `response`, fresh from its constructor, is filled; its AD only if `trusts_ad`.
UpstreamVerdict readUpstreamResponse(std::span<const uint8_t> message, uint16_t id, const dns::Query& query,
                                     StoredResponse& response, bool trusts_ad = true);

// Of two responses the one that the second's server would have given: `first` is the answer to `query` and unfinished,
// `second` that to `target`, which asks for what `first` leads to. False: there is no end to the chain, or together
// they are too large. REQUIRES: `response` is fresh from its constructor.
bool joinResponses(const dns::Query& query, const StoredResponse& first, const dns::Query& target,
                   const StoredResponse& second, StoredResponse& response);

// A name that an answer says something of beside the one that it is asked for.
enum class OtherName : uint8_t {
  kTarget,  // a CNAME leads to it
  kHost,    // the additional section has its addresses
};
// Whether a response to a question for `qtype` names any: a few instructions for each record of its answer.
bool namesOthers(uint16_t qtype, const dns::PackedResponse& response);
// Calls `visit` with each, the targets in their order first, until it returns false. `name`: uncompressed, in the case in
// which it came, borrowed for the call. `room` is written over, and grows to the largest response. REQUIRES: `response` answers
// `query`; `room` is not used by `visit`.
using VisitOtherName = std::function<bool(OtherName kind, std::span<const uint8_t> name)>;
void visitOtherNames(const dns::Query& query, const dns::PackedResponse& response, std::vector<uint8_t>& room,
                     const VisitOtherName& visit);

// The same response without its additional section. REQUIRES: `rest` is fresh from its constructor.
void dropAdditional(const StoredResponse& response, StoredResponse& rest);

// NXDOMAIN as NODATA. REQUIRES: `nodata` is fresh from its constructor.
void denyDataOnly(const StoredResponse& response, StoredResponse& nodata);

// The first `count` CNAMEs of the answer to `query`, the last of which leads to `target`, without what that one leads to:
// unfinished. False: as joinResponses(). REQUIRES: count > 0; `response` is fresh from its constructor.
bool cutResponse(const dns::Query& query, const StoredResponse& whole, size_t count, const dns::Name& target,
                 StoredResponse& response);

// The denial of `name` as one of `query`'s name, which is `name` or below it (RFC 8020 §2): what it says of the zone
// and what it proves hold for both. `denial`: NXDOMAIN without an answer, made for a question for `name`. False: it
// would be too large. REQUIRES: `response` is fresh from its constructor.
bool denyBelow(const dns::Query& query, std::span<const uint8_t> name, const dns::PackedResponse& denial,
               StoredResponse& response);

// For how long its signatures are valid, by this machine's clock: 0 if one is not, the largest value if there is none.
uint32_t signatureSecondsLeft(const StoredResponse& response);

}  // namespace idetcd::resolver
