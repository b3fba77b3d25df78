#include "resolver/special_names.h"

#include "dns/record.h"
#include "dns/response.h"

namespace idetcd::resolver {

using dns::Name;
using dns::RrType;

namespace {

enum class Kind : uint8_t {
  kEmpty,      // nothing but its apex
  kLocalhost,  // loopback addresses, at and below the apex
  kLoopback,   // one PTR
  kNoData,     // every name exists, none has data
};

// To what the names are local.
enum class Scope : uint8_t {
  kHost,     // this machine's: no server is asked
  kSite,     // this network's: its own servers may know them
  kNowhere,  // nothing, unless a server is configured for them
};

struct SpecialZone {
  Name name;
  Kind kind;
  Scope scope;
  Name pointer;  // of kLoopback: the name that has the PTR
};

constexpr std::string_view kZeros30 = "0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.";

// REQUIRES: `text` is a name.
Name name(std::string_view text) { return Name::parse(text).value(); }

std::vector<SpecialZone> makeZones() {
  std::vector<SpecialZone> zones;
  const auto add = [&zones](const std::string& text, Scope scope, Kind kind = Kind::kEmpty) {
    zones.push_back({.name = name(text), .kind = kind, .scope = scope, .pointer = {}});
  };
  const auto add_loopback = [&zones](const Name& zone, const Name& pointer) {
    zones.push_back({.name = zone, .kind = Kind::kLoopback, .scope = Scope::kHost, .pointer = pointer});
  };
  add("localhost.", Scope::kHost, Kind::kLocalhost);
  for (const char* tld : {"alt.", "invalid.", "onion.", "test."}) add(tld, Scope::kNowhere);
  for (const char* site : {"local.", "home.arpa."}) add(site, Scope::kSite);
  add("resolver.arpa.", Scope::kNowhere, Kind::kNoData);
  add_loopback(name("127.in-addr.arpa."), name("1.0.0.127.in-addr.arpa."));
  const Name loopback6 = name(fmt::format("1.0.{}ip6.arpa.", kZeros30));
  add_loopback(loopback6, loopback6);

  for (const char* net : {"0", "254.169", "2.0.192", "100.51.198", "113.0.203", "255.255.255.255"}) {
    add(fmt::format("{}.in-addr.arpa.", net), Scope::kNowhere);
  }
  for (const char* net : {"10", "168.192"}) add(fmt::format("{}.in-addr.arpa.", net), Scope::kSite);
  for (int i = 16; i < 32; ++i) add(fmt::format("{}.172.in-addr.arpa.", i), Scope::kSite);
  for (int i = 64; i < 128; ++i) add(fmt::format("{}.100.in-addr.arpa.", i), Scope::kSite);  // RFC 7793
  add(fmt::format("0.0.{}ip6.arpa.", kZeros30), Scope::kNowhere);
  add("d.f.ip6.arpa.", Scope::kSite);
  for (const char* net : {"8.e.f", "9.e.f", "a.e.f", "b.e.f", "8.b.d.0.1.0.0.2"}) {
    add(fmt::format("{}.ip6.arpa.", net), Scope::kNowhere);
  }
  return zones;
}

// Most names end in a letter that no special zone ends in; the last label decides on the rest.
bool mayBeSpecial(std::span<const uint8_t> qname) {
  if (qname.size() < 5) return false;
  const auto ends_with = [qname](std::string_view label) {
    return qname.size() > label.size() &&
           std::equal(label.begin(), label.end(), qname.end() - 1 - static_cast<ptrdiff_t>(label.size()));
  };
  switch (qname[qname.size() - 2]) {
    case 't':
      return ends_with("\x09localhost") || ends_with("\x04test") ||
             ends_with(
                 "\x03"
                 "alt");
    case 'd':
      return ends_with("\x07invalid");
    case 'l':
      return ends_with("\x05local");
    case 'n':
      return ends_with("\x05onion");
    case 'a':
      return ends_with(
          "\x04"
          "arpa");
    default:
      return false;
  }
}

// A zone's DS is at its parent. Special zones below `arpa` have one in the DNS, which proves them unsigned.
bool isParents(const dns::Query& query, const SpecialZone& zone) {
  static const Name kArpa = name("arpa.");
  return query.qtype == dns::code(RrType::kDs) && query.qname_size == zone.name.size() && zone.scope != Scope::kHost &&
         zone.kind == Kind::kEmpty && zone.name.isWithin(kArpa);
}

const SpecialZone* find(const dns::Query& query) {
  const std::span<const uint8_t> qname = query.name();
  if (!mayBeSpecial(qname)) [[likely]]
    return nullptr;
  static const std::vector<SpecialZone> kZones = makeZones();
  const auto zone =
      std::find_if(kZones.begin(), kZones.end(), [qname](const auto& z) { return dns::isNameWithin(qname, z.name); });
  return zone != kZones.end() && !isParents(query, *zone) ? &*zone : nullptr;
}

// RFC 6303 §3 says three hours; that is for what never changes. What another Corefile, or another resolv.conf, would
// have forwarded must not be denied for hours to a client that has asked too early.
constexpr uint32_t kHostTtlSeconds = 10800;
constexpr uint32_t kTtlSeconds = 60;

uint32_t ttlOf(const SpecialZone& zone) { return zone.scope == Scope::kHost ? kHostTtlSeconds : kTtlSeconds; }

// Records with their owner as a pointer into the question. There is room for all that is made here.
class SpecialRecords {
 public:
  explicit SpecialRecords(uint32_t ttl_seconds) : ttl_seconds_(ttl_seconds) {}

  void add(size_t owner, RrType type, std::span<const uint8_t> rdata) {
    end_ = dns::putRecordHead(end_, dns::pointerTo(owner), type, ttl_seconds_, rdata.size());
    end_ = dns::putBytes(end_, rdata);
    ++count_;
  }
  void addSoa(size_t apex) {
    end_ = dns::putBytes(end_, dns::SyntheticSoa(apex, ttl_seconds_).span());
    ++count_;
  }
  std::span<const uint8_t> bytes() const { return {bytes_.data(), end_}; }
  uint16_t count() const { return count_; }

 private:
  std::array<uint8_t, 128> bytes_{};
  uint8_t* end_ = bytes_.data();
  uint16_t count_ = 0;
  uint32_t ttl_seconds_;
};

void addNs(size_t apex, SpecialRecords& records) {
  std::array<uint8_t, 2> rdata;
  dns::store16(rdata.data(), dns::pointerTo(apex));
  records.add(apex, RrType::kNs, rdata);
}

void addPointer(SpecialRecords& records) {
  constexpr std::string_view kLocalhost("\x09localhost\0", 11);
  records.add(dns::kHeaderSize, RrType::kPtr, {reinterpret_cast<const uint8_t*>(kLocalhost.data()), kLocalhost.size()});
}

void addAddress(RrType type, SpecialRecords& records) {
  constexpr std::array<uint8_t, 4> kV4{127, 0, 0, 1};
  constexpr std::array<uint8_t, 16> kV6{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  records.add(dns::kHeaderSize, type, type == RrType::kA ? std::span<const uint8_t>(kV4) : kV6);
}

bool exists(const dns::Query& query, const SpecialZone& zone) {
  if (zone.kind == Kind::kLocalhost || zone.kind == Kind::kNoData || query.qname_size == zone.name.size()) return true;
  // The name of the PTR, and the empty non-terminals above it.
  return zone.kind == Kind::kLoopback && dns::isNameWithin(zone.pointer.wire(), Name::fromWire(query.name()));
}

void addAnswer(const dns::Query& query, const SpecialZone& zone, size_t apex, SpecialRecords& records) {
  const auto asks = [&query](RrType type) {
    return query.qtype == dns::code(type) || query.qtype == dns::code(RrType::kAny);
  };
  if (query.qname_size == zone.name.size()) {
    if (asks(RrType::kSoa)) records.addSoa(apex);
    if (asks(RrType::kNs)) addNs(apex, records);
  }
  if (zone.kind == Kind::kLocalhost) {
    if (asks(RrType::kA)) addAddress(RrType::kA, records);
    if (asks(RrType::kAaaa)) addAddress(RrType::kAaaa, records);
  }
  if (zone.kind == Kind::kLoopback && query.qname_size == zone.pointer.size() && asks(RrType::kPtr) &&
      exists(query, zone)) {
    addPointer(records);
  }
}

}  // namespace

bool mayBeForwarded(const dns::Query& query, std::span<const Name> named, bool servers_are_private) {
  const SpecialZone* zone = find(query);
  if (zone == nullptr) [[likely]]
    return true;
  if (zone->scope == Scope::kHost) return false;
  if (zone->scope == Scope::kSite && servers_are_private) return true;
  return std::any_of(named.begin(), named.end(),
                     [&query](const Name& name) { return !name.isRoot() && dns::isNameWithin(query.name(), name); });
}

resolve::QueryOutcome answerSpecialName(const dns::Query& query, size_t limit) {
  const SpecialZone* zone = find(query);
  if (zone == nullptr) [[likely]]
    return resolve::QueryOutcome::next();
  const size_t apex = dns::kHeaderSize + query.qname_size - zone->name.size();
  SpecialRecords answer(ttlOf(*zone));
  addAnswer(query, *zone, apex, answer);
  dns::ResponseBuilder response(query, limit);
  response.setEde(dns::EdeCode::kSynthesized, "special name: answered here, not forwarded");
  if (answer.count() > 0) {
    response.addAnswer(answer.bytes(), answer.count());
  } else {
    response.addAuthority(dns::SyntheticSoa(apex, ttlOf(*zone)).span(), 1);
  }
  const auto rcode = exists(query, *zone) ? dns::Rcode::kNoError : dns::Rcode::kNxDomain;
  return resolve::QueryOutcome::answer(response.finish(rcode, dns::kFlagAa | dns::kFlagRa));
}

}  // namespace idetcd::resolver
