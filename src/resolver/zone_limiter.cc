#include "resolver/zone_limiter.h"

#include "dns/packed_response.h"
#include "dns/wire.h"

namespace idetcd::resolver {

namespace {

using NameSpan = std::span<const uint8_t>;

// Under two-letter top-level domains: below these the zones of different owners begin.
constexpr std::string_view kSecondLevels[]{"ac",  "asn",  "co",  "com",  "ed",  "edu", "gob", "go",
                                           "gov", "govt", "id",  "info", "ltd", "me",  "mil", "ne",
                                           "net", "nhs",  "nom", "or",   "org", "plc", "sch"};

// The labels of a name, from the last one on. REQUIRES: the name is valid.
class Labels {
 public:
  explicit Labels(NameSpan name) : name_(name) {
    for (size_t pos = 0; name[pos] != 0; pos += 1u + name[pos]) starts_[count_++] = static_cast<uint8_t>(pos);
  }
  size_t count() const { return count_; }
  std::string_view label(size_t from_end) const {
    const size_t start = starts_[count_ - 1 - from_end];
    return {reinterpret_cast<const char*>(&name_[start + 1]), name_[start]};
  }
  // The name's last `labels` labels; all of it where there are not as many.
  NameSpan suffix(size_t labels) const { return labels < count_ ? name_.subspan(starts_[count_ - labels]) : name_; }

 private:
  NameSpan name_;
  std::array<uint8_t, dns::kMaxNameLength / 2 + 1> starts_;
  size_t count_ = 0;
};

size_t labelsOf(const dns::Name& name) { return Labels(name.wire()).count(); }

// How many labels a zone has, by the last two of its name.
size_t usualDepth(const Labels& labels) {
  constexpr size_t kSlash16 = 4;   // b.a.in-addr.arpa.
  constexpr size_t kSlash32 = 10;  // eight nibbles of ip6.arpa.
  if (labels.count() < 3) return 2;
  if (labels.label(0) == "arpa" && labels.label(1) == "in-addr") return kSlash16;
  if (labels.label(0) == "arpa" && labels.label(1) == "ip6") return kSlash32;
  const bool is_registry =
      labels.label(0).size() == 2 && std::ranges::find(kSecondLevels, labels.label(1)) != std::end(kSecondLevels);
  return is_registry ? 3 : 2;
}

// The owner of the SOA in the denial of `name`: a suffix of it; empty: there is none, or what is denied is an alias's
// target. Such an owner is a pointer into the question (dns/packed_response.h).
NameSpan soaOwnerIn(NameSpan name, const dns::PackedResponse& response) {
  constexpr size_t kTypeBefore = 4;  // the TTL
  constexpr size_t kLengthBehind = 4;
  constexpr size_t kRdataBehind = 6;
  if (response.answers > 0) return {};
  const auto body = response.body();
  size_t start = 0;
  for (const uint16_t ttl : response.ttlOffsets().first(response.authorities)) {
    const size_t target = dns::load16(&body[start]) & 0x3fffu;
    const bool is_pointer =
        (body[start] & 0xc0) == 0xc0 && target >= dns::kHeaderSize && target - dns::kHeaderSize < name.size();
    if (is_pointer && dns::load16(&body[ttl - kTypeBefore]) == dns::code(dns::RrType::kSoa)) {
      return name.subspan(target - dns::kHeaderSize);
    }
    start = ttl + kRdataBehind + dns::load16(&body[ttl + kLengthBehind]);
  }
  return {};
}

}  // namespace

ZoneLimiter::ZoneLimiter(Options options, HashSeed seed, metrics::Scope metrics)
    : options_(std::move(options)), seed_(seed), learnt_(kLearntZones), counters_(std::move(metrics)) {}

std::optional<ZoneLimiter::Ticket> ZoneLimiter::begin(const dns::Query& query) {
  if (!isLimited(query.name())) return Ticket(nullptr, 0);
  const uint64_t zone = hashOf(zoneOf(query.name()));
  const auto [account, is_new] = outstanding_.try_emplace(zone, 0);
  if (account->second >= options_.outstanding) {
    counters_.refused.add();
    return std::nullopt;
  }
  ++account->second;
  return Ticket(this, zone);
}

void ZoneLimiter::end(uint64_t zone) {
  const auto account = outstanding_.find(zone);
  if (--account->second == 0) outstanding_.erase(account);
}

void ZoneLimiter::learn(const dns::Query& query, const StoredResponse& response) {
  const auto owner = soaOwnerIn(query.name(), *response.packed);
  if (owner.size() <= assumedZoneOf(query.name()).size()) return;
  const uint64_t zone = hashOf(owner);
  learnt_[zone % kLearntZones] = zone;
}

std::span<const uint8_t> ZoneLimiter::zoneOf(NameSpan name) const {
  const NameSpan assumed = assumedZoneOf(name);
  for (NameSpan zone = name; zone.size() > assumed.size(); zone = zone.subspan(1u + zone[0])) {
    const uint64_t hash = hashOf(zone);
    if (learnt_[hash % kLearntZones] == hash) return zone;
  }
  return assumed;
}

std::span<const uint8_t> ZoneLimiter::assumedZoneOf(NameSpan name) const {
  const Labels labels(name);
  size_t depth = usualDepth(labels);
  for (const dns::Name& suffix : options_.suffixes) {
    if (dns::isNameWithin(name, suffix)) depth = std::max(depth, labelsOf(suffix) + 1);
  }
  return labels.suffix(depth);
}

bool ZoneLimiter::isLimited(NameSpan name) const {
  return std::ranges::any_of(options_.zones, [name](const dns::Name& zone) { return dns::isNameWithin(name, zone); });
}

uint64_t ZoneLimiter::hashOf(NameSpan zone) const { return hashBytes(zone.data(), zone.size(), seed_); }

}  // namespace idetcd::resolver
