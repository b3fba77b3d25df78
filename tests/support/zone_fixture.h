// Zones from text, and the responses that they give, as text.
#pragma once

#include <fstream>

#include <gtest/gtest.h>

#include "support/query_fixture.h"
#include "support/temporary_directory.h"
#include "zones/zone_file.h"
#include "zones/zone_lookup.h"

namespace idetcd::zones {

// The zone `origin` of a file with this text, called `db`; in errors its folder is left out.
inline Result<std::unique_ptr<const Zone>> parseZone(std::string_view text, std::string_view origin = "example.") {
  const TemporaryDirectory directory;
  std::ofstream(directory / "db", std::ios::binary) << text;
  ZoneBuilder builder(dns::Name::parse(origin).value(), Message::kSeed);
  std::vector<ReadFile> files;
  auto read = readZoneFile(directory / "db", builder, files);
  auto zone = read ? builder.build() : Result<std::unique_ptr<const Zone>>(tl::unexpected(read.error()));
  if (zone) return zone;
  std::string message = zone.error().message;
  const std::string folder = directory.path() + "/";
  for (size_t at; (at = message.find(folder)) != message.npos;) message.erase(at, folder.size());
  return fail(message, zone.error().code);
}

// With a SOA (minimum 60) and NS before the text.
inline constexpr std::string_view kApexText =
    "$TTL 300\n@ SOA ns hostmaster 7 3600 600 86400 60\n@ NS ns\nns A 192.0.2.53\n";
inline std::unique_ptr<const Zone> zoneWith(std::string_view records) {
  auto zone = parseZone(std::string(kApexText) + std::string(records));
  EXPECT_TRUE(zone) << (zone ? "" : zone.error().message);
  return zone ? std::move(*zone) : nullptr;
}

struct Reply {
  std::string head;                   // "NOERROR aa", "NXDOMAIN"
  std::vector<std::string> answer{};  // "name TTL TYPE data"
  std::vector<std::string> authority{};
  std::vector<std::string> additional{};
  size_t size = 0;
};

inline std::string rdataText(const Message& message, const Message::Record& record) {
  const std::vector<uint8_t> rdata = message.rdata(record);
  const auto nameAt = [&](size_t offset) {
    size_t pos = record.rdata + offset;
    return message.nameAt(pos);
  };
  switch (record.type) {
    case 1:
      return fmt::format("{}.{}.{}.{}", rdata.at(0), rdata.at(1), rdata.at(2), rdata.at(3));
    case 2:
    case 5:
    case 12:
    case 39:
    case 47:
      return nameAt(0);
    case 15:
      return nameAt(2);
    case 33:
      return nameAt(6);
    case 46:
      return dns::kTypeNames.toString(dns::load16(rdata.data()));
    default:
      return std::to_string(rdata.size());
  }
}

// As a handler asks.
inline ZoneAnswer answer(const Zone& zone, const dns::Query& query, size_t limit, uint16_t flags, bool passes_missing) {
  const size_t size = answerHit(zone, query, limit, flags);
  return size > 0 ? ZoneAnswer{ZoneAnswer::Kind::kAnswer, size} : lookUp(zone, query, limit, flags, passes_missing);
}

inline Reply ask(const Zone& zone, std::string_view name, uint16_t type, bool dnssec = false, size_t limit = 4096,
                 bool passes_missing = false) {
  Message message(name, type, 4096);
  dns::Query query;
  EXPECT_EQ(dns::parseQuery(message.data(), message.size(), Message::kSeed, query), dns::ParseOutcome::kQuery);
  query.dnssec_ok = dnssec;
  const ZoneAnswer answered = answer(zone, query, limit, 0, passes_missing);
  if (answered.kind == ZoneAnswer::Kind::kParentSide) return {"parent's"};
  if (answered.kind == ZoneAnswer::Kind::kNoName) return {"no name"};
  message.setResponse(answered.size);
  Reply reply{dns::kRcodeNames.toString(message.rcode())};
  for (const auto& [flag, text] : {std::pair(dns::kFlagAa, " aa"), std::pair(dns::kFlagTc, " tc")}) {
    if (message.flag(flag)) reply.head += text;
  }
  reply.size = answered.size;
  size_t index = 0;
  for (const Message::Record& record : message.records()) {
    auto& section = index < message.answers()                                   ? reply.answer
                    : index < size_t{message.answers()} + message.authorities() ? reply.authority
                                                                                : reply.additional;
    ++index;
    if (record.type == 41) continue;
    section.push_back(fmt::format("{} {} {} {}", record.owner, record.ttl, dns::kTypeNames.toString(record.type),
                                  rdataText(message, record)));
  }
  return reply;
}

}  // namespace idetcd::zones
