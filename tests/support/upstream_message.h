// Responses as an upstream would send them, hostile ones too.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "dns/name.h"
#include "dns/wire.h"

namespace idetcd {

class UpstreamMessage {
 public:
  enum Section { kAnswer = 6, kAuthority = 8, kAdditional = 10 };

  UpstreamMessage(std::string_view qname, uint16_t qtype, uint16_t flags = 0x8180, uint16_t id = 0xbeef) {
    for (const uint16_t word : {id, flags, uint16_t{1}, uint16_t{0}, uint16_t{0}, uint16_t{0}}) put16(word);
    putName(qname);
    put16(qtype);
    put16(1);
  }

  UpstreamMessage& record(Section section, std::string_view owner, uint16_t type, uint32_t ttl,
                          const std::vector<uint8_t>& rdata, uint16_t klass = 1) {
    count(section);
    putName(owner);
    put16(type);
    put16(klass);
    put16(static_cast<uint16_t>(ttl >> 16));
    put16(static_cast<uint16_t>(ttl));
    put16(static_cast<uint16_t>(rdata.size()));
    bytes.insert(bytes.end(), rdata.begin(), rdata.end());
    return *this;
  }
  UpstreamMessage& a(std::string_view owner, uint32_t ttl, std::vector<uint8_t> address, Section section = kAnswer) {
    return record(section, owner, 1, ttl, address);
  }
  UpstreamMessage& cname(std::string_view owner, std::string_view target, uint32_t ttl = 300) {
    return record(kAnswer, owner, 5, ttl, name(target));
  }
  UpstreamMessage& soa(std::string_view zone, uint32_t ttl, uint32_t minimum) {
    std::vector<uint8_t> rdata = name("ns." + std::string(zone));
    const auto mailbox = name("hostmaster." + std::string(zone));
    rdata.insert(rdata.end(), mailbox.begin(), mailbox.end());
    for (const uint32_t number : {1u, 2u, 3u, 4u, minimum}) {
      for (int shift = 24; shift >= 0; shift -= 8) rdata.push_back(static_cast<uint8_t>(number >> shift));
    }
    return record(kAuthority, zone, 6, ttl, rdata);
  }
  UpstreamMessage& count(Section section, int by = 1) {
    const auto at = static_cast<size_t>(section);
    dns::store16(&bytes[at], static_cast<uint16_t>(dns::load16(&bytes[at]) + by));
    return *this;
  }
  UpstreamMessage& raw(std::initializer_list<uint8_t> tail) {
    bytes.insert(bytes.end(), tail);
    return *this;
  }

  static std::vector<uint8_t> name(std::string_view text) {
    const auto parsed = dns::Name::parse(text).value();
    return {parsed.wire().begin(), parsed.wire().end()};
  }

  std::vector<uint8_t> bytes;

 private:
  void putName(std::string_view text) {
    const auto wire = name(text);
    bytes.insert(bytes.end(), wire.begin(), wire.end());
  }
  void put16(uint16_t value) {
    bytes.push_back(static_cast<uint8_t>(value >> 8));
    bytes.push_back(static_cast<uint8_t>(value));
  }
};

}  // namespace idetcd
