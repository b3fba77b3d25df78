// The directive `local`: names of this machine are answered here.
#include "config/option_table.h"
#include "directive/local/local.h"
#include "dns/response.h"
#include "resolve/directive.h"

namespace idetcd::directive {

namespace {

using dns::Name;
using dns::RrType;

constexpr uint32_t kTtlSeconds = 604800;
constexpr std::string_view kLocalhost("\x09localhost\0", 11);
constexpr std::string_view kMailbox("\x04root\x09localhost\0", 16);

const Name& localhost() {
  static const Name kName = Name::parse("localhost.").value();
  return kName;
}

const Name& loopback() {
  static const Name kName = Name::parse("1.0.0.127.in-addr.arpa.").value();
  return kName;
}

// Null: the name is in none of the zones.
const Name* findZone(const dns::Query& query) {
  static const std::array<Name, 4> kZones{localhost(), Name::parse("0.in-addr.arpa.").value(),
                                          Name::parse("127.in-addr.arpa.").value(),
                                          Name::parse("255.in-addr.arpa.").value()};
  const auto zone =
      std::ranges::find_if(kZones, [&query](const Name& name) { return dns::isNameWithin(query.name(), name); });
  return zone != kZones.end() ? &*zone : nullptr;
}

bool hasAddresses(RrType type) { return type == RrType::kA || type == RrType::kAaaa; }

// A response under way.
class Reply {
 public:
  Reply(const dns::Query& query, size_t limit) : query_(query), response_(query, limit) {}

  // Records of the name that was asked for.
  void addAddress() {
    constexpr std::array<uint8_t, 4> kV4{127, 0, 0, 1};
    constexpr std::array<uint8_t, 16> kV6{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    const bool v4 = type() == RrType::kA;
    response_.addAnswer(record(dns::kHeaderSize, v4 ? std::span<const uint8_t>(kV4) : kV6), 1);
  }
  void addLocalhost() { response_.addAnswer(record(dns::kHeaderSize, bytesOf(kLocalhost)), 1); }
  void addSoa() { response_.addAnswer(soa(dns::kHeaderSize), 1); }
  // No such record, or no such name: with the SOA of a zone of `zone_size` bytes that the name is in.
  void deny(size_t zone_size) { response_.addAuthority(soa(dns::kHeaderSize + query_.qname_size - zone_size), 1); }

  RrType type() const { return static_cast<RrType>(query_.qtype); }
  resolve::QueryOutcome finish(uint16_t flags, dns::Rcode rcode = dns::Rcode::kNoError) {
    return resolve::QueryOutcome::answer(response_.finish(rcode, flags));
  }

 private:
  static std::span<const uint8_t> bytesOf(std::string_view text) {
    return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
  }

  // Both are borrowed until the next one is made.
  std::span<const uint8_t> record(size_t owner, std::span<const uint8_t> rdata) {
    uint8_t* p = dns::putRecordHead(record_.data(), dns::pointerTo(owner), type(), kTtlSeconds, rdata.size());
    return {record_.data(), dns::putBytes(p, rdata)};
  }
  std::span<const uint8_t> soa(size_t owner) {
    constexpr size_t kNumbers = 5;
    constexpr size_t kSize = kLocalhost.size() + kMailbox.size() + kNumbers * sizeof(uint32_t);
    uint8_t* p = dns::putRecordHead(record_.data(), dns::pointerTo(owner), RrType::kSoa, kTtlSeconds, kSize);
    p = dns::putBytes(dns::putBytes(p, kLocalhost), kMailbox);
    for (const uint32_t number : {1u, 0u, 0u, 0u, kTtlSeconds}) p = dns::put32(p, number);
    return {record_.data(), p};
  }

  const dns::Query& query_;
  dns::ResponseBuilder response_;
  std::array<uint8_t, 64> record_;
};

// The name is a zone.
resolve::QueryOutcome answerApex(const dns::Query& query, size_t limit, uint16_t flags) {
  Reply reply(query, limit);
  if (reply.type() == RrType::kSoa) {
    reply.addSoa();
  } else if (reply.type() == RrType::kNs) {
    reply.addLocalhost();
  } else if (hasAddresses(reply.type()) && query.qname_size == localhost().size()) {
    reply.addAddress();
  } else {
    reply.deny(query.qname_size);
  }
  return reply.finish(flags);
}

// Below one. The name that has a PTR exists, and so do those between it and the zone (RFC 8020).
resolve::QueryOutcome answerBelow(const dns::Query& query, const Name& zone, size_t limit, uint16_t flags) {
  Reply reply(query, limit);
  const bool exists = dns::isNameWithin(loopback().wire(), Name::fromWire(query.name()));
  if (exists && query.qname_size == loopback().size() && reply.type() == RrType::kPtr) {
    reply.addLocalhost();
  } else {
    reply.deny(zone.size());
  }
  return reply.finish(flags, exists ? dns::Rcode::kNoError : dns::Rcode::kNxDomain);
}

const config::Options<LocalSettings>& options() {
  static const config::Options<LocalSettings> kOptions{
      {"localhost_prefix", "localhost_prefix on|off",
       config::choice(&LocalSettings::prefix, {{"on", true}, {"off", false}}, "'{word}' is neither on nor off")}};
  return kOptions;
}

class LocalDirective final : public resolve::Configured<LocalSettings> {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block&) override {
    return options().read(cursor, settings_);
  }
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override {
    chain.add(std::make_unique<Local>(settings_.prefix, context.process.log.named("plugin/local"),
                                      context.process.metrics.scope()));
    return {};
  }
};

}  // namespace

resolve::QueryOutcome Local::answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) {
  if (isBesideLocalhost(query)) {
    noteIntercepted(query, request);
    Reply reply(query, request.response_limit);
    if (hasAddresses(reply.type())) {
      reply.addAddress();
    } else {
      reply.deny(query.qname_size);
    }
    return reply.finish(flags);
  }
  const Name* zone = findZone(query);
  if (zone == nullptr) return resolve::QueryOutcome::next();
  if (query.qname_size == zone->size() && query.qtype == dns::code(RrType::kDs))
    return resolve::QueryOutcome::nextOfExisting();
  if (query.qname_size == zone->size()) return answerApex(query, request.response_limit, flags);
  return answerBelow(query, *zone, request.response_limit, flags);
}

resolve::QueryOutcome Local::answerNoData(const dns::Query& query, const resolve::Request& request, uint16_t flags) {
  return answerApex(query, request.response_limit, flags);
}

// Below localhost., or a name that a search list was appended to.
bool Local::isBesideLocalhost(const dns::Query& query) const {
  if (query.qname_size <= localhost().size()) return false;
  if (dns::isNameWithin(query.name(), localhost())) return true;
  const std::string_view label = kLocalhost.substr(0, kLocalhost.size() - 1);
  return prefix_ && std::equal(label.begin(), label.end(), query.name().begin());
}

void Local::noteIntercepted(const dns::Query& query, const resolve::Request& request) {
  counters_.intercepted.add();
  if (!log_.showsDebug()) return;
  const auto source = IpAddress::fromSockaddr(request.source);
  log_.debug("Intercepting localhost query for \"{}\" {}, from {}", dns::nameToString(query.name().data()),
             dns::kTypeNames.toString(query.qtype), source ? source->unmapped().toString() : "?");
}

extern const resolve::DirectiveType kLocalDirective{.name = "local",
                                                    .syntax = "local [{ localhost_prefix on|off }]",
                                                    .make = resolve::makeDirective<LocalDirective>,
                                                    .defaults = [] { return options().defaults(); }};

}  // namespace idetcd::directive
