// A query that this server asks itself, as if a client had sent it: without EDNS. No allocation; one thread.
#pragma once

#include <cstdlib>

#include "base/hash.h"
#include "dns/name.h"
#include "dns/query.h"
#include "dns/record.h"

namespace idetcd::dns {

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
