// `chaos`: answers queries of class CH with the software's version and authors. Any thread; no allocation.
//
//   version.bind., version.server.   one text
//   authors.bind.                    a text each
//
// directive/nsid/identity says the node's own name (id.server., hostname.bind.).
#pragma once

#include "dns/query.h"
#include "resolve/handler.h"

namespace idetcd::directive {

// Texts of 255 bytes at most.
struct ChaosTexts {
  std::string version;
  std::vector<std::string> authors;
};

// kNext for every other name, and for other classes.
resolve::QueryOutcome answerChaos(const ChaosTexts& texts, const dns::Query& query, const resolve::Request& request,
                                  uint16_t flags);

}  // namespace idetcd::directive
