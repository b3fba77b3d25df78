// A zone from the messages of a zone transfer (RFC 5936 §2.2).
#pragma once

#include "base/result.h"
#include "zones/zone_builder.h"

namespace idetcd::zones {

// Keeps the messages until all have come. One thread.
class TransferReader {
 public:
  static constexpr size_t kMaxBytes = size_t{2} << 30;
  static constexpr size_t kMessageOverhead = 64;  // of memory, which counts, too

  explicit TransferReader(const dns::Name& origin) : origin_(origin) {}

  // The next message, a response. True: it was the last one. Errors say what is wrong with it.
  Result<bool> add(std::span<const uint8_t> message);

  using Messages = std::vector<std::vector<uint8_t>>;
  Messages take() { return std::exchange(messages_, {}); }

 private:
  const dns::Name origin_;
  Messages messages_;
  size_t bytes_ = 0;
  std::optional<uint32_t> serial_;  // of the first SOA; nothing: it has not begun
  bool has_ended_ = false;
};

// REQUIRES: all that a TransferReader has taken. `from`: what errors begin with. Takes long for a large zone; any thread.
Result<std::unique_ptr<const Zone>> buildZone(const dns::Name& origin, HashSeed seed,
                                              const TransferReader::Messages& messages, const std::string& from);

// The serial in the answer to a query for the zone's SOA; nothing: it has none.
std::optional<uint32_t> readSerial(std::span<const uint8_t> message, const dns::Name& origin);

}  // namespace idetcd::zones
