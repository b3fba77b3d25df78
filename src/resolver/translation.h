// What DNS64 reads in responses and makes of them (RFC 6147 §5), as messages of the handlers that it asks. No I/O; one
// thread.
#pragma once

#include "dns/name.h"
#include "dns/packed_response.h"
#include "dns/query.h"
#include "resolver/nat64_prefix.h"

namespace idetcd::resolver {

// A response, and the offset behind its question. REQUIRES: a header, and 12 <= question_end <= bytes.size().
struct MessageView {
  std::span<const uint8_t> bytes;
  size_t question_end;
};

// What a response to a question for AAAA comes to.
struct AaaaFindings {
  bool is_final = false;      // the client's answer, whatever its records are: NXDOMAIN (§5.1.2), TC, or unreadable
  bool has_usable = false;    // an AAAA record that is not in ::ffff:0:0/96 (§5.1.4)
  bool has_excluded = false;  // one that is
  // For how long there is no AAAA record, and so a synthesized one at most (§5.1.7).
  uint32_t negative_ttl_seconds = 600;
};
AaaaFindings examineAaaa(const MessageView& response);

// A response that another one has become.
struct Translated {
  dns::PackedResponsePtr packed;  // null: it cannot be read, or has become too large
  uint16_t made = 0;              // records that are new
  uint16_t left_out = 0;          // records that were not translated, and are gone
  uint16_t header_flags = 0;      // of kFlagAa, kFlagRa, kFlagTc: what the message had
};

// All of it but AAAA records in ::ffff:0:0/96. `query`: whose question the response answers.
Translated withoutExcluded(const dns::Query& query, const MessageView& response);

// The response to a question for A as one to `query`, for AAAA and the same name: each A record an AAAA record, for as
// long at most; signatures of A records and addresses that the prefix is not for are left out (§5.1.7, §5.5).
Translated translateAddresses(const dns::Query& query, const MessageView& response, const Nat64Prefix& prefix,
                              uint32_t most_seconds);

// The response to a question for PTR of `name` as one to `query`, whose name a CNAME leads to `name` (§5.3.1). `made`: 0 if
// there is no PTR.
Translated translatePointers(const dns::Query& query, const MessageView& response, const dns::Name& name);

}  // namespace idetcd::resolver
