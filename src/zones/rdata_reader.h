// Names, TTLs and the data of records, from the words of a master file to wire form (RFC 1035 §5.1, RFC 3597 §5, and the
// RFC of each type). Errors say what is wrong, without place. Any thread.
#pragma once

#include "base/result.h"
#include "dns/name.h"
#include "zones/master_scanner.h"

namespace idetcd::zones {

// A name in wire form; unlike a dns::Name it may have upper case.
struct WireName {
  std::array<uint8_t, dns::kMaxNameLength + 1> bytes;
  uint8_t size = 0;

  std::span<const uint8_t> span() const { return {bytes.data(), size}; }
  void assign(std::span<const uint8_t> name) {
    assert(name.size() <= dns::kMaxNameLength);
    std::ranges::copy(name, bytes.begin());
    size = static_cast<uint8_t>(name.size());
  }
};

// `@` is the origin; a name without a dot at its end is below it.
Result<void> readName(std::string_view text, const dns::Name& origin, bool fold, WireName& name);

// Seconds, or numbers with units: 1h30m (s, m, h, d, w). At most 2^32 - 1.
std::optional<uint32_t> parseTtl(std::string_view text);
// A TTL above 2^31 - 1 counts as 0 (RFC 2181 §8).
constexpr uint32_t effectiveTtl(uint32_t seconds) { return seconds > 0x7fffffff ? 0 : seconds; }

// TTL and class, in any order or left out, in front of the type of a record. The only class is IN.
struct RecordHead {
  std::optional<uint32_t> ttl{};        // effective
  std::span<const Word> type_and_data;  // at least one word
};
Result<RecordHead> readRecordHead(std::span<const Word> words);
// Whether a zone can have records of this type: none that only queries or messages have.
bool isZoneType(uint16_t type);

// Sets `rdata`. Names of the types whose canonical form is lower case (RFC 4034 §6.2) are folded, so that equal data are
// equal bytes.
Result<void> readRdata(uint16_t type, std::span<const Word> words, const dns::Name& origin,
                       std::vector<uint8_t>& rdata);

// Whether data in wire form, without compression, are what the type wants; those of an unknown type always are. Folds names as
// readRdata() does.
bool checkRdata(uint16_t type, std::span<uint8_t> rdata);

}  // namespace idetcd::zones
