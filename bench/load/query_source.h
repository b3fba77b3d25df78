// The queries of a load: which names are asked for, and what must come back. One thread; no allocation.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "common/names.h"
#include "common/random.h"
#include "dns/name.h"
#include "dns/wire.h"

namespace idetcd::bench {

enum class Selection : uint8_t {
  kUniform,
  kZipf,        // number k is asked for 1/k times as often as number 1
  kSequential,  // 1, 2, … N, 1, …: to warm a cache
};

std::optional<Selection> parseSelection(std::string_view text);

// The expected answer, with enough to check it.
struct Expectation {
  uint32_t number = 0;
  dns::RrType type = dns::RrType::kA;
  bool exists = true;  // else NXDOMAIN
};

class QuerySource {
 public:
  static constexpr size_t kMaxQuerySize = 96;
  static constexpr size_t kMaxZoneSize = 32;

  struct Options {
    uint32_t names = 1000;
    Selection selection = Selection::kUniform;
    dns::RrType type = dns::RrType::kA;
    uint32_t aaaa_percent = 0;     // in place of `type`
    uint32_t nxdomain_percent = 0;  // random names of the zone that do not exist
    uint32_t miss_percent = 0;      // random names below any.<zone>, all of which exist, with the number 0
    dns::Name zone = dns::Name::parse(kZone).value();
    bool edns = false;
    uint64_t seed = 1;
  };

  // REQUIRES: the zone's name has at most kMaxZoneSize bytes.
  explicit QuerySource(const Options& options);

  // Writes a query whose ID is 0; returns its size, at most kMaxQuerySize.
  size_t next(uint8_t* to, Expectation& expectation);

 private:
  uint32_t pickNumber();
  size_t writeNumberedName(uint32_t number, uint8_t* to) const;
  size_t writeRandomName(uint8_t* to);
  size_t writeZone(uint8_t* to) const;

  const Options options_;
  const double log_names_;  // ln(names + 1)
  Random random_;
  uint32_t sequence_ = 0;
};

}  // namespace idetcd::bench
