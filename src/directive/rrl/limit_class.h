// The class of a response for limits. Any thread; no allocation.
#pragma once

#include "base/hash.h"
#include "dns/query.h"

namespace idetcd::directive {

enum class LimitClass : uint8_t {
  kAnswer,
  kNoData,
  kNxDomain,
  kReferral,
  kError,
};
inline constexpr size_t kLimitClasses = 5;

struct ClassifiedResponse {
  LimitClass limit_class = LimitClass::kError;
  // Of what else is counted together with it: answers of one name and type, denials of types of one name, of names of
  // one zone (whatever random name is asked for), referrals to one zone, and all errors.
  uint64_t subject = 0;
};

// `response`: one of ours to `query`.
ClassifiedResponse classify(const dns::Query& query, std::span<const uint8_t> response, HashSeed seed);

}  // namespace idetcd::directive
