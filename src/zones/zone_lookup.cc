#include "zones/zone_lookup.h"

#include "zones/rdata_reader.h"
#include "zones/zone_response.h"

namespace idetcd::zones {

using dns::Rcode;
using dns::RrType;
using records::Entry;

namespace {

// Names; more if a referral needs them. No UDP response has room for more, and each one is compared with all before.
constexpr size_t kMaxAdditionals = 512;
constexpr size_t kMaxProofs = 48;
constexpr std::array<uint8_t, 2> kWildcardLabel{1, '*'};

// Where a look-up ends.
struct Match {
  enum class Kind : uint8_t {
    kName,   // the name itself
    kCut,    // at or below a delegation
    kDname,  // below a DNAME
    kNone,   // there is no such name
  };
  Kind kind;
  const Entry* entry;  // the name's, the delegation's, the DNAME's, the closest encloser's
};

// Everything below a delegation or a DNAME is hidden, so that the first name above that is not is the highest of them.
// REQUIRES: `name` is in the zone.
Match findMatch(const Zone& zone, std::span<const uint8_t> name) {
  std::span<const uint8_t> at = name;
  const Entry* entry = zone.find(at);
  while (entry == nullptr || Zone::has(*entry, Zone::kHidden)) {
    at = dns::parentOf(at);
    entry = zone.find(at);
  }
  if (Zone::has(*entry, Zone::kCut)) return {Match::Kind::kCut, entry};
  if (at.size() == name.size()) return {Match::Kind::kName, entry};
  return {Zone::has(*entry, Zone::kDname) ? Match::Kind::kDname : Match::Kind::kNone, entry};
}

const Entry* findWildcard(const Zone& zone, const Entry& encloser) {
  WireName name;  // no longer than what was looked for: no label is shorter
  std::ranges::copy(encloser.name(), std::ranges::copy(kWildcardLabel, name.bytes.begin()).out);
  name.size = static_cast<uint8_t>(kWildcardLabel.size() + encloser.name().size());
  return zone.find(name.span());
}

// Where the name is in RDATA of which the address is wanted as well; nothing: in none.
std::optional<size_t> targetOffset(uint16_t type) {
  switch (static_cast<RrType>(type)) {
    case RrType::kNs:
      return 0;
    case RrType::kMx:
    case RrType::kAfsdb:
    case RrType::kRt:
    case RrType::kKx:
    case RrType::kSvcb:
    case RrType::kHttps:
      return 2;
    case RrType::kSrv:
      return 6;
    default:
      return std::nullopt;
  }
}

// Some entries, each once.
template <size_t capacity>
class EntryList {
 public:
  std::span<const Entry* const> all() const { return {entries_.data(), count_}; }
  // False: it is there already, or there is no room.
  bool add(const Entry& entry) {
    if (count_ == capacity || std::ranges::find(all(), &entry) != all().end()) return false;
    entries_[count_++] = &entry;
    return true;
  }
  bool isFull() const { return count_ == capacity; }
  void clear() { count_ = 0; }

 private:
  std::array<const Entry*, capacity> entries_;
  size_t count_ = 0;
};

class Lookup {
 public:
  using Section = ZoneResponse::Section;

  Lookup(const Zone& zone, const dns::Query& query, size_t limit, uint16_t flags)
      : zone_(zone),
        query_(query),
        flags_(flags),
        response_(query, limit),
        proves_(query.dnssec_ok && zone.denial().kind() != Denial::Kind::kNone) {
    name_.assign(query.name());
  }

  ZoneAnswer run(bool passes_missing) {
    while (step_ <= kMaxChain && dns::isNameWithin(name_.span(), zone_.origin())) {
      const Match match = findMatch(zone_, name_.span());
      if (match.kind == Match::Kind::kNone && step_ == 0 && passes_missing &&
          findWildcard(zone_, *match.entry) == nullptr)
        return {ZoneAnswer::Kind::kNoName, 0};
      if (!take(match)) return {ZoneAnswer::Kind::kAnswer, finish(), wildcard_};
      ++step_;
    }
    return {step_ <= kMaxChain ? ZoneAnswer::Kind::kAlias : ZoneAnswer::Kind::kAnswer, finish(), wildcard_};
  }

  size_t finishNoData() {
    addSoa();
    if (proves_) proveNoData(zone_.apex());
    return finish();
  }

 private:
  // True: name_ is now another one, which is to be looked up.
  bool take(const Match& match) {
    switch (match.kind) {
      case Match::Kind::kName:
        return answerFrom(*match.entry, nullptr);
      case Match::Kind::kCut:
        return takeCut(*match.entry);
      case Match::Kind::kDname:
        return redirect(*match.entry);
      default:
        return takeMissing(*match.entry);
    }
  }

  // From the RRsets of `entry`; `encloser`: if it is a wildcard of it.
  bool answerFrom(const Entry& entry, const Entry* encloser) {
    is_ours_ = true;
    const Entry::Rrset cname = entry.find(dns::code(RrType::kCname));
    const bool any = dns::isType(query_.qtype, RrType::kAny);
    if (cname.count > 0 && !any && !dns::isType(query_.qtype, RrType::kCname) && entry.find(query_.qtype).count == 0) {
      if (!follow()) return false;
      addAnswer(entry, cname);
      if (encloser != nullptr) noteExpansion(*encloser);
      name_.assign(cname.wire.subspan(dns::kRecordHeadSize));
      return true;
    }
    const bool found = entry.visitRrsets([&](const Entry::Rrset& rrset) {
      if (rrset.type != query_.qtype && !any) return false;
      if (any && dns::isType(rrset.type, RrType::kRrsig)) return false;
      addAnswer(entry, rrset);
      noteTargets(rrset);
      has_answer_ = true;
      return !any;
    });
    if (found || has_answer_) {
      if (encloser != nullptr) noteExpansion(*encloser);
      answered_ = &entry;
      return false;
    }
    addSoa();
    if (proves_) encloser == nullptr ? proveNoData(entry) : proveWildcardNoData(entry, *encloser);
    return false;
  }

  // Of the queried name itself: what its aliases lead to is a few names.
  void noteWildcard(const Entry& entry) {
    if (step_ > 0) return;
    const uint64_t hash = hashBytes(entry.name().data(), entry.name().size(), zone_.table().seed());
    wildcard_ = std::max<uint32_t>(static_cast<uint32_t>(hash), 1);
  }

  // Notes that the alias of name_ is followed; false: it was before.
  bool follow() {
    const uint64_t hash = hashBytes(name_.bytes.data(), name_.size, zone_.table().seed());
    const auto end = followed_.begin() + followed_count_;
    if (std::find(followed_.begin(), end, hash) != end) return false;
    followed_[followed_count_++] = hash;
    return true;
  }

  void addAnswer(const Entry& entry, const Entry::Rrset& rrset) {
    response_.add(Section::kAnswer, name_.span(), rrset);
    if (query_.dnssec_ok) response_.addSignatures(Section::kAnswer, name_.span(), signaturesOf(entry), rrset.type);
  }

  static Entry::Rrset signaturesOf(const Entry& entry) { return entry.find(dns::code(RrType::kRrsig)); }

  bool takeCut(const Entry& cut) {
    const bool at_cut = cut.name().size() == name_.size;
    if (at_cut && dns::isType(query_.qtype, RrType::kDs)) return answerFrom(cut, nullptr);
    refer(cut);
    return false;
  }

  void refer(const Entry& cut) {
    const auto owner = cut.name();
    const Entry::Rrset servers = cut.find(dns::code(RrType::kNs));
    response_.add(Section::kAuthority, owner, servers);
    if (proves_) {
      const Entry::Rrset ds = cut.find(dns::code(RrType::kDs));
      if (ds.count > 0) {
        response_.add(Section::kAuthority, owner, ds);
        response_.addSignatures(Section::kAuthority, owner, signaturesOf(cut), ds.type);
      } else {
        proveNoData(cut);
      }
    }
    flushProofs();
    delegation_ = &cut;
    noteTargets(servers);
  }

  // RFC 6672 §3.1.
  bool redirect(const Entry& entry) {
    is_ours_ = true;
    if (!follow()) return false;
    noteWildcard(entry);
    const Entry::Rrset dname = entry.find(dns::code(RrType::kDname));
    if (redirected_.add(entry)) {
      response_.add(Section::kAnswer, entry.name(), dname);
      if (query_.dnssec_ok) response_.addSignatures(Section::kAnswer, entry.name(), signaturesOf(entry), dname.type);
    }
    const auto target = dname.wire.subspan(dns::kRecordHeadSize);
    const size_t prefix = name_.size - entry.name().size();
    if (prefix + target.size() > dns::kMaxNameLength) {
      rcode_ = Rcode::kYxDomain;
      return false;
    }
    WireName renamed = name_;
    std::ranges::copy(target, renamed.bytes.begin() + static_cast<ptrdiff_t>(prefix));
    renamed.size = static_cast<uint8_t>(prefix + target.size());
    response_.addRecord(Section::kAnswer, name_.span(), dns::code(RrType::kCname),
                        dns::load32(dname.wire.data() + dns::kTtlOffset), renamed.span());
    name_ = renamed;
    return !dns::isType(query_.qtype, RrType::kCname);
  }

  bool takeMissing(const Entry& encloser) {
    const Entry* wildcard = findWildcard(zone_, encloser);
    if (wildcard != nullptr) {
      noteWildcard(*wildcard);
      return answerFrom(*wildcard, &encloser);
    }
    is_ours_ = true;
    rcode_ = Rcode::kNxDomain;
    addSoa();
    if (proves_) proveMissing(encloser);
    return false;
  }

  void addSoa() {
    const Entry& apex = zone_.apex();
    response_.add(Section::kAuthority, apex.name(), apex.find(dns::code(RrType::kSoa)), zone_.negativeTtl());
    if (query_.dnssec_ok)
      response_.addSignatures(Section::kAuthority, apex.name(), signaturesOf(apex), dns::code(RrType::kSoa),
                              zone_.negativeTtl());
  }

  // --- proofs (RFC 4035 §3.1.3, RFC 5155 §7.2) ---

  // One label more than `encloser` of the name that was looked for.
  std::span<const uint8_t> nextCloser(std::span<const uint8_t> encloser) const {
    std::span<const uint8_t> name = name_.span();
    while (dns::parentOf(name).size() != encloser.size()) name = dns::parentOf(name);
    return name;
  }

  bool usesNsec() const { return zone_.denial().kind() == Denial::Kind::kNsec; }

  void proveNoData(const Entry& entry) {
    if (usesNsec()) return noteProof(zone_.denial().nsecOf(entry.name()));
    const Denial::Nsec3 found = zone_.denial().nsec3Of(entry.name());
    if (found.matches || entry.name().size() == zone_.origin().size()) return noteProof(*found.entry);
    proveEncloser(dns::parentOf(entry.name()));
  }

  void proveMissing(const Entry& encloser) {
    const auto provable = proveEncloser(encloser.name());
    WireName wildcard;
    std::ranges::copy(provable, std::ranges::copy(kWildcardLabel, wildcard.bytes.begin()).out);
    wildcard.size = static_cast<uint8_t>(kWildcardLabel.size() + provable.size());
    proveNot(wildcard.span());
  }

  void proveWildcardNoData(const Entry& wildcard, const Entry& encloser) {
    proveEncloser(encloser.name());
    proveNot(wildcard.name());
  }

  // That nothing is closer to the name than `encloser`; with NSEC3 the closest one that has a record of its own, which is
  // returned: with opt-out, names that only lead to delegations without DS have none (RFC 5155 §7.2.1).
  std::span<const uint8_t> proveEncloser(std::span<const uint8_t> encloser) {
    if (usesNsec()) {
      noteProof(zone_.denial().nsecOf(name_.span()));
      return encloser;
    }
    Denial::Nsec3 found = zone_.denial().nsec3Of(encloser);
    while (!found.matches && encloser.size() > zone_.origin().size()) {
      encloser = dns::parentOf(encloser);
      found = zone_.denial().nsec3Of(encloser);
    }
    noteProof(*found.entry);
    proveNot(nextCloser(encloser));
    return encloser;
  }

  // The record whose interval the name is in.
  void proveNot(std::span<const uint8_t> name) {
    noteProof(usesNsec() ? zone_.denial().nsecOf(name) : *zone_.denial().nsec3Of(name).entry);
  }

  // That nothing is closer than the wildcard.
  void noteExpansion(const Entry& encloser) {
    if (proves_) proveNot(usesNsec() ? name_.span() : nextCloser(encloser.name()));
  }

  void noteProof(const Entry& entry) { proofs_.add(entry); }

  void flushProofs() {
    const RrType type = usesNsec() ? RrType::kNsec : RrType::kNsec3;
    for (const Entry* entry : proofs_.all()) {
      response_.add(Section::kAuthority, entry->name(), entry->find(dns::code(type)));
      response_.addSignatures(Section::kAuthority, entry->name(), signaturesOf(*entry), dns::code(type));
    }
    proofs_.clear();
  }

  // --- additional ---

  void noteTargets(const Entry::Rrset& rrset) {
    if (targetOffset(rrset.type) && source_count_ < sources_.size()) sources_[source_count_++] = rrset;
  }

  void addTargets(const Entry::Rrset& rrset) {
    const size_t offset = *targetOffset(rrset.type);
    visitRecords(rrset, [&](uint32_t, std::span<const uint8_t> rdata) {
      const auto target = rdata.subspan(offset);
      addAddresses(target.first(dns::uncompressedNameSize(target)));
    });
  }

  void addAddresses(std::span<const uint8_t> target) {
    WireName folded;
    folded.assign(target);
    std::ranges::transform(target, folded.bytes.begin(), dns::toLower);
    if (!dns::isNameWithin(folded.span(), zone_.origin())) return;
    const Entry* entry = delegation_ != nullptr ? zone_.find(folded.span()) : nullptr;  // glue
    if (entry == nullptr) {
      const Match match = findMatch(zone_, folded.span());
      if (match.kind == Match::Kind::kName) entry = match.entry;
      if (match.kind == Match::Kind::kNone) entry = findWildcard(zone_, *match.entry);
    }
    if (entry == nullptr) return;
    if (!added_.add(*entry) && !(added_.isFull() && isNeeded(folded.span()))) return;
    for (const RrType type : {RrType::kA, RrType::kAaaa}) addAddress(folded.span(), *entry, dns::code(type));
  }

  // RFC 9471 §3.1: without the addresses of servers below the delegation nobody gets there.
  bool isNeeded(std::span<const uint8_t> server) const {
    return delegation_ != nullptr && dns::isNameWithin(server, dns::Name::fromWire(delegation_->name()));
  }

  void addAddress(std::span<const uint8_t> owner, const Entry& entry, uint16_t type) {
    const Entry::Rrset rrset = entry.find(type);
    if (rrset.count == 0 || (&entry == answered_ && dns::isType(query_.qtype, RrType::kAny))) return;
    const bool added = response_.addAdditional(owner, rrset, query_.dnssec_ok ? signaturesOf(entry) : Entry::Rrset());
    if (!added && isNeeded(owner)) response_.truncate();
  }

  size_t finish() {
    flushProofs();
    for (const Entry::Rrset& rrset : std::span(sources_).first(source_count_)) addTargets(rrset);
    return response_.finish(rcode_, static_cast<uint16_t>(flags_ | (is_ours_ ? dns::kFlagAa : 0)));
  }

  const Zone& zone_;
  const dns::Query& query_;
  const uint16_t flags_;
  ZoneResponse response_;
  const bool proves_;
  WireName name_;
  size_t step_ = 0;
  uint32_t wildcard_ = 0;
  bool is_ours_ = false;
  bool has_answer_ = false;
  Rcode rcode_ = Rcode::kNoError;
  const Entry* answered_ = nullptr;
  const Entry* delegation_ = nullptr;
  std::array<uint64_t, kMaxChain + 1> followed_;  // hashes of names
  unsigned followed_count_ = 0;
  EntryList<kMaxChain + 1> redirected_;  // with DNAME
  EntryList<kMaxProofs> proofs_;
  std::array<Entry::Rrset, 16> sources_;
  size_t source_count_ = 0;
  EntryList<kMaxAdditionals> added_;
};

}  // namespace

ZoneAnswer lookUp(const Zone& zone, const dns::Query& query, size_t limit, uint16_t flags, bool passes_missing) {
  if (dns::isType(query.qtype, RrType::kDs) && query.qname_size == zone.origin().size())
    return {ZoneAnswer::Kind::kParentSide, 0};
  return Lookup(zone, query, limit, flags).run(passes_missing);
}

size_t answerApexNoData(const Zone& zone, const dns::Query& query, size_t limit, uint16_t flags) {
  return Lookup(zone, query, limit, static_cast<uint16_t>(flags | dns::kFlagAa)).finishNoData();
}

}  // namespace idetcd::zones
