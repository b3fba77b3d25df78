#include "skydns/lookup.h"

#include <cmath>
#include <tuple>

#include "zones/zone_response.h"

namespace idetcd::skydns {

using dns::RrType;
using Section = zones::ZoneResponse::Section;

namespace {

constexpr uint32_t kSoaTtl = 30;  // and the minimum: of denials (RFC 2308)
constexpr std::array<uint32_t, 4> kSoaTimes{7200, 1800, 86400, kSoaTtl};
constexpr size_t kLongestString = 255;
// A record takes 16 bytes of the response at least. There may be keys that have none of the type.
constexpr size_t kBytesPerKey = 2;

std::span<const uint8_t> bytesOf(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

bool isEqual(std::span<const uint8_t> a, std::span<const uint8_t> b) { return std::ranges::equal(a, b); }

// A name that has an address is no alias (RFC 1034 §3.6.2).
bool hasAddress(std::span<const Service* const> services) {
  return std::ranges::any_of(services, [](const Service* service) { return service->address.has_value(); });
}

bool isWildcard(std::string_view label) { return label == "*" || label == "any"; }

// `name` is `zone` or below it.
bool isWithin(std::span<const uint8_t> name, std::span<const uint8_t> zone) {
  while (name.size() > zone.size()) name = dns::parentOf(name);
  return isEqual(name, zone);
}

std::vector<uint8_t> joined(std::string_view labels, std::span<const uint8_t> name) {
  std::vector<uint8_t> bytes(labels.begin(), labels.end());
  bytes.insert(bytes.end(), name.begin(), name.end());
  return bytes;
}

void put16(std::vector<uint8_t>& to, uint16_t value) {
  to.push_back(static_cast<uint8_t>(value >> 8));
  to.push_back(static_cast<uint8_t>(value));
}
void put32(std::vector<uint8_t>& to, uint32_t value) {
  put16(to, static_cast<uint16_t>(value >> 16));
  put16(to, static_cast<uint16_t>(value));
}

// As strings of 255 bytes (RFC 1035 §3.3).
std::vector<uint8_t> textData(std::string_view text) {
  std::vector<uint8_t> bytes;
  for (; !text.empty(); text.remove_prefix(std::min(text.size(), kLongestString))) {
    const std::string_view part = text.substr(0, kLongestString);
    bytes.push_back(static_cast<uint8_t>(part.size()));
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  return bytes;
}

size_t depthOf(const Service& service) { return static_cast<size_t>(std::ranges::count(service.key, '/')); }

// Without its first `labels`; a name that has no more than these stays whole.
std::span<const uint8_t> stripped(std::span<const uint8_t> name, size_t labels) {
  std::span<const uint8_t> rest = name;
  for (; labels > 0; --labels) {
    if (rest.front() == 0) return name;
    rest = dns::parentOf(rest);
  }
  return rest.front() == 0 ? name : rest;
}

// Of a SOA that is made up.
std::vector<uint8_t> soaData(const dns::Name& zone, uint32_t serial) {
  constexpr std::string_view kServer("\2ns\3dns");
  constexpr std::string_view kMailbox("\12hostmaster");
  std::vector<uint8_t> data;
  for (const std::string_view labels : {kServer, kMailbox}) {
    const std::vector<uint8_t> name = joined(labels, zone.wire());
    const std::span<const uint8_t> fits = name.size() <= dns::kMaxNameLength ? std::span(name) : zone.wire();
    data.insert(data.end(), fits.begin(), fits.end());
  }
  put32(data, serial);
  for (const uint32_t time : kSoaTimes) put32(data, time);
  return data;
}

void addSoa(zones::ZoneResponse& response, const dns::Name& zone, uint32_t serial) {
  response.addRecord(Section::kAuthority, zone.wire(), dns::code(RrType::kSoa), kSoaTtl, soaData(zone, serial));
}

}  // namespace

std::span<const uint8_t> Lookup::keep(std::span<const uint8_t> bytes) {
  return kept_.emplace_back(bytes.begin(), bytes.end());
}

// Whatever the TTL.
bool Lookup::isNew(const Records& to, const Record& record) {
  const std::array<uint64_t, 3> parts{hashBytes(record.owner.data(), record.owner.size(), seed_),
                                      hashBytes(record.rdata.data(), record.rdata.size(), seed_),
                                      uint64_t{dns::code(record.type)} << 1 | (&to == &answer_ ? 1 : 0)};
  return seen_.insert(hashBytes(parts.data(), sizeof(parts), seed_)).second;
}

void Lookup::add(Records& to, const Record& record) {
  if (isNew(to, record)) to.push_back(record);
}

// --- services of a name ---

// A service without a host is for its text alone.
bool Lookup::isIncluded(const Service& service) const {
  return service.hasHost() || (qtype_ == dns::code(RrType::kTxt) && !service.text.empty());
}

// `key`: of a service at or below the wildcard.
bool Lookup::matches(std::string_view key) const {
  for (const std::string_view label : labels_) {
    if (key.empty()) return false;
    key.remove_prefix(1);
    const std::string_view part = key.substr(0, key.find('/'));
    if (!isWildcard(label) && part != label) return false;
    key.remove_prefix(part.size());
  }
  return true;
}

// What is at the keys below the name, or, if there are none, at its own; only that without `with_below`. False: there is no
// such key.
bool Lookup::find(Bytes name, bool with_below, Services& found) {
  labels_.clear();
  for (Bytes rest = name; rest.front() != 0; rest = dns::parentOf(rest))
    labels_.emplace_back(reinterpret_cast<const char*>(rest.data() + 1), rest.front());
  std::ranges::reverse(labels_);
  std::string key;
  bool has_wildcard = false;
  for (const std::string_view label : labels_) {
    if (label.find('/') != label.npos) return false;
    has_wildcard = has_wildcard || isWildcard(label);
    if (!has_wildcard) key.append("/").append(label);
  }
  bool exists = false;
  const auto take = [&](const Service& service) {
    if (looked_at_ == most_keys_) {
      is_cut_ = true;
      return false;
    }
    ++looked_at_;
    exists = true;
    if (isIncluded(service) && (!has_wildcard || matches(service.key))) found.push_back(&service);
    return true;
  };
  if (with_below) table_->visit(key + '/', take);
  if (!exists) {
    const Service* const own = table_->find(key);
    if (own != nullptr) take(*own);
  }
  leaveOtherGroups(found);
  return exists;
}

bool Lookup::hasBelow(Bytes name) {
  const auto key = keyOf(name);
  bool has = false;
  if (key) {
    table_->visit(*key + '/', [&](const Service&) {
      has = true;
      return false;
    });
  }
  return has;
}

// The group of the services with the shortest key, if that is one, and those without a group.
void Lookup::leaveOtherGroups(Services& services) const {
  if (std::ranges::all_of(services, [](const Service* service) { return service->group.empty(); })) return;
  std::string_view group = services.front()->group;
  size_t depth = depthOf(*services.front());
  for (const Service* service : services) {
    if (depthOf(*service) >= depth) continue;
    if (service->group.empty()) break;
    depth = depthOf(*service);
    group = service->group;
  }
  if (group.empty()) return;
  const auto is_other = [&](const Service* service) { return !service->group.empty() && service->group != group; };
  const bool disagree = std::ranges::any_of(
      services, [&](const Service* service) { return is_other(service) && depthOf(*service) == depth; });
  if (!disagree) std::erase_if(services, is_other);
}

bool Lookup::findForAddresses(Bytes name, Services& found) {
  if (qtype_ != dns::code(RrType::kTxt) && isEqual(name, zone_->wire())) {
    const std::vector<uint8_t> apex = joined("\4apex\3dns", name);
    if (apex.size() <= dns::kMaxNameLength && find(apex, true, found)) return true;
  }
  return find(name, true, found);
}

// --- addresses and texts ---

// What the name has of the type. Where it has nothing, of its aliases the first that leads to something; in the additional
// section what the others lead to, too. False: nothing.
bool Lookup::follow(Bytes name, RrType type, Records& to, size_t aliases) {
  if (looked_at_ == most_keys_) {
    is_cut_ = true;
    return false;
  }
  Services services;
  const bool exists = findForAddresses(name, services);
  if (aliases == 0) exists_ = exists_ || exists;
  if (addOwn(name, type, services, to)) return true;
  if (hasAddress(services)) return false;
  bool has_alias = false;
  const uint64_t from = hashBytes(name.data(), name.size(), seed_) + dns::code(type);
  for (const bool outside : {false, true}) {
    for (const Service* service : services) {
      if (service->target.empty() || aliases == kMostAliases) continue;
      const Bytes target = bytesOf(service->target);
      // What is below the name is what the name itself has.
      if (isWithin(target, zone_->wire()) == outside || isWithin(target, name)) continue;
      if (!tried_.insert(from ^ hashBytes(target.data(), target.size(), seed_ + 1)).second) continue;
      if (!followAlias({name, RrType::kCname, service->ttl(), target}, type, to, aliases)) continue;
      if (&to == &answer_) return true;
      has_alias = true;
    }
  }
  return has_alias;
}

bool Lookup::addOwn(Bytes name, RrType type, const Services& services, Records& to) {
  const size_t before = to.size();
  uint32_t ttl = std::numeric_limits<uint32_t>::max();
  bool has = false;
  for (const Service* service : services) {
    std::optional<Bytes> data;
    if (type == RrType::kTxt) {
      if (!service->text.empty()) data = keep(textData(service->text));
    } else if (service->address && service->address->isV4() == (type == RrType::kA)) {
      data = Bytes(service->address->data(), service->address->size());
    }
    if (!data) continue;
    has = true;
    ttl = std::min(ttl, service->ttl());
    add(to, {name, type, 0, *data});
  }
  for (size_t i = before; i < to.size(); ++i) to[i].ttl = ttl;
  return has;
}

// The alias, unless the name has one already, and what it leads to. False: nothing, and `to` is as it was.
bool Lookup::followAlias(const Record& alias, RrType type, Records& to, size_t aliases) {
  const auto before = static_cast<ptrdiff_t>(to.size());
  to.push_back(alias);
  if (isWithin(alias.rdata, zone_->wire())) {
    if (follow(alias.rdata, type, to, aliases + 1)) {
      if (!isNew(to, {alias.owner, RrType::kCname, 0, {}})) to.erase(to.begin() + before);
      return true;
    }
  } else if (&to == &answer_) {  // clients ask for other servers' addresses by themselves
    if (aliases_ == Aliases::kAlone) return true;
    if (foreign_ != nullptr && isEqual(foreign_->name.wire(), alias.rdata)) {
      has_met_foreign_ = true;
      if (addForeign(type, to)) return true;
    } else if (!std::exchange(needs_foreign_, true)) {
      foreign_name_ = dns::Name::fromWire(alias.rdata);
    }
  }
  to.erase(to.begin() + before, to.end());
  return false;
}

// The aliases and the records of the type in the answer section.
bool Lookup::addForeign(RrType type, Records& to) {
  if (foreign_->message.empty()) return false;
  dns::MessageReader reader(foreign_->message, foreign_->question_end);
  dns::RecordView record;
  bool has_type = false;
  while (reader.next(record) == dns::ReadStep::kRead && record.section == dns::Section::kAnswer) {
    const bool is_alias = record.type == dns::code(RrType::kCname);
    if (record.klass != dns::code(dns::RrClass::kIn) || (!is_alias && record.type != dns::code(type))) continue;
    dns::ExpandedName owner;
    dns::ExpandedName target;
    if (dns::expandName(foreign_->message, record.owner, owner) == 0) break;
    Bytes data = foreign_->message.subspan(record.rdata, record.rdata_size);
    if (is_alias) {
      if (dns::expandName(foreign_->message, record.rdata, target) == 0) break;
      data = target.span();
    }
    has_type = has_type || !is_alias;
    to.push_back({keep(owner.span()), static_cast<RrType>(record.type), record.ttl, keep(data)});
  }
  return has_type;
}

// --- services as such ---

// The addresses of a target, in addition. The answer lacks nothing without them.
void Lookup::addHosts(Bytes target) {
  if (looked_at_ == most_keys_ || !isWithin(target, zone_->wire())) return;
  if (!tried_.insert(hashBytes(target.data(), target.size(), seed_ + 2)).second) return;
  ++looked_at_;  // also one that has no key is work
  const bool was_cut = is_cut_;
  for (const RrType type : {RrType::kA, RrType::kAaaa}) follow(target, type, additional_, 0);
  is_cut_ = was_cut;
}

// The name that a record of the service leads to. Empty: it has none.
std::span<const uint8_t> Lookup::targetOf(const Service& service) {
  if (!service.address) return stripped(bytesOf(service.target), service.target_strip);
  const auto name = nameOf(service.key);
  return name ? keep(stripped(name->wire(), service.target_strip)) : Bytes();
}

void Lookup::addTarget(const Service& service, Bytes target) {
  if (!service.address) return addHosts(target);
  const Bytes data(service.address->data(), service.address->size());
  add(additional_, {target, service.address->isV4() ? RrType::kA : RrType::kAaaa, service.ttl(), data});
}

// A weight is the share of its priority's, in hundredths: as CoreDNS reckons it. One of several equal records has the weight
// of all.
bool Lookup::findServers(Bytes name) {
  Services services;
  const bool exists = find(name, true, services);
  std::map<uint16_t, double> sums;
  for (const Service* service : services) sums[service->priority] += service->weight;
  using Key = std::tuple<uint16_t, uint16_t, std::string_view>;  // priority, port, target
  std::map<Key, uint32_t> weights;
  std::vector<Key> order;
  uint32_t ttl = std::numeric_limits<uint32_t>::max();
  for (const Service* service : services) {
    const Bytes target = targetOf(*service);
    if (service->port < 0 || service->port > std::numeric_limits<uint16_t>::max() || target.empty()) continue;
    const Key server{service->priority, static_cast<uint16_t>(service->port),
                     std::string_view(reinterpret_cast<const char*>(target.data()), target.size())};
    const double share = std::floor(100.0 / sums[service->priority] * service->weight);
    uint32_t& weight = weights[server];
    if (weight == 0) order.push_back(server);
    weight += std::max<uint32_t>(1, static_cast<uint32_t>(share));
    ttl = std::min(ttl, service->ttl());
    addTarget(*service, target);
  }
  for (const Key& server : order) {
    const auto& [priority, port, target] = server;
    std::vector<uint8_t> data;
    put16(data, priority);
    put16(data, static_cast<uint16_t>(std::min<uint32_t>(weights[server], std::numeric_limits<uint16_t>::max())));
    put16(data, port);
    data.insert(data.end(), target.begin(), target.end());
    answer_.push_back({name, RrType::kSrv, ttl, keep(data)});
  }
  return exists;
}

bool Lookup::findMail(Bytes name) {
  Services services;
  const bool exists = find(name, true, services);
  uint32_t ttl = std::numeric_limits<uint32_t>::max();
  for (const Service* service : services) {
    if (!service->mail) continue;
    const Bytes target = targetOf(*service);
    if (target.empty()) continue;
    std::vector<uint8_t> data;
    put16(data, service->priority);
    data.insert(data.end(), target.begin(), target.end());
    ttl = std::min(ttl, service->ttl());
    add(answer_, {name, RrType::kMx, 0, keep(data)});
    addTarget(*service, target);
  }
  for (Record& record : answer_) record.ttl = ttl;
  return exists;
}

// Of the zone. A server whose host is a name has no name here.
bool Lookup::findNameServers() {
  const std::vector<uint8_t> place = joined("\2ns\3dns", zone_->wire());
  Services services;
  if (place.size() <= dns::kMaxNameLength) find(place, true, services);
  uint32_t ttl = std::numeric_limits<uint32_t>::max();
  for (const Service* service : services) {
    if (!service->address) continue;
    const Bytes target = targetOf(*service);
    if (target.empty()) continue;
    ttl = std::min(ttl, service->ttl());
    add(answer_, {zone_->wire(), RrType::kNs, 0, target});
    addTarget(*service, target);
  }
  for (Record& record : answer_) record.ttl = ttl;
  return true;
}

// Of the key itself: the first host that is a name as CNAME, where the name has no address; all as PTR.
bool Lookup::findExact(Bytes name, RrType type) {
  Services services;
  if (type == RrType::kCname && findForAddresses(name, services) && hasAddress(services)) return true;
  services.clear();
  const bool exists = find(name, false, services);
  uint32_t ttl = std::numeric_limits<uint32_t>::max();
  for (const Service* service : services) {
    if (service->target.empty()) continue;
    ttl = std::min(ttl, service->ttl());
    add(answer_, {name, type, 0, bytesOf(service->target)});
    if (type == RrType::kCname) break;
  }
  for (Record& record : answer_) record.ttl = ttl;
  return exists || hasBelow(name);
}

// --- a query ---

Lookup::Outcome Lookup::run(const ServiceTable& table, const dns::Name& zone, const dns::Query& query, size_t limit,
                            Aliases aliases, const ForeignAnswer* foreign) {
  table_ = &table;
  zone_ = &zone;
  qtype_ = query.qtype;
  aliases_ = aliases;
  foreign_ = foreign;
  needs_foreign_ = has_met_foreign_ = exists_ = is_cut_ = false;
  most_keys_ = std::min(kMostKeys, limit / kBytesPerKey);
  looked_at_ = 0;
  answer_.clear();
  additional_.clear();
  kept_.clear();
  seen_ = {};  // not clear(), which takes as long as the largest query before
  tried_ = {};
  const Bytes name = query.name();
  const bool is_apex = isEqual(name, zone.wire());
  const auto type = static_cast<RrType>(query.qtype);
  switch (type) {
    case RrType::kA:
    case RrType::kAaaa:
    case RrType::kTxt:
      follow(name, type, answer_, 0);
      break;
    case RrType::kSrv:
      exists_ = findServers(name);
      break;
    case RrType::kMx:
      exists_ = findMail(name);
      break;
    case RrType::kCname:
    case RrType::kPtr:
      exists_ = findExact(name, type);
      break;
    default: {
      if (type == RrType::kDs && is_apex) return Outcome::kParentSide;
      Services unused;
      exists_ = find(name, true, unused);
      if (is_apex && type == RrType::kSoa)
        answer_.push_back({name, type, kSoaTtl, keep(soaData(zone, table.serial()))});
      if (is_apex && type == RrType::kNs) findNameServers();
    }
  }
  exists_ = exists_ || is_apex;
  if (answer_.empty() && needs_foreign_ && !has_met_foreign_) return Outcome::kForeign;
  return exists_ ? Outcome::kFound : Outcome::kNoName;
}

size_t Lookup::write(const dns::Query& query, size_t limit, uint16_t flags, std::optional<dns::EdeCode> ede) const {
  zones::ZoneResponse response(query, limit);
  if (ede) response.setEde(*ede);
  if (is_cut_) response.cutHere();
  for (const Record& record : answer_)
    response.addRecord(Section::kAnswer, record.owner, dns::code(record.type), record.ttl, record.rdata);
  if (answer_.empty()) addSoa(response, *zone_, table_->serial());
  for (const Record& record : additional_) {
    if (!response.addAdditional(record.owner, dns::code(record.type), record.ttl, record.rdata)) break;
  }
  const dns::Rcode rcode = exists_ || !answer_.empty() ? dns::Rcode::kNoError : dns::Rcode::kNxDomain;
  return response.finish(rcode, static_cast<uint16_t>(flags | dns::kFlagAa));
}

size_t Lookup::writeNoData(const ServiceTable& table, const dns::Name& zone, const dns::Query& query, size_t limit,
                           uint16_t flags) {
  zones::ZoneResponse response(query, limit);
  addSoa(response, zone, table.serial());
  return response.finish(dns::Rcode::kNoError, static_cast<uint16_t>(flags | dns::kFlagAa));
}

}  // namespace idetcd::skydns
