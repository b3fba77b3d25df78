#include "resolve/stored_response.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <limits>
#include <memory>
#include <utility>

#include "dns/name_reader.h"
#include "dns/record.h"
#include "dns/response.h"

namespace idetcd::resolve {

using dns::code;
using dns::ExpandedName;
using dns::RrType;

namespace {

enum class Section : uint8_t { kAnswer, kAuthority, kAdditional };

constexpr uint16_t kRrsig = 46;
constexpr uint16_t kNsec = 47;
constexpr uint16_t kNsec3 = 50;
constexpr uint16_t kDname = 39;
constexpr uint16_t kNaptr = 35;
constexpr size_t kRecordHead = 10;  // type, class, TTL, RDLENGTH
constexpr size_t kFewRecords = 8;   // as many as most responses have
constexpr size_t kMaxChain = 16;    // CNAMEs
// For the names of one message, some 2 ms. Those of 64 KB with 3,000 name servers take a fifth of it.
constexpr size_t kMaxSteps = 1'000'000;

// Where names lie in the RDATA of the types whose names may come compressed (RFC 1035 §3.3, RFC 3597 §4): `before`
// octets, `names` names, `after` octets. We compress only those of RFC 1035.
struct RdataLayout {
  uint16_t type;
  uint8_t before;
  uint8_t names;
  uint8_t after;
  bool compress;
};
constexpr auto kLayouts = std::to_array<RdataLayout>({
    {2, 0, 1, 0, true},
    {3, 0, 1, 0, true},
    {4, 0, 1, 0, true},
    {5, 0, 1, 0, true},
    {6, 0, 2, 20, true},
    {7, 0, 1, 0, true},
    {8, 0, 1, 0, true},
    {9, 0, 1, 0, true},
    {12, 0, 1, 0, true},
    {14, 0, 2, 0, true},
    {15, 2, 1, 0, true},
    {17, 0, 2, 0, false},
    {18, 2, 1, 0, false},
    {21, 2, 1, 0, false},
    {26, 2, 2, 0, false},
    {33, 6, 1, 0, false},
    {36, 2, 1, 0, false},
    {39, 0, 1, 0, false},
});

const RdataLayout* layoutOf(uint16_t type) {
  const auto it = std::find_if(kLayouts.begin(), kLayouts.end(), [type](const auto& l) { return l.type == type; });
  return it != kLayouts.end() ? &*it : nullptr;
}

struct Record {
  std::span<const uint8_t> message;  // that it stands in
  Section section;
  uint16_t type;
  uint16_t klass;
  uint32_t ttl;
  size_t rdata;
  size_t rdata_size;
  size_t owner;  // which of the names: records in a row that point to one place have one
};

struct Records {
  std::vector<Record> list;
  std::vector<ExpandedName> owners;
  std::span<const uint8_t> ownerOf(const Record& record) const { return owners[record.owner].span(); }
};

bool sameName(std::span<const uint8_t> a, std::span<const uint8_t> b, dns::NameWork& work) {
  if (a.size() != b.size()) {
    work.spend(1);
    return false;
  }
  work.spend(1 + a.size() / 16);
  return dns::sameName(a, b);
}

bool isWithin(std::span<const uint8_t> name, std::span<const uint8_t> zone, dns::NameWork& work) {
  if (name.size() < zone.size()) return false;
  const size_t below = name.size() - zone.size();
  size_t pos = 0;
  size_t labels = 1;
  for (; pos < below; pos += name[pos] + 1u) ++labels;
  work.spend(labels);
  return pos == below && sameName(name.subspan(pos), zone, work);
}

// The section walk: everything of a message that we look at, with all sizes checked.
class MessageReader {
 public:
  MessageReader(std::span<const uint8_t> message, size_t pos, dns::NameWork& work)
      : message_(message), pos_(pos), work_(work) {}

  // Fills records(). False if the message is cut short or a record is not well-formed.
  bool readRecords() {
    records_.list.reserve(std::min<size_t>(kFewRecords, dns::load16(&message_[6]) + dns::load16(&message_[8]) + 1u));
    for (const auto& [section, offset] :
         {std::pair{Section::kAnswer, 6}, {Section::kAuthority, 8}, {Section::kAdditional, 10}}) {
      const size_t count = dns::load16(&message_[static_cast<size_t>(offset)]);
      for (size_t i = 0; i < count; ++i) {
        if (!readRecord(section)) return false;
      }
    }
    return true;
  }

  const Records& records() const { return records_; }
  uint16_t extendedRcode() const { return extended_rcode_; }
  std::optional<uint16_t> ede() const { return ede_; }

 private:
  bool readRecord(Section section) {
    Record& record = records_.list.emplace_back();
    record.message = message_;
    record.section = section;
    const size_t head = readOwner();
    record.owner = records_.owners.size() - 1;
    if (head == 0 || message_.size() - head < kRecordHead) return false;
    record.type = dns::load16(&message_[head]);
    record.klass = dns::load16(&message_[head + 2]);
    record.ttl = dns::load32(&message_[head + 4]);
    if ((record.ttl & 0x80000000u) != 0) record.ttl = 0;  // RFC 2181 §8
    record.rdata_size = dns::load16(&message_[head + 8]);
    record.rdata = head + kRecordHead;
    if (message_.size() - record.rdata < record.rdata_size) return false;
    pos_ = record.rdata + record.rdata_size;
    if (record.type == code(RrType::kOpt)) {
      readOpt(record, record.ttl);
      records_.list.pop_back();
      return true;
    }
    return (record.type != code(RrType::kA) || record.rdata_size == 4) &&
           (record.type != code(RrType::kAaaa) || record.rdata_size == 16);
  }

  // Returns the offset behind it; 0: it is no name. The owner is the last of the names then.
  size_t readOwner() {
    const bool is_pointer = message_.size() - pos_ >= 2 && message_[pos_] >= 0xc0;
    const size_t pointer = is_pointer ? dns::load16(&message_[pos_]) : 0;
    if (is_pointer && pointer == last_pointer_) return work_.spend(1) ? pos_ + 2 : 0;
    last_pointer_ = pointer;
    return dns::expandName(message_, pos_, records_.owners.emplace_back(), work_);
  }

  void readOpt(const Record& opt, uint32_t ttl) {
    extended_rcode_ = static_cast<uint16_t>(ttl >> 24 << 4);
    size_t pos = opt.rdata;
    const size_t end = opt.rdata + opt.rdata_size;
    while (end - pos >= 4) {
      const uint16_t option = dns::load16(&message_[pos]);
      const size_t size = dns::load16(&message_[pos + 2]);
      pos += 4;
      if (end - pos < size) return;
      if (option == code(dns::EdnsOption::kEde) && size >= 2 && !ede_) ede_ = dns::load16(&message_[pos]);
      pos += size;
    }
  }

  std::span<const uint8_t> message_;
  size_t pos_;
  dns::NameWork& work_;
  Records records_;
  size_t last_pointer_ = 0;  // that the last owner was; 0: it was none
  uint16_t extended_rcode_ = 0;
  std::optional<uint16_t> ede_;
};

// Writes records behind the question, with names compressed against the question and each other.
class Encoder {
 public:
  // `size`: about how much it will be.
  Encoder(const dns::Query& query, const Records& records, size_t size, StoredResponse& response, dns::NameWork& work)
      : base_(query.question_end), records_(records), response_(response), work_(work) {
    response.body.reserve(size);
    response.ttl_offsets.reserve(kFewRecords);
    fold(query.name());
    rememberLabels(query.qname_size - 1u, query.qname_size, size_t{dns::kHeaderSize});
  }

  // False if the RDATA is not what its type wants, all of it would be too large, or it takes too much work.
  bool append(const Record& record, uint32_t ttl) {
    std::vector<uint8_t>& out = response_.body;
    putName(records_.ownerOf(record), true);
    put16(record.type);
    put16(record.klass);
    response_.ttl_offsets.push_back(static_cast<uint16_t>(out.size()));
    put16(static_cast<uint16_t>(ttl >> 16));
    put16(static_cast<uint16_t>(ttl));
    const size_t length = out.size();
    put16(0);
    if (!putRdata(record) || work_.isSpent()) return false;
    if (base_ + out.size() > dns::kMaxMessageSize - dns::kOptSize) return false;
    dns::store16(&out[length], static_cast<uint16_t>(out.size() - length - 2));
    return true;
  }

 private:
  static constexpr size_t kMaxRemembered = 64;
  static constexpr size_t kMaxPointer = 0x3fff;

  // A name that can be pointed to: octets of folded_.
  struct Suffix {
    uint16_t at;
    uint16_t size;
    uint16_t offset;  // in the message
  };

  bool putRdata(const Record& record) {
    const auto rdata = record.message.subspan(record.rdata, record.rdata_size);
    if (record.type == kNaptr) return putNaptr(record);
    const RdataLayout* layout = layoutOf(record.type);
    if (layout == nullptr) {
      put(rdata);
      return true;
    }
    if (rdata.size() < layout->before) return false;
    put(rdata.first(layout->before));
    size_t pos = record.rdata + layout->before;
    const size_t end = record.rdata + record.rdata_size;
    for (int i = 0; i < layout->names; ++i) {
      if (!putExpanded(record.message, pos, end, layout->compress)) return false;
    }
    if (end - pos != layout->after) return false;
    put(record.message.subspan(pos, layout->after));
    return true;
  }

  // Order, preference, three character-strings, a name (RFC 3403 §4.1).
  bool putNaptr(const Record& record) {
    const size_t end = record.rdata + record.rdata_size;
    size_t pos = record.rdata + 4;
    for (int i = 0; i < 3; ++i) {
      if (pos >= end) return false;
      pos += record.message[pos] + 1u;
    }
    if (pos >= end) return false;
    put(record.message.subspan(record.rdata, pos - record.rdata));
    return putExpanded(record.message, pos, end, false) && pos == end;
  }

  bool putExpanded(std::span<const uint8_t> message, size_t& pos, size_t end, bool compress) {
    ExpandedName name;
    const size_t behind = dns::expandName(message, pos, name, work_);
    if (behind == 0 || behind > end) return false;
    putName(name.span(), compress);
    pos = behind;
    return true;
  }

  void putName(std::span<const uint8_t> name, bool compress) {
    fold(name);
    size_t pos = 0;
    std::optional<uint16_t> target;
    while (compress && name[pos] != 0) {
      target = find(pos, name.size() - pos);
      if (target) break;
      pos += name[pos] + 1u;
    }
    rememberLabels(target ? pos : name.size() - 1, name.size(), base_ + response_.body.size());
    put(name.first(target ? pos : name.size()));
    if (target) put16(dns::pointerTo(*target));
  }

  // Writes the name in lower case behind those that are remembered. REQUIRES: kReadSlack bytes behind it are readable.
  void fold(std::span<const uint8_t> name) {
    work_.spend(1 + name.size() / 32);
    dns::foldCase(name.data(), name.size(), &folded_[folded_size_]);
  }

  // Who ends like the folded name does from `pos` on.
  std::optional<uint16_t> find(size_t pos, size_t size) const {
    if (!work_.spend(1 + suffix_count_ / 2)) return std::nullopt;  // two sizes compared are as good as a jump
    const uint8_t* wanted = &folded_[folded_size_ + pos];
    for (size_t i = 0; i < suffix_count_; ++i) {
      const Suffix& suffix = suffixes_[i];
      if (suffix.size == size && std::memcmp(&folded_[suffix.at], wanted, size) == 0) return suffix.offset;
    }
    return std::nullopt;
  }

  // The labels before `end` of the folded name, which has `size` octets and is written at `offset` of the message.
  void rememberLabels(size_t end, size_t size, size_t offset) {
    if (end == 0 || kFoldedSize - folded_size_ < size + dns::kMaxNameLength) return;  // room for one more
    for (size_t pos = 0; pos < end; pos += folded_[folded_size_ + pos] + 1u) {
      if (offset + pos > kMaxPointer || suffix_count_ == kMaxRemembered) break;
      suffixes_[suffix_count_++] = {static_cast<uint16_t>(folded_size_ + pos), static_cast<uint16_t>(size - pos),
                                    static_cast<uint16_t>(offset + pos)};
    }
    folded_size_ += size;
  }

  void put(std::span<const uint8_t> octets) {
    response_.body.insert(response_.body.end(), octets.begin(), octets.end());
  }
  void put16(uint16_t value) {
    response_.body.push_back(static_cast<uint8_t>(value >> 8));
    response_.body.push_back(static_cast<uint8_t>(value));
  }

  static constexpr size_t kFoldedSize = 4096;

  size_t base_;
  const Records& records_;
  StoredResponse& response_;
  dns::NameWork& work_;
  std::array<uint8_t, kFoldedSize + dns::kReadSlack> folded_;
  size_t folded_size_ = 0;
  std::array<Suffix, kMaxRemembered> suffixes_;
  size_t suffix_count_ = 0;
};

// Decides which records belong to the question, and encodes them.
class Selector {
 public:
  Selector(const dns::Query& query, const Records& records, size_t size, StoredResponse& response, dns::NameWork& work)
      : query_(query),
        records_(records),
        response_(response),
        work_(work),
        encoder_(query, records, size, response, work) {}

  // False: malformed, a CNAME chain without end, or too much work.
  bool select() {
    if (!followChain()) return false;
    ResponseView& out = response_.sections;
    if (!take(Section::kAnswer, Part::kAll, out.answers)) return false;
    out.answer_size = size();
    if (!take(Section::kAuthority, Part::kProofs, out.proofs)) return false;
    out.proof_end = size();
    out.authorities = out.proofs;
    if (!take(Section::kAuthority, Part::kRest, out.authorities)) return false;
    out.authority_end = size();
    if (!take(Section::kAdditional, Part::kAll, out.additionals)) return false;
    out.body = response_.body;
    out.ttl_offsets = response_.ttl_offsets;
    return true;
  }

  bool hasAnswer() const { return has_answer_; }
  uint32_t leastTtl() const { return least_ttl_; }
  // RFC 2308 §5: the lesser of the SOA's TTL and its last field. Nothing: no SOA.
  std::optional<uint32_t> negativeTtl() const { return negative_ttl_; }
  // The name that the CNAMEs lead to; nothing: there are none.
  std::optional<dns::Name> alias() const {
    return chain_size_ > 1 ? std::optional(dns::Name::fromWire(chain().back())) : std::nullopt;
  }

 private:
  using NameSpan = std::span<const uint8_t>;
  enum class Part : uint8_t { kAll, kProofs, kRest };

  uint16_t size() const { return static_cast<uint16_t>(response_.body.size()); }

  bool followChain() {
    chain_[chain_size_++] = query_.name();
    if (query_.qtype == code(RrType::kCname) || query_.qtype == code(RrType::kAny)) return true;
    while (const Record* cname = findCname(chain().back())) {
      const auto& target = aliases_.emplace_back(std::make_unique<ExpandedName>());
      const size_t end = dns::expandName(cname->message, cname->rdata, *target, work_);
      if (end == 0 || end != cname->rdata + cname->rdata_size) return false;
      if (isOnChain(target->span()) || chain_size_ > kMaxChain) return false;
      chain_[chain_size_++] = target->span();
    }
    return true;
  }

  const Record* findCname(NameSpan owner) const {
    work_.spend(records_.list.size());
    for (const Record& record : records_.list) {
      if (record.section == Section::kAnswer && record.type == code(RrType::kCname) && isIn(record) &&
          sameName(records_.ownerOf(record), owner, work_)) {
        return &record;
      }
    }
    return nullptr;
  }

  bool isIn(const Record& record) const { return record.klass == query_.qclass; }
  bool isAsked(uint16_t type) const { return type == query_.qtype || query_.qtype == code(RrType::kAny); }
  std::span<const NameSpan> chain() const { return {chain_.data(), chain_size_}; }
  bool isOnChain(NameSpan name) const {
    return std::ranges::any_of(chain(), [&](NameSpan link) { return sameName(link, name, work_); });
  }
  bool isAboveChainEnd(NameSpan owner) const { return isWithin(chain().back(), owner, work_); }

  bool isWanted(const Record& record) const {
    if (!isIn(record)) return false;
    const NameSpan owner = records_.ownerOf(record);
    const uint16_t type = record.type;
    switch (record.section) {
      case Section::kAnswer:
        if (type == kDname) return isAboveAnyLink(owner);
        if (type == kRrsig && query_.qtype != kRrsig) {
          return query_.dnssec_ok && (isOnChain(owner) || isAboveAnyLink(owner));
        }
        return isOnChain(owner) && (isAsked(type) || type == code(RrType::kCname));
      case Section::kAuthority:
        if (type == code(RrType::kSoa) || type == code(RrType::kNs)) return isAboveChainEnd(owner);
        return query_.dnssec_ok && (type == kNsec || type == kNsec3 || type == kRrsig || type == 43);
      case Section::kAdditional:
        return (type == code(RrType::kA) || type == code(RrType::kAaaa)) && isTarget(owner);
    }
    return false;
  }

  // Of the authority section: what an answer or a denial is not whole without.
  bool isProof(const Record& record) const {
    uint16_t type = record.type;
    if (type == kRrsig && record.rdata_size >= sizeof(uint16_t)) type = dns::load16(&record.message[record.rdata]);
    const bool denial = !has_answer_ || response_.sections.rcode == dns::Rcode::kNxDomain;
    return type == kNsec || type == kNsec3 || (denial && type == code(RrType::kSoa));
  }

  bool isAboveAnyLink(NameSpan owner) const {
    return std::ranges::any_of(chain(), [&](NameSpan link) { return isWithin(link, owner, work_); });
  }

  bool isTarget(NameSpan name) const {
    return std::any_of(targets_.begin(), targets_.end(),
                       [&](const auto& target) { return sameName(target, name, work_); });
  }

  bool take(Section section, Part part, uint16_t& count) {
    for (const Record& record : records_.list) {
      if (record.section != section || (part != Part::kAll && isProof(record) != (part == Part::kProofs))) continue;
      if (!isWanted(record)) continue;
      const bool denies = section == Section::kAuthority && record.type == code(RrType::kSoa);
      const uint32_t ttl = denies ? negativeTtlOf(record) : record.ttl;
      if (!encoder_.append(record, ttl)) return false;
      ++count;
      least_ttl_ = std::min(least_ttl_, ttl);
      if (section == Section::kAnswer && isAsked(record.type)) has_answer_ = true;
      if (denies) negative_ttl_ = ttl;
      if (record.type == kRrsig) noteSignature(record);
      noteTarget(record);
    }
    return !work_.isSpent();
  }

  // Of the SOA itself too, so that who asks us counts on from where we are.
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
    if (dns::expandName(record.message, record.rdata + layoutOf(record.type)->before, target, work_) != 0) {
      targets_.emplace_back(target.span().begin(), target.span().end());
    }
  }

  static constexpr size_t kMaxTargets = 32;

  const dns::Query& query_;
  const Records& records_;
  StoredResponse& response_;
  dns::NameWork& work_;
  Encoder encoder_;
  std::array<NameSpan, kMaxChain + 1> chain_;  // the qname, then what each CNAME leads to
  size_t chain_size_ = 0;
  std::vector<std::unique_ptr<ExpandedName>> aliases_;
  std::vector<std::vector<uint8_t>> targets_;
  bool has_answer_ = false;
  uint32_t least_ttl_ = std::numeric_limits<int32_t>::max();
  std::optional<uint32_t> negative_ttl_;
};

// The offset behind the question if it is the query's, else 0.
size_t matchQuestion(std::span<const uint8_t> message, const dns::Query& query) {
  ExpandedName name;
  const size_t end = dns::expandName(message, dns::kHeaderSize, name);
  if (end == 0 || message.size() - end < 4 || !dns::sameName(name.span(), query.name())) return 0;
  return dns::load16(&message[end]) == query.qtype && dns::load16(&message[end + 2]) == query.qclass ? end + 4 : 0;
}

void classify(const Selector& selector, StoredResponse& response) {
  const ResponseView& sections = response.sections;
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
  if (sections.rcode == dns::Rcode::kNoError && !selector.hasAnswer() && !selector.negativeTtl()) {
    response.unfinished = selector.alias();
  }
}

// A stored response as the message that it came in, but for the header, of which the counts are all that is looked at.
std::vector<uint8_t> messageOf(const dns::Query& query, const StoredResponse& response) {
  std::vector<uint8_t> message(dns::kHeaderSize);
  message.reserve(query.question_end + response.body.size());
  dns::store16(&message[6], response.sections.answers);
  dns::store16(&message[8], response.sections.authorities);
  dns::store16(&message[10], response.sections.additionals);
  message.insert(message.end(), query.name().begin(), query.name().end());
  message.resize(query.question_end);  // type and class are not looked at
  message.insert(message.end(), response.body.begin(), response.body.end());
  return message;
}

// The whole RRsets at the beginning of the answer that take at most `room` octets. The links of a CNAME chain, one type
// in a row, count as one.
std::pair<std::span<const uint8_t>, uint16_t> answersThatFit(const ResponseView& response, size_t room) {
  size_t size = 0;
  uint16_t whole = 0;
  for (uint16_t i = 0; i < response.answers; ++i) {
    const uint8_t* ttl = &response.body[response.ttl_offsets[i]];
    const size_t end = response.ttl_offsets[i] + size_t{6} + dns::load16(ttl + 4);
    if (end > room) break;
    const bool last_of_type =
        i + 1 == response.answers || !std::equal(ttl - 4, ttl - 2, &response.body[response.ttl_offsets[i + 1]] - 4);
    if (!last_of_type) continue;
    size = end;
    whole = static_cast<uint16_t>(i + 1);
  }
  return {response.body.first(size), whole};
}

// A run of A or AAAA records of one size, each with a pointer for an owner, begins at another one of them.
void rotateAnswers(std::span<uint8_t> answer, uint32_t rotation) {
  size_t pos = 0;
  while (pos < answer.size()) {
    const auto record_size = [&answer](size_t at) -> size_t {
      if (at >= answer.size() || answer[at] < 0xc0) return 0;
      const uint16_t type = dns::load16(&answer[at + 2]);
      return type == code(RrType::kA) ? 16 : type == code(RrType::kAaaa) ? 28 : 0;
    };
    const size_t size = record_size(pos);
    size_t end = pos;
    while (size > 0 && record_size(end) == size) end += size;
    if (end > pos) {
      const size_t shift = rotation % ((end - pos) / size) * size;
      std::rotate(answer.begin() + static_cast<ptrdiff_t>(pos), answer.begin() + static_cast<ptrdiff_t>(pos + shift),
                  answer.begin() + static_cast<ptrdiff_t>(end));
      pos = end;
      continue;
    }
    while (answer[pos] != 0 && answer[pos] < 0xc0) pos += answer[pos] + 1u;
    pos += answer[pos] == 0 ? 1 : 2;
    pos += kRecordHead + dns::load16(&answer[pos + 8]);
  }
}

}  // namespace

UpstreamVerdict readUpstreamResponse(std::span<const uint8_t> message, uint16_t id, const dns::Query& query,
                                     StoredResponse& response) {
  if (message.size() < dns::kHeaderSize || dns::load16(message.data()) != id) return UpstreamVerdict::kMismatch;
  const uint16_t flags = dns::load16(&message[2]);
  const uint16_t questions = dns::load16(&message[4]);
  if ((flags & dns::kFlagQr) == 0 || (flags & dns::kOpcodeMask) != 0) return UpstreamVerdict::kMismatch;
  ResponseView& sections = response.sections;
  sections.rcode = static_cast<dns::Rcode>(flags & dns::kRcodeMask);
  const bool denied = sections.rcode != dns::Rcode::kNoError && sections.rcode != dns::Rcode::kNxDomain;
  if (questions == 0 && denied) {  // a server that could not read the query need not repeat it
    response.kind = ResponseKind::kFailure;
    return UpstreamVerdict::kAccepted;
  }
  const size_t question_end = questions == 1 ? matchQuestion(message, query) : 0;
  if (question_end == 0) return UpstreamVerdict::kMismatch;
  if ((flags & dns::kFlagTc) != 0) return UpstreamVerdict::kTruncated;

  dns::NameWork work(kMaxSteps);
  MessageReader reader(message, question_end, work);
  if (!reader.readRecords()) return UpstreamVerdict::kMalformed;
  sections.rcode = static_cast<dns::Rcode>(reader.extendedRcode() | (flags & dns::kRcodeMask));
  sections.authentic_data = (flags & dns::kFlagAd) != 0;
  sections.ede = reader.ede();
  Selector selector(query, reader.records(), message.size(), response, work);
  if (!selector.select()) return UpstreamVerdict::kMalformed;
  classify(selector, response);
  return UpstreamVerdict::kAccepted;
}

bool joinResponses(const dns::Query& query, const StoredResponse& first, const dns::Query& target,
                   const StoredResponse& second, StoredResponse& response) {
  const std::vector<uint8_t> messages[] = {messageOf(query, first), messageOf(target, second)};
  dns::NameWork work(kMaxSteps);
  MessageReader aliases(messages[0], query.question_end, work);
  MessageReader end(messages[1], target.question_end, work);
  if (!aliases.readRecords() || !end.readRecords()) return false;
  Records records = aliases.records();
  const size_t owners = records.owners.size();
  records.owners.insert(records.owners.end(), end.records().owners.begin(), end.records().owners.end());
  for (Record record : end.records().list) {
    record.owner += owners;
    records.list.push_back(record);
  }

  ResponseView& sections = response.sections;
  sections.rcode = second.sections.rcode;
  sections.authentic_data = first.sections.authentic_data && second.sections.authentic_data;
  sections.ede = second.sections.ede ? second.sections.ede : first.sections.ede;
  Selector selector(query, records, messages[0].size() + messages[1].size(), response, work);
  if (!selector.select()) return false;
  classify(selector, response);
  return true;
}

uint32_t signatureSecondsLeft(const StoredResponse& response) {
  if (!response.signature_end) return std::numeric_limits<uint32_t>::max();
  const auto left = static_cast<int32_t>(*response.signature_end - static_cast<uint32_t>(std::time(nullptr)));
  return left > 0 ? static_cast<uint32_t>(left) : 0;
}

size_t writeStoredResponse(const ResponseView& response, const dns::Query& query, size_t limit,
                           const WriteOptions& options) {
  dns::ResponseBuilder builder(query, limit);
  if (options.ede) {
    builder.setEde(*options.ede);
  } else if (response.ede) {
    builder.setEde(static_cast<dns::EdeCode>(*response.ede));
  }
  const bool whole = !(options.minimal && response.answers > 0);
  const size_t start = builder.position();
  const auto first = [&response](size_t end) { return response.body.first(end); };
  const bool written =
      (whole && builder.setBody(response.body, response.answers, response.authorities, response.additionals)) ||
      (whole && builder.setBody(first(response.authority_end), response.answers, response.authorities, 0)) ||
      builder.setWholeBody(first(response.proof_end), response.answers, response.proofs);
  if (!written) {
    const auto [records, count] = answersThatFit(response, builder.room());
    builder.truncateTo(records, count);
  }
  const size_t records_end = builder.position();
  for (const uint16_t offset : response.ttl_offsets) {
    if (start + offset >= records_end) break;
    uint8_t* ttl = builder.at(start + offset);
    const uint32_t original = std::clamp(dns::load32(ttl), options.min_ttl_seconds, options.max_ttl_seconds);
    dns::store32(ttl, options.ttl_seconds.value_or(original - std::min(original, options.age_seconds)));
  }
  if (written && options.rotation > 0 && response.answers > 1) {
    rotateAnswers({builder.at(start), response.answer_size}, options.rotation);
  }
  // AD only for clients that know it (RFC 6840 §5.8).
  const bool wants_ad = query.dnssec_ok || (query.flags & dns::kFlagAd) != 0;
  const uint16_t flags = dns::kFlagRa | (response.authentic_data && wants_ad ? dns::kFlagAd : 0);
  const bool expressible = code(response.rcode) <= dns::kRcodeMask || query.has_edns;
  return builder.finish(expressible ? response.rcode : dns::Rcode::kServFail, flags);
}

}  // namespace idetcd::resolve
