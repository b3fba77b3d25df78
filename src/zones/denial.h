// The NSEC or NSEC3 records of a signed zone, in the order in which they prove that something is not there (RFC 4034 §6.1,
// RFC 5155 §7). Immutable once sorted; any thread; no allocation.
#pragma once

#include "dns/name.h"
#include "records/entry.h"

namespace idetcd::zones {

// The first of two folded names in canonical order (RFC 4034 §6.1).
bool isBefore(std::span<const uint8_t> a, std::span<const uint8_t> b);

class Denial {
 public:
  static constexpr size_t kHashSize = 20;          // SHA-1
  static constexpr uint16_t kMaxIterations = 150;  // as other servers: each one is work for a query (RFC 9276)
  using Hash = std::array<uint8_t, kHashSize>;
  struct Parameters {
    uint16_t iterations = 0;
    std::span<const uint8_t> salt;  // of the zone's memory
  };

  // At the beginning of NSEC3 and of NSEC3PARAM; nothing: they are of another hash than SHA-1. REQUIRES: checked RDATA.
  static std::optional<Parameters> parametersOf(std::span<const uint8_t> rdata);

  enum class Kind : uint8_t { kNone, kNsec, kNsec3 };
  Kind kind() const { return kind_; }

  // --- while the zone is built ---
  void addNsec(const records::Entry& entry);
  void addNsec3(const records::Entry& entry, const Hash& hash);
  // `parameters`: of the zone's NSEC3PARAM, if it has one: NSEC3 of another chain prove nothing beside those of this one
  // (RFC 5155 §7.3).
  void sort(const std::optional<Parameters>& parameters);

  // The owner of the NSEC whose interval `name` is in: the name itself, or the last one before it. REQUIRES: kNsec.
  const records::Entry& nsecOf(std::span<const uint8_t> name) const;
  struct Nsec3 {
    const records::Entry* entry;
    bool matches;  // its hash is the name's, else it covers it
  };
  // REQUIRES: kNsec3.
  Nsec3 nsec3Of(std::span<const uint8_t> name) const;

 private:
  struct Hashed {
    Hash hash;
    const records::Entry* entry;
  };

  Kind kind_ = Kind::kNone;
  std::vector<const records::Entry*> nsec_;
  std::vector<Hashed> nsec3_;
  Parameters parameters_;
};

// RFC 5155 §5.
Denial::Hash hashNsec3(std::span<const uint8_t> name, const Denial::Parameters& parameters);

// The hash that a label in base32hex stands for.
std::optional<Denial::Hash> parseNsec3Label(std::span<const uint8_t> label);

}  // namespace idetcd::zones
