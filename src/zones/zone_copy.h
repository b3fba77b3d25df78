// A zone as it is at one moment, to be sent to other servers (RFC 5936).
#pragma once

#include "base/ip_address.h"
#include "dns/name.h"
#include "zones/zone.h"

namespace idetcd::zones {

// Keeps what it shows. One thread.
class ZoneCopy {
 public:
  // Borrowed for as long as the copy lives.
  struct Record {
    std::span<const uint8_t> owner;  // folded
    uint16_t type = 0;
    uint32_t ttl_seconds = 0;
    std::span<const uint8_t> rdata;  // without compression
  };

  virtual ~ZoneCopy() = default;
  virtual Record soa() const = 0;
  // The records but the SOA, one after the other, each once. False: there are no more.
  virtual bool next(Record& record) = 0;
  virtual void rewind() = 0;  // next() begins again

  uint32_t serial() const { return serialOf(soa().rdata); }
  static uint32_t serialOf(std::span<const uint8_t> soa) { return dns::load32(&soa[soa.size() - 20]); }
};

// Zones of which others may have copies. Any thread, but headOf(), copyOf() and changesSince() inside a ReadSection of the
// process's EpochDomain.
class PublishedZones {
 public:
  virtual ~PublishedZones() = default;

  struct Found {
    bool is_here = false;              // a zone has this name
    std::unique_ptr<ZoneCopy> copy{};  // null: its records are not known at the moment
  };
  virtual Found copyOf(std::span<const uint8_t> name) const = 0;  // folded
  // The same, but only the copy's SOA may be read. Cheap.
  virtual Found headOf(std::span<const uint8_t> name) const { return copyOf(name); }

  // Another number when a zone has come, or has another serial. Cheap.
  virtual uint64_t version() const = 0;
  struct Serial {
    dns::Name zone;
    uint32_t serial;
  };
  virtual std::vector<Serial> serials() const = 0;  // of those whose records are known

  // What makes the zone's copy with this serial that the client has the newest one (ZoneJournal::since()). Null: it is not
  // known, and the client needs all of the zone.
  virtual std::unique_ptr<ZoneCopy> changesSince(std::span<const uint8_t> name, uint32_t serial,
                                                 const IpAddress& client) const = 0;
  // The client has the copy with this serial.
  virtual void noteGiven(std::span<const uint8_t> name, uint32_t serial, const IpAddress& client) const = 0;
};

// Of a Zone.
std::unique_ptr<ZoneCopy> makeCopy(std::shared_ptr<const Zone> zone);

// Whether serial `a` comes after `b` (RFC 1982 §3.2).
constexpr bool isLaterSerial(uint32_t a, uint32_t b) { return a != b && a - b < 0x80000000u; }

}  // namespace idetcd::zones
