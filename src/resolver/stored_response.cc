#include "resolver/stored_response.h"

#include <ctime>

#include "dns/message_reader.h"
#include "dns/record_writer.h"

namespace idetcd::resolver {

using dns::code;
using dns::ExpandedName;
using dns::RrType;

namespace {

constexpr size_t kFewRecords = 8;  // as many as most responses have
constexpr size_t kMaxChain = 16;   // CNAMEs
// For the names of one message, some 2 ms. Those of 64 KB with 3,000 name servers take a fifth of it.
constexpr size_t kMaxSteps = 1'000'000;

struct Record : dns::RecordView {
  std::span<const uint8_t> message;  // that it stands in
  size_t owner_name = 0;             // which of the names: records in a row that point to one place have one
};

struct Records {
  std::vector<Record> list;
  std::vector<ExpandedName> owners;
  std::span<const uint8_t> ownerOf(const Record& record) const { return owners[record.owner_name].span(); }
};

// Reads everything of a message that we look at: its records, with their owners, and what OPT says.
class RecordCollector {
 public:
  RecordCollector(std::span<const uint8_t> message, size_t pos, dns::NameWork& work)
      : message_(message), reader_(message, pos), work_(work) {}

  // Fills records(). False if the message is cut short or a record is not well-formed.
  bool readRecords() {
    const dns::HeaderView header(message_.data());
    records_.list.reserve(std::min<size_t>(kFewRecords, header.answers() + header.authorities() + 1u));
    Record record;
    record.message = message_;
    dns::ReadStep step;
    while ((step = reader_.next(record)) == dns::ReadStep::kRead) {
      if (!take(record)) return false;
    }
    return step == dns::ReadStep::kEnd;
  }

  const Records& records() const { return records_; }
  uint16_t extendedRcode() const { return extended_rcode_; }
  std::optional<uint16_t> ede() const { return ede_; }

 private:
  bool take(Record& record) {
    if (record.type == code(RrType::kOpt)) {
      readOpt(record);
      return true;
    }
    if (record.type == code(RrType::kA) && record.rdata_size != 4) return false;
    if (record.type == code(RrType::kAaaa) && record.rdata_size != 16) return false;
    if ((record.ttl & 0x80000000u) != 0) record.ttl = 0;  // RFC 2181 §8
    if (!readOwner(record.owner)) return false;
    record.owner_name = records_.owners.size() - 1;
    records_.list.push_back(record);
    return true;
  }

  // The owner is the last of the names then.
  bool readOwner(size_t pos) {
    const size_t target = dns::pointerTarget(message_, pos);
    if (target != 0 && target == last_target_) return work_.spend(1);
    last_target_ = target;
    return dns::expandName(message_, pos, records_.owners.emplace_back(), work_) != 0;
  }

  void readOpt(const Record& opt) {
    extended_rcode_ = static_cast<uint16_t>(opt.ttl >> 24 << 4);
    dns::OptionReader options(message_.subspan(opt.rdata, opt.rdata_size));
    dns::OptionView option;
    while (options.next(option) == dns::ReadStep::kRead) {
      if (option.code == code(dns::EdnsOption::kEde) && option.data.size() >= 2 && !ede_) {
        ede_ = dns::load16(option.data.data());
      }
    }
  }

  std::span<const uint8_t> message_;
  dns::MessageReader reader_;
  dns::NameWork& work_;
  Records records_;
  size_t last_target_ = 0;  // of the pointer that the last owner was; 0: it was none
  uint16_t extended_rcode_ = 0;
  std::optional<uint16_t> ede_;
};

// Decides which records belong to the question, and encodes them.
class Selector {
 public:
  Selector(const dns::Query& query, const Records& records, size_t size, StoredResponse& response, dns::NameWork& work)
      : query_(query), records_(records), response_(response), work_(work), writer_(query, size, work) {}

  // Packs what belongs to the question: `out` says of the response what its header and OPT do. False: malformed, a
  // CNAME chain without end, a name with two CNAMEs (RFC 2181 §10.1) or DNAMEs (RFC 6672 §2.4), or too much work.
  bool select(dns::ResponseSections out) {
    rcode_ = out.rcode;
    if (!followChain()) return false;
    if (!takeAnswer(out.answers)) return false;
    out.answer_size = size();
    if (!take(dns::Section::kAuthority, Part::kProofs, out.proofs)) return false;
    out.proof_end = size();
    out.authorities = out.proofs;
    if (!take(dns::Section::kAuthority, Part::kRest, out.authorities)) return false;
    out.authority_end = size();
    if (!take(dns::Section::kAdditional, Part::kAll, out.additionals)) return false;
    pack(out);
    return true;
  }
  // As select(), but only the first `count` CNAMEs, without what they lead to.
  bool selectAliases(dns::ResponseSections out, size_t count) {
    max_chain_ = count;
    if (!followChain() || !takeAnswer(out.answers)) return false;
    out.answer_size = out.proof_end = out.authority_end = size();
    pack(out);
    return true;
  }

  bool hasAnswer() const { return has_answer_; }
  uint32_t leastTtl() const { return least_ttl_; }
  // RFC 2308 §5: the lesser of the SOA's TTL and its last field. Nothing: no SOA.
  std::optional<uint32_t> negativeTtl() const { return negative_ttl_; }
  // The target of its CNAMEs; nothing: there is none.
  std::optional<dns::Name> target() const {
    if (chain_size_ == 1) return std::nullopt;
    return dns::Name::fromWire(chain().back());
  }

 private:
  using NameSpan = std::span<const uint8_t>;
  enum class Part : uint8_t { kAll, kProofs, kRest };

  uint16_t size() const { return static_cast<uint16_t>(writer_.body().size()); }
  void pack(const dns::ResponseSections& out) {
    response_.packed = dns::PackedResponse::make(out, writer_.body(), writer_.ttlOffsets());
  }

  bool followChain() {
    chain_[chain_size_++] = query_.name();
    const bool follows = query_.qtype != code(RrType::kCname) && query_.qtype != code(RrType::kAny);
    for (;;) {
      auto target = std::make_unique<ExpandedName>();
      if (!readAlias(chain().back(), RrType::kCname, *target)) return false;
      if (target->size == 0 || !follows || chain_size_ == max_chain_) return true;
      if (isOnChain(target->span()) || chain_size_ > kMaxChain) return false;
      chain_[chain_size_++] = target->span();
      aliases_.push_back(std::move(target));
    }
  }

  // Sets `target` to the name that `owner` is an alias of, by CNAME or DNAME; of size 0: of none. False: malformed, or
  // of two names.
  bool readAlias(NameSpan owner, RrType type, ExpandedName& target) const {
    work_.spend(records_.list.size());
    for (const Record& record : records_.list) {
      if (record.section != dns::Section::kAnswer || record.type != code(type) || !isIn(record) ||
          !dns::sameName(records_.ownerOf(record), owner, work_)) {
        continue;
      }
      ExpandedName other;
      ExpandedName& name = target.size == 0 ? target : other;
      const size_t end = dns::expandName(record.message, record.rdata, name, work_);
      if (end == 0 || end != record.rdata + record.rdata_size) return false;
      if (!dns::sameName(name.span(), target.span(), work_)) return false;
    }
    return true;
  }

  bool isIn(const Record& record) const { return record.klass == query_.qclass; }
  bool isAsked(uint16_t type) const { return type == query_.qtype || query_.qtype == code(RrType::kAny); }
  std::span<const NameSpan> chain() const { return {chain_.data(), chain_size_}; }
  bool isOnChain(NameSpan name) const {
    return std::ranges::any_of(chain(), [&](NameSpan link) { return dns::sameName(link, name, work_); });
  }
  bool isAboveChainEnd(NameSpan owner) const { return dns::isWithin(chain().back(), owner, work_); }

  bool isWanted(const Record& record) const {
    if (!isIn(record)) return false;
    const NameSpan owner = records_.ownerOf(record);
    const uint16_t type = record.type;
    switch (record.section) {
      case dns::Section::kAnswer:
        if (type == code(RrType::kDname)) return isAboveAnyLink(owner);
        if (type == code(RrType::kRrsig) && query_.qtype != code(RrType::kRrsig)) {
          return query_.dnssec_ok && (isOnChain(owner) || isAboveAnyLink(owner));
        }
        return type == code(RrType::kCname) ? isOnChain(owner)
                                            : isAsked(type) && dns::sameName(chain().back(), owner, work_);
      case dns::Section::kAuthority:
        if (type == code(RrType::kSoa) || type == code(RrType::kNs)) return isAboveChainEnd(owner);
        return query_.dnssec_ok && (type == code(RrType::kNsec) || type == code(RrType::kNsec3) ||
                                    type == code(RrType::kRrsig) || type == code(RrType::kDs));
      case dns::Section::kAdditional:
        return (type == code(RrType::kA) || type == code(RrType::kAaaa)) && isTarget(owner);
    }
    return false;
  }

  // Of the authority section: what an answer or a denial is not whole without.
  bool isProof(const Record& record) const {
    const uint16_t type = coveredType(record);
    const bool denial = !has_answer_ || rcode_ == dns::Rcode::kNxDomain;
    return type == code(RrType::kNsec) || type == code(RrType::kNsec3) || (denial && type == code(RrType::kSoa));
  }

  // Of a signature, that of what it signs.
  static uint16_t coveredType(const Record& record) {
    const bool signs = record.type == code(RrType::kRrsig) && record.rdata_size >= sizeof(uint16_t);
    return signs ? dns::load16(&record.message[record.rdata]) : record.type;
  }

  bool isAboveAnyLink(NameSpan owner) const {
    return std::ranges::any_of(chain(), [&](NameSpan link) { return dns::isWithin(link, owner, work_); });
  }

  bool isTarget(NameSpan name) const {
    return std::any_of(targets_.begin(), targets_.end(),
                       [&](const auto& target) { return dns::sameName(target, name, work_); });
  }

  bool take(dns::Section section, Part part, uint16_t& count) {
    for (const Record& record : records_.list) {
      if (record.section != section || (part != Part::kAll && isProof(record) != (part == Part::kProofs))) continue;
      if (isWanted(record) && !take(record, count)) return false;
    }
    return !work_.isSpent();
  }

  // RFC 1034 §4.3.2: the CNAMEs come in the order in which they lead on, then what they lead to. glibc reads no other.
  bool takeAnswer(uint16_t& count) {
    if (chain_size_ == 1) return take(dns::Section::kAnswer, Part::kAll, count);
    std::array<std::vector<const Record*>, kMaxChain + 1> by_link;
    for (const Record& record : records_.list) {
      if (record.section == dns::Section::kAnswer && isWanted(record)) by_link[linkOf(record)].push_back(&record);
    }
    for (const auto& records : by_link) {
      for (const Record* record : records) {
        if (!take(*record, count)) return false;
      }
    }
    return !work_.isSpent();
  }

  // The first name of the chain that the record is about. REQUIRES: isWanted(record).
  size_t linkOf(const Record& record) const {
    const NameSpan owner = records_.ownerOf(record);
    const bool is_above = coveredType(record) == code(RrType::kDname);
    const auto link = std::ranges::find_if(chain(), [&](NameSpan name) {
      return is_above ? dns::isWithin(name, owner, work_) : dns::sameName(name, owner, work_);
    });
    return std::min<size_t>(static_cast<size_t>(link - chain().begin()), chain_size_ - 1);
  }

  bool take(const Record& record, uint16_t& count) {
    const bool denies = record.section == dns::Section::kAuthority && record.type == code(RrType::kSoa);
    const uint32_t ttl = denies ? negativeTtlOf(record) : record.ttl;
    ExpandedName target;
    if (record.type == code(RrType::kDname) && !readAlias(records_.ownerOf(record), RrType::kDname, target)) return false;
    if (!writer_.append(record.message, record, records_.ownerOf(record), ttl)) return false;
    ++count;
    least_ttl_ = std::min(least_ttl_, ttl);
    if (record.section == dns::Section::kAnswer && isAsked(record.type)) has_answer_ = true;
    if (denies) negative_ttl_ = ttl;
    if (record.type == code(RrType::kRrsig)) noteSignature(record);
    noteTarget(record);
    return true;
  }

  // Of the SOA itself too, so that clients count down from where we are.
  uint32_t negativeTtlOf(const Record& soa) const {
    if (soa.rdata_size < sizeof(uint32_t)) return 0;  // malformed, as append() will find
    return std::min(soa.ttl, dns::load32(&soa.message[soa.rdata + soa.rdata_size - sizeof(uint32_t)]));
  }

  // RFC 4034 §3.1: type covered, algorithm, labels and original TTL come before the end.
  void noteSignature(const Record& rrsig) {
    constexpr size_t kExpiration = 8;
    if (rrsig.rdata_size < kExpiration + sizeof(uint32_t)) return;
    const uint32_t end = dns::load32(&rrsig.message[rrsig.rdata + kExpiration]);
    std::optional<uint32_t>& first = response_.signature_end;
    if (!first || static_cast<int32_t>(end - *first) < 0) first = end;
  }

  // The host that an NS, MX or SRV record names, whose addresses belong into the additional section.
  void noteTarget(const Record& record) {
    const bool names_host =
        record.type == code(RrType::kNs) || record.type == code(RrType::kMx) || record.type == code(RrType::kSrv);
    if (!names_host || targets_.size() >= kMaxTargets) return;
    ExpandedName target;
    if (dns::expandName(record.message, record.rdata + dns::layoutOf(record.type)->before, target, work_) != 0) {
      targets_.emplace_back(target.span().begin(), target.span().end());
    }
  }

  static constexpr size_t kMaxTargets = 32;

  const dns::Query& query_;
  const Records& records_;
  StoredResponse& response_;
  dns::NameWork& work_;
  dns::RecordWriter writer_;
  dns::Rcode rcode_ = dns::Rcode::kNoError;
  std::array<NameSpan, kMaxChain + 1> chain_;  // the qname, then what each CNAME leads to
  size_t chain_size_ = 0;
  size_t max_chain_ = kMaxChain + 2;  // where it is cut; this: nowhere
  std::vector<std::unique_ptr<ExpandedName>> aliases_;
  std::vector<std::vector<uint8_t>> targets_;
  bool has_answer_ = false;
  uint32_t least_ttl_ = std::numeric_limits<int32_t>::max();
  std::optional<uint32_t> negative_ttl_;
};

void classify(const Selector& selector, StoredResponse& response) {
  const dns::PackedResponse& sections = *response.packed;
  if (sections.rcode != dns::Rcode::kNoError && sections.rcode != dns::Rcode::kNxDomain) {
    response.kind = ResponseKind::kFailure;
    return;
  }
  if (sections.rcode == dns::Rcode::kNoError && selector.hasAnswer()) {
    response.kind = ResponseKind::kPositive;
    response.ttl_seconds = selector.leastTtl();
  } else if (const auto ttl = selector.negativeTtl()) {
    response.kind = sections.rcode == dns::Rcode::kNxDomain ? ResponseKind::kNxDomain : ResponseKind::kNoData;
    response.ttl_seconds = std::min(*ttl, selector.leastTtl());
  }
  if (response.ttl_seconds == 0) response.kind = ResponseKind::kUncacheable;
  const bool says_nothing = sections.rcode == dns::Rcode::kNoError && !selector.hasAnswer() && !selector.negativeTtl();
  if (says_nothing) response.unfinished = selector.target();
}

size_t recordsStart(std::span<const uint8_t> name) { return dns::kHeaderSize + name.size() + 4; }

// A stored response to a question for `name` as a message without a valid header, but for its counts.
void writeMessage(std::span<const uint8_t> name, const dns::PackedResponse& response, std::vector<uint8_t>& message) {
  const std::span<const uint8_t> body = response.body();
  message.assign(recordsStart(name) + body.size(), 0);  // type and class are not looked at
  dns::store64(&message[4], response.counts());
  std::memcpy(&message[dns::kHeaderSize], name.data(), name.size());
  if (!body.empty()) std::memcpy(&message[recordsStart(name)], body.data(), body.size());
}

std::vector<uint8_t> messageOf(std::span<const uint8_t> name, const dns::PackedResponse& response) {
  std::vector<uint8_t> message;
  writeMessage(name, response, message);
  return message;
}

// All but the packed response.
void copyAbout(const StoredResponse& from, StoredResponse& to) {
  to.kind = from.kind;
  to.ttl_seconds = from.ttl_seconds;
  to.signature_end = from.signature_end;
  to.unfinished = from.unfinished;
}

}  // namespace

UpstreamVerdict readUpstreamResponse(std::span<const uint8_t> message, uint16_t id, const dns::Query& query,
                                     StoredResponse& response, bool trusts_ad) {
  assert(!response.packed);
  if (message.size() < dns::kHeaderSize) return UpstreamVerdict::kMismatch;
  const dns::HeaderView header(message.data());
  if (header.id() != id || !header.isResponse() || header.opcode() != dns::Opcode::kQuery) {
    return UpstreamVerdict::kMismatch;
  }
  dns::ResponseSections sections{.rcode = header.rcode()};
  const bool denied = sections.rcode != dns::Rcode::kNoError && sections.rcode != dns::Rcode::kNxDomain;
  if (header.questions() == 0 && denied) {  // a server that could not read the query need not repeat it
    response.kind = ResponseKind::kFailure;
    response.packed = dns::PackedResponse::make(sections, {}, {});
    return UpstreamVerdict::kAccepted;
  }
  const size_t question_end = dns::matchQuestion(message, query);
  if (question_end == 0) return UpstreamVerdict::kMismatch;
  if (header.isTruncated()) return UpstreamVerdict::kTruncated;

  dns::NameWork work(kMaxSteps);
  RecordCollector reader(message, question_end, work);
  if (!reader.readRecords()) return UpstreamVerdict::kMalformed;
  sections.rcode = static_cast<dns::Rcode>(reader.extendedRcode() | code(header.rcode()));
  sections.authentic_data = trusts_ad && (header.flags() & dns::kFlagAd) != 0;
  sections.has_ede = reader.ede().has_value();
  sections.ede = reader.ede().value_or(0);
  Selector selector(query, reader.records(), message.size(), response, work);
  if (!selector.select(sections)) return UpstreamVerdict::kMalformed;
  classify(selector, response);
  return UpstreamVerdict::kAccepted;
}

bool joinResponses(const dns::Query& query, const StoredResponse& first, const dns::Query& target,
                   const StoredResponse& second, StoredResponse& response) {
  assert(!response.packed);
  const std::vector<uint8_t> messages[] = {messageOf(query.name(), *first.packed),
                                           messageOf(target.name(), *second.packed)};
  dns::NameWork work(kMaxSteps);
  RecordCollector aliases(messages[0], query.question_end, work);
  RecordCollector end(messages[1], target.question_end, work);
  if (!aliases.readRecords() || !end.readRecords()) return false;
  Records records = aliases.records();
  const size_t owners = records.owners.size();
  records.owners.insert(records.owners.end(), end.records().owners.begin(), end.records().owners.end());
  for (Record record : end.records().list) {
    record.owner_name += owners;
    records.list.push_back(record);
  }

  const dns::PackedResponse& says_why = second.packed->has_ede ? *second.packed : *first.packed;
  const dns::ResponseSections sections{.rcode = second.packed->rcode,
                                       .ede = says_why.ede,
                                       .has_ede = says_why.has_ede,
                                       .authentic_data = first.packed->authentic_data && second.packed->authentic_data};
  Selector selector(query, records, messages[0].size() + messages[1].size(), response, work);
  if (!selector.select(sections)) return false;
  classify(selector, response);
  return true;
}

bool namesOthers(uint16_t qtype, const dns::PackedResponse& response) {
  constexpr size_t kTypeBeforeTtl = 4;
  const auto is_alias = [&](uint16_t ttl) {
    return dns::load16(&response.body()[ttl - kTypeBeforeTtl]) == code(RrType::kCname);
  };
  return response.additionals > 0 || (qtype != code(RrType::kCname) && qtype != code(RrType::kAny) &&
                                      std::ranges::any_of(response.ttlOffsets().first(response.answers), is_alias));
}

void visitOtherNames(const dns::Query& query, const dns::PackedResponse& response, std::vector<uint8_t>& room,
                     const VisitOtherName& visit) {
  if (!namesOthers(query.qtype, response)) return;
  const bool follows = query.qtype != code(RrType::kCname) && query.qtype != code(RrType::kAny);
  writeMessage(query.name(), response, room);
  const std::span<const uint8_t> message = room;
  dns::NameWork work(kMaxSteps);
  dns::MessageReader reader(message, recordsStart(query.name()));
  dns::RecordView record;
  ExpandedName name;
  while (reader.next(record) == dns::ReadStep::kRead) {
    const bool is_alias = record.section == dns::Section::kAnswer && record.type == code(RrType::kCname) && follows;
    if (!is_alias && record.section != dns::Section::kAdditional) continue;
    if (dns::expandName(message, is_alias ? record.rdata : record.owner, name, work) == 0) break;
    if (!visit(is_alias ? OtherName::kTarget : OtherName::kHost, name.span())) break;
  }
}

void dropAdditional(const StoredResponse& response, StoredResponse& rest) {
  assert(!rest.packed);
  const dns::PackedResponse& packed = *response.packed;
  dns::ResponseSections sections = packed;
  sections.additionals = 0;
  copyAbout(response, rest);
  rest.packed = dns::PackedResponse::make(sections, packed.body().first(packed.authority_end),
                                          packed.ttlOffsets().first(size_t{packed.answers} + packed.authorities));
}

void denyDataOnly(const StoredResponse& response, StoredResponse& nodata) {
  assert(!nodata.packed);
  const dns::PackedResponse& packed = *response.packed;
  dns::ResponseSections sections = packed;
  sections.rcode = dns::Rcode::kNoError;
  copyAbout(response, nodata);
  if (nodata.kind == ResponseKind::kNxDomain) nodata.kind = ResponseKind::kNoData;
  nodata.packed = dns::PackedResponse::make(sections, packed.body(), packed.ttlOffsets());
}

bool cutResponse(const dns::Query& query, const StoredResponse& whole, size_t count, const dns::Name& target,
                 StoredResponse& response) {
  assert(count > 0 && !response.packed);
  const std::vector<uint8_t> message = messageOf(query.name(), *whole.packed);
  dns::NameWork work(kMaxSteps);
  RecordCollector reader(message, recordsStart(query.name()), work);
  if (!reader.readRecords()) return false;
  Selector selector(query, reader.records(), message.size(), response, work);
  if (!selector.selectAliases({.authentic_data = whole.packed->authentic_data}, count)) return false;
  response.unfinished = target;
  return true;
}

bool denyBelow(const dns::Query& query, std::span<const uint8_t> name, const dns::PackedResponse& denial,
               StoredResponse& response) {
  assert(!response.packed);
  const std::vector<uint8_t> message = messageOf(name, denial);
  dns::NameWork work(kMaxSteps);
  RecordCollector reader(message, recordsStart(name), work);
  if (!reader.readRecords()) return false;
  Selector selector(query, reader.records(), message.size(), response, work);
  const dns::ResponseSections sections{.rcode = denial.rcode, .authentic_data = denial.authentic_data};
  if (!selector.select(sections)) return false;
  classify(selector, response);
  return true;
}

uint32_t signatureSecondsLeft(const StoredResponse& response) {
  if (!response.signature_end) return std::numeric_limits<uint32_t>::max();
  const auto left = static_cast<int32_t>(*response.signature_end - static_cast<uint32_t>(std::time(nullptr)));
  return left > 0 ? static_cast<uint32_t>(left) : 0;
}

}  // namespace idetcd::resolver
