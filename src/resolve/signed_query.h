// Queries that are signed (TSIG, RFC 8945): judged before any handler is asked, and what is answered is signed with their
// key, late answers and the messages of a zone transfer, too.
//
//   unknown key, or another algorithm   NOTAUTH, BADKEY     wrong MAC        NOTAUTH, BADSIG
//   signed more than 300 s ago or ahead NOTAUTH, BADTIME    MAC cut short    NOTAUTH, BADTRUNC
//   MAC of no length that there is      FORMERR
#pragma once

#include "dns/query.h"
#include "resolve/request.h"
#include "tsig/signature.h"

namespace idetcd::resolve {

// `tsig`. Immutable; any thread.
struct SignatureRules {
  tsig::Keyring keys;
  std::vector<dns::Name> zones;        // in which `required` holds
  std::vector<uint16_t> required;      // types of queries that are refused unless they are signed
  bool requires_all = false;

  bool requiresAny() const { return requires_all || !required.empty(); }
  bool isRequiredOf(const dns::Query& query) const;
};

// REQUIRES: query.tsig_offset is set, and the query's message is as it came. `ask` answers it, within the request that it is
// given, as if it were not signed.
QueryOutcome answerSigned(const std::shared_ptr<const SignatureRules>& rules, const dns::Query& query,
                          const Request& request, uint16_t flags,
                          const std::function<QueryOutcome(const Request&)>& ask);

}  // namespace idetcd::resolve
