#include "resolver/dns64.h"

#include <cstdlib>

#include "base/text.h"
#include "dns/record.h"
#include "dns/record_writer.h"
#include "dns/response.h"
#include "resolve/router.h"

namespace idetcd::resolver {

namespace {

using dns::code;
using dns::RecordView;
using dns::RrType;
using dns::Section;
using resolve::QueryOutcome;
using resolve::Request;

constexpr size_t kV4Size = 4;
constexpr size_t kReserved = 8;  // the octet that is zero
constexpr uint8_t kLengths[]{32, 40, 48, 56, 64, 96};

// Where the octets of the IPv4 address stand behind a prefix of `size` octets.
std::array<size_t, kV4Size> placesBehind(size_t size) {
  std::array<size_t, kV4Size> places;
  size_t at = size;
  for (size_t& place : places) {
    if (at == kReserved) ++at;
    place = at++;
  }
  return places;
}

// The messages are our own: as much as any of them needs.
constexpr size_t kAnyWork = 1'000'000;
constexpr size_t kMappedSize = 12;
constexpr std::array<uint8_t, kMappedSize> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

constexpr std::array<uint8_t, kV4Size> kLowestV4{0, 0, 0, 0};
constexpr std::array<uint8_t, kV4Size> kHighestV4{255, 255, 255, 255};

// Of IPv6 addresses.
bool isInReverseTree(const dns::Query& query) {
  constexpr std::string_view kTree("\3ip6\4arpa\0", 10);
  return query.qname_size > kTree.size() &&
         std::memcmp(query.name().data() + query.qname_size - kTree.size(), kTree.data(), kTree.size()) == 0;
}

bool isAnswer(const RecordView& record, RrType type) {
  return record.section == Section::kAnswer && record.type == code(type);
}

bool isExcluded(const MessageView& response, const RecordView& aaaa) {
  const auto address = response.bytes.subspan(aaaa.rdata, aaaa.rdata_size);
  return std::ranges::equal(address.first(std::min(kMappedSize, address.size())), kMapped);
}

// RFC 2308 §5: the lesser of the SOA's TTL and its last field.
uint32_t negativeTtl(const MessageView& response, const RecordView& soa) {
  if (soa.rdata_size < sizeof(uint32_t)) return 0;
  return std::min(soa.ttl, dns::load32(&response.bytes[soa.rdata + soa.rdata_size - sizeof(uint32_t)]));
}

bool isSignatureOf(const MessageView& response, const RecordView& record, RrType type) {
  return record.type == code(RrType::kRrsig) && record.rdata_size >= sizeof(uint16_t) &&
         dns::load16(&response.bytes[record.rdata]) == code(type);
}

// Encodes the records of one response anew, behind the question of another query.
class Rewriter {
 public:
  Rewriter(const dns::Query& query, const MessageView& response)
      : response_(response),
        work_(kAnyWork),
        writer_(query, response.bytes.size(), work_),
        reader_(response.bytes, response.question_end) {
    const dns::HeaderView header(response.bytes.data());
    sections_.rcode = header.rcode();
    sections_.authentic_data = (header.flags() & dns::kFlagAd) != 0;
    translated_.header_flags = header.flags() & (dns::kFlagAa | dns::kFlagRa | dns::kFlagTc);
  }

  Translated& counts() { return translated_; }

  // A record of the answer section, before those of the response.
  bool addAnswer(std::span<const uint8_t> owner, RrType type, uint32_t ttl, std::span<const uint8_t> rdata) {
    ++sections_.answers;
    return append(rdata, {.type = code(type), .klass = code(dns::RrClass::kIn)}, owner, ttl);
  }

  // `write(record, owner)` for each record but OPT: whether it could be written, by keep() or replace() or not at all.
  template <typename Write>
  Translated run(Write&& write) {
    RecordView record;
    dns::ReadStep step;
    while ((step = reader_.next(record)) == dns::ReadStep::kRead) {
      if (record.type == code(RrType::kOpt)) {
        readOpt(record);
        continue;
      }
      closeSections(record.section);
      dns::ExpandedName owner;
      if (dns::expandName(response_.bytes, record.owner, owner, work_) == 0 || !write(record, owner.span())) return {};
    }
    if (step != dns::ReadStep::kEnd) return {};
    closeSections(Section::kAdditional);
    translated_.packed = dns::PackedResponse::make(sections_, writer_.body(), writer_.ttlOffsets());
    return std::move(translated_);
  }

  // Whether there is no room for one more record, and an OPT record, in any message behind the question of `query`.
  bool isFull(const dns::Query& query, std::span<const uint8_t> owner, size_t rdata_size) const {
    constexpr size_t kOthers = 256;  // OPT, with its options
    return query.question_end + writer_.body().size() + owner.size() + dns::kRecordHeadSize + rdata_size + kOthers >
           dns::kMaxMessageSize;
  }
  bool keep(const RecordView& record, std::span<const uint8_t> owner) {
    count(record.section);
    return writer_.append(response_.bytes, record, owner, record.ttl);
  }
  bool replace(const RecordView& record, std::span<const uint8_t> owner, RrType type, uint32_t ttl,
               std::span<const uint8_t> rdata) {
    count(record.section);
    return append(rdata, {.type = code(type), .klass = record.klass}, owner, ttl);
  }

 private:
  // `rdata` stands for itself: no name in it is compressed.
  bool append(std::span<const uint8_t> rdata, RecordView record, std::span<const uint8_t> owner, uint32_t ttl) {
    record.rdata_size = static_cast<uint16_t>(rdata.size());
    return writer_.append(rdata, record, owner, ttl);
  }

  void count(Section section) {
    ++(section == Section::kAnswer      ? sections_.answers
       : section == Section::kAuthority ? sections_.authorities
                                        : sections_.additionals);
  }

  // Begins `section`. Of a denial no record of the authority section may be left out alone.
  void closeSections(Section section) {
    const auto size = static_cast<uint16_t>(writer_.body().size());
    if (section > Section::kAnswer && section_ == Section::kAnswer) sections_.answer_size = sections_.proof_end = size;
    if (section > Section::kAuthority && section_ < Section::kAdditional) {
      sections_.authority_end = size;
      if (sections_.answers == 0) {
        sections_.proofs = sections_.authorities;
        sections_.proof_end = size;
      }
    }
    section_ = section;
  }

  void readOpt(const RecordView& opt) {
    sections_.rcode = static_cast<dns::Rcode>(code(sections_.rcode) | (opt.ttl >> 24 << 4));
    dns::OptionReader options(response_.bytes.subspan(opt.rdata, opt.rdata_size));
    dns::OptionView option;
    while (options.next(option) == dns::ReadStep::kRead) {
      if (option.code != code(dns::EdnsOption::kEde) || option.data.size() < sizeof(uint16_t)) continue;
      sections_.ede = dns::load16(option.data.data());
      sections_.has_ede = true;
    }
  }

  const MessageView& response_;
  dns::NameWork work_;
  dns::RecordWriter writer_;
  dns::MessageReader reader_;
  dns::ResponseSections sections_;
  Section section_ = Section::kAnswer;
  Translated translated_;
};

// Our questions have other IDs than the client's own, which may be on their way as well: what has the same ID counts as
// sent twice (resolver/waiting_clients).
constexpr uint16_t kIdChange = 0x6464;

// The response that stands where the query was.
MessageView viewOf(const dns::Query& query, size_t size) { return {{query.message, size}, query.question_end}; }

}  // namespace

Result<Nat64Prefix> Nat64Prefix::parse(std::string_view text) {
  const size_t slash = text.find('/');
  const auto address = IpAddress::parse(text.substr(0, slash));
  const auto length = slash == text.npos ? std::nullopt : parseNumber<uint8_t>(text.substr(slash + 1));
  if (!address || !address->isV6() || !length) return fail(fmt::format("'{}' is no IPv6 prefix", text));
  if (std::ranges::find(kLengths, *length) == std::end(kLengths)) {
    return fail(fmt::format("'{}': the length of a prefix is 32, 40, 48, 56, 64 or 96", text));
  }
  Nat64Prefix prefix;
  prefix.size_ = static_cast<uint8_t>(*length / 8);
  prefix.octets_ = {};
  std::copy_n(address->data(), prefix.size_, prefix.octets_.begin());
  if (prefix.octets_[kReserved] != 0) return fail(fmt::format("'{}': bits 64 to 71 must be zero", text));
  return prefix;
}

bool Nat64Prefix::mayEmbed(const IpAddress& v4) const {
  assert(v4.isV4());
  return octets_ != kWellKnown || !(v4.isPrivate() || v4.isUnspecified() || v4.isMulticast());
}

Nat64Prefix::V6 Nat64Prefix::embed(std::span<const uint8_t> v4) const {
  assert(v4.size() == kV4Size);
  V6 v6 = octets_;
  size_t i = 0;
  for (const size_t place : placesBehind(size_)) v6[place] = v4[i++];
  return v6;
}

std::optional<IpAddress> Nat64Prefix::extract(const IpAddress& v6) const {
  assert(v6.isV6());
  const uint8_t* octets = v6.data();
  if (!std::equal(octets, octets + size_, octets_.begin()) || octets[kReserved] != 0) return std::nullopt;
  std::array<uint8_t, kV4Size> v4;
  std::ranges::transform(placesBehind(size_), v4.begin(), [octets](size_t place) { return octets[place]; });
  return IpAddress::v4(v4);
}

AaaaFindings examineAaaa(const MessageView& response) {
  assert(dns::kHeaderSize <= response.question_end && response.question_end <= response.bytes.size());
  const dns::HeaderView header(response.bytes.data());
  AaaaFindings findings;
  findings.is_final = header.rcode() == dns::Rcode::kNxDomain || header.isTruncated();
  dns::MessageReader reader(response.bytes, response.question_end);
  RecordView record;
  dns::ReadStep step;
  while ((step = reader.next(record)) == dns::ReadStep::kRead) {
    if (isAnswer(record, RrType::kAaaa)) {
      (isExcluded(response, record) ? findings.has_excluded : findings.has_usable) = true;
    }
    if (record.section == Section::kAuthority && record.type == code(RrType::kSoa)) {
      findings.negative_ttl_seconds = negativeTtl(response, record);
    }
  }
  findings.is_final |= step != dns::ReadStep::kEnd;
  return findings;
}

Translated withoutExcluded(const dns::Query& query, const MessageView& response) {
  Rewriter rewriter(query, response);
  return rewriter.run([&](const RecordView& record, std::span<const uint8_t> owner) {
    return (isAnswer(record, RrType::kAaaa) && isExcluded(response, record)) || rewriter.keep(record, owner);
  });
}

Translated translateAddresses(const dns::Query& query, const MessageView& response, const Nat64Prefix& prefix,
                              uint32_t most_seconds) {
  Rewriter rewriter(query, response);
  return rewriter.run([&](const RecordView& record, std::span<const uint8_t> owner) {
    // AAAA records are larger than A records: what no message has room for is left out.
    const bool is_full = rewriter.counts().made > 0 && rewriter.isFull(query, owner, sizeof(Nat64Prefix::V6));
    if (record.section != Section::kAnswer) return is_full || rewriter.keep(record, owner);
    if (isSignatureOf(response, record, RrType::kA)) return true;
    if (record.type != code(RrType::kA)) {
      rewriter.counts().is_cut |= is_full;
      return is_full || rewriter.keep(record, owner);
    }
    const auto v4 = response.bytes.subspan(record.rdata, record.rdata_size);
    if (v4.size() != sizeof(uint32_t) || !prefix.mayEmbed(IpAddress::fromBytes(v4))) {
      ++rewriter.counts().left_out;
      return true;
    }
    if (is_full) {
      rewriter.counts().is_cut = true;
      return true;
    }
    ++rewriter.counts().made;
    return rewriter.replace(record, owner, RrType::kAaaa, std::min(record.ttl, most_seconds), prefix.embed(v4));
  });
}

Translated translatePointers(const dns::Query& query, const MessageView& response, const dns::Name& name) {
  std::optional<uint32_t> ttl;
  dns::MessageReader reader(response.bytes, response.question_end);
  RecordView record;
  while (reader.next(record) == dns::ReadStep::kRead) {
    if (isAnswer(record, RrType::kPtr)) ttl = std::min(record.ttl, ttl.value_or(std::numeric_limits<uint32_t>::max()));
  }
  Rewriter rewriter(query, response);
  if (dns::HeaderView(response.bytes.data()).isTruncated())  // its records would not fit either
    return rewriter.run([](const RecordView&, std::span<const uint8_t>) { return true; });
  if (!ttl) return {};
  ++rewriter.counts().made;
  if (!rewriter.addAnswer(query.name(), RrType::kCname, *ttl, name.wire())) return {};
  // The CNAME and the longer question need room: what no message has room for is left out.
  return rewriter.run([&](const RecordView& each, std::span<const uint8_t> owner) {
    const bool is_full = rewriter.isFull(query, owner, each.rdata_size + dns::kMaxNameLength);
    rewriter.counts().is_cut |= is_full && each.section == Section::kAnswer;
    return is_full || rewriter.keep(each, owner);
  });
}

// Gets what a handler answers late to a question of ours.
class Dns64::Sink final : public resolve::ReplySink {
 public:
  Sink(Reply reply, size_t question_end, Then then)
      : reply_(std::move(reply)), question_end_(question_end), then_(std::move(then)) {}
  void send(std::span<const uint8_t> message) override { then_(std::move(reply_), {message, question_end_}); }
  bool pushBack() override { return reply_->pushBack(); }

 private:
  Reply reply_;
  size_t question_end_;
  Then then_;
};

class Dns64::Deferrer final : public resolve::ReplyDeferrer {
 public:
  // `keep` keeps the client, when that is needed.
  Deferrer(std::function<Reply()> keep, Then then) : keep_(std::move(keep)), then_(std::move(then)) {}
  std::unique_ptr<resolve::ReplySink> keepClient() override {
    return std::make_unique<Sink>(keep_(), question_end, std::move(then_));
  }

  size_t question_end = 0;  // of the question that is asked

 private:
  std::function<Reply()> keep_;
  Then then_;
};

// A question of ours, as the client would have asked it.
struct Dns64::Question {
  const dns::Query& client;
  const dns::Name& name;
  RrType type;
};

// The result of the question for AAAA, if that is not the end.
struct Dns64::First {
  AaaaFindings findings;
  Translated usable;  // the response without what is excluded
};

QueryOutcome Dns64::answer(const dns::Query& query, const Request& request, uint16_t flags) {
  if (!isOurs(query, request)) [[likely]]
    return QueryOutcome::next();
  if (query.qtype == code(RrType::kAaaa) && !isInReverseTree(query))
    return mayTranslate(query, request) ? answerAddress(query, request, flags) : QueryOutcome::next();
  const auto v6 = dns::addressOfReverseName(query.name());
  if (!v6) return isAbovePrefix(query) ? QueryOutcome::nextOfAbove() : QueryOutcome::next();
  const auto v4 = options_.prefix.extract(*v6);
  if (!v4) return QueryOutcome::next();
  if (query.qtype != code(RrType::kPtr)) return QueryOutcome::nextOfAbove();
  return answerPointer(query, dns::reverseName(*v4), request, flags);
}

bool Dns64::isOurs(const dns::Query& query, const Request& request) const {
  if (query.qtype != code(RrType::kAaaa) && !isInReverseTree(query)) return false;
  if (request.is_inner || (query.dnssec_ok && (query.flags & dns::kFlagCd) != 0)) return false;
  if (options_.allow_ipv4) return true;
  const auto source = IpAddress::fromSockaddr(request.source);
  return source && source->unmapped().isV6();
}

// Some reverse name of the prefix is below the name.
bool Dns64::isAbovePrefix(const dns::Query& query) const {
  const auto range = dns::addressesBelow(query.name());
  return range && range->first <= IpAddress::v6(options_.prefix.embed(kHighestV4)) &&
         IpAddress::v6(options_.prefix.embed(kLowestV4)) <= range->last;
}

// A client gets no address that it may not ask for.
bool Dns64::mayTranslate(const dns::Query& query, const Request& request) const {
  const resolve::Gate* gate = chain_.parts.gate.get();
  return gate == nullptr || query.qtype != code(RrType::kAaaa) ||
         gate->judge(IpAddress::fromSockaddr(request.source), query.name(), code(RrType::kA)) ==
             resolve::Gate::AclVerdict::kAllow;
}

QueryOutcome Dns64::answerAddress(const dns::Query& query, const Request& request, uint16_t flags) {
  const auto keep = [&] { return std::make_unique<resolve::DeferredReply>(query, request); };
  Deferrer first_deferrer(
      keep, [this, flags](Reply reply, const MessageView& late) { onFirst(std::move(reply), late, flags); });
  first_deferrer.question_end = query.question_end;
  Request inner = request;
  inner.deferrer = &first_deferrer;
  inner.is_inner = true;
  const QueryOutcome outcome = chain_.runFrom(behind_, query, inner, flags);
  if (outcome.kind != QueryOutcome::Kind::kAnswer) return outcome;
  const auto first = examine(query, viewOf(query, outcome.size));
  if (!first) return outcome;
  if (first->findings.has_usable && !options_.translate_all) {
    return QueryOutcome::answer(write(query, request.response_limit, first->usable));
  }

  Deferrer deferrer(keep, [this, first](Reply reply, const MessageView& late) {
    const Translated response = conclude(reply->query(), late, *first);
    finish(std::move(reply), response);
  });
  const dns::Name name = dns::Name::fromWire(query.name());
  const QueryOutcome second = ask({query, name, RrType::kA}, request, deferrer, flags);
  if (second.kind != QueryOutcome::Kind::kAnswer) return second;
  const Translated response = conclude(query, {{question_room_.data(), second.size}, query.question_end}, *first);
  return QueryOutcome::answer(write(query, request.response_limit, response));
}

// Null: the response is the client's as it is.
std::shared_ptr<const Dns64::First> Dns64::examine(const dns::Query& query, const MessageView& response) const {
  const AaaaFindings findings = examineAaaa(response);
  const bool stays = findings.has_usable && !findings.has_excluded && !options_.translate_all;
  if (findings.is_final || stays) return nullptr;
  auto first = std::make_shared<First>();
  first->findings = findings;
  first->usable = withoutExcluded(query, response);
  return first->usable.packed ? first : nullptr;
}

// The response to the question for A as the client's. Where A records exist, but none that may be translated, and where
// there are AAAA records after all, it is what the first question has brought.
Translated Dns64::conclude(const dns::Query& query, const MessageView& response, const First& first) {
  Translated translated = translateAddresses(query, response, options_.prefix, first.findings.negative_ttl_seconds);
  if (!translated.packed) return {};
  const dns::PackedResponse& usable = *first.usable.packed;
  if (translated.made == 0 && (first.findings.has_usable || translated.left_out > 0)) {
    translated.packed = dns::PackedResponse::make(usable, usable.body(), usable.ttlOffsets());
    translated.header_flags = first.usable.header_flags;
    return translated;
  }
  if (translated.made == 0 || (translated.header_flags & dns::kFlagTc) != 0) return translated;
  counters_.translated.add();
  if (usable.authentic_data && translated.packed->authentic_data) return translated;
  dns::ResponseSections sections = *translated.packed;
  sections.authentic_data = false;  // §5.5: only what is proven to lack AAAA records
  translated.packed = dns::PackedResponse::make(sections, translated.packed->body(), translated.packed->ttlOffsets());
  return translated;
}

void Dns64::onFirst(Reply reply, const MessageView& response, uint16_t flags) {
  const auto first = examine(reply->query(), response);
  const bool is_late = BootClock::now() - reply->receivedAt() > kSecondQuestionTime;
  if (!first || is_late) return pass(std::move(reply), response);
  if (first->findings.has_usable && !options_.translate_all) return finish(std::move(reply), first->usable);
  const dns::Name name = dns::Name::fromWire(reply->query().name());
  const dns::Query client = reply->query();
  askLate(
      {client, name, RrType::kA}, std::move(reply),
      [this, first](Reply to, const MessageView& late) {
        const Translated translated = conclude(to->query(), late, *first);
        finish(std::move(to), translated);
      },
      flags);
}

// `name`: that of the IPv4 address.
QueryOutcome Dns64::answerPointer(const dns::Query& query, const dns::Name& name, const Request& request,
                                  uint16_t flags) {
  Deferrer deferrer(
      [&] { return std::make_unique<resolve::DeferredReply>(query, request); },
      [this, name, flags](Reply reply, const MessageView& late) { onPointer(std::move(reply), late, name, flags); });
  const QueryOutcome outcome = ask({query, name, RrType::kPtr}, request, deferrer, flags);
  if (outcome.kind != QueryOutcome::Kind::kAnswer) return outcome;
  const Translated response = reverse(query, {{question_room_.data(), outcome.size}, deferrer.question_end}, name);
  return response.packed ? QueryOutcome::answer(write(query, request.response_limit, response)) : QueryOutcome::next();
}

// Without a response: nothing is known of the IPv4 address.
Translated Dns64::reverse(const dns::Query& query, const MessageView& response, const dns::Name& name) {
  Translated translated = translatePointers(query, response, name);
  if (translated.made > 0) counters_.reversed.add();
  return translated;
}

void Dns64::onPointer(Reply reply, const MessageView& response, const dns::Name& name, uint16_t flags) {
  const Translated translated = reverse(reply->query(), response, name);
  if (translated.packed) return finish(std::move(reply), translated);
  const dns::Query client = reply->query();
  const dns::Name own_name = dns::Name::fromWire(client.name());
  askLate(
      {client, own_name, RrType::kPtr}, std::move(reply),
      [this](Reply to, const MessageView& late) { pass(std::move(to), late); }, flags);
}

// Where it is answered at once: in question_room_. REQUIRES: inside a ReadSection.
QueryOutcome Dns64::ask(const Question& question, const Request& request, Deferrer& deferrer, uint16_t flags) {
  const dns::Query& client = question.client;
  const size_t room = std::max(request.response_limit, dns::kMaxQuestionSize) + dns::kReadSlack;
  if (question_room_.size() < room) question_room_.resize(room);
  uint8_t* message = question_room_.data();
  const size_t size = dns::writeQuestion(message, client.flags & (dns::kFlagRd | dns::kFlagCd | dns::kFlagAd),
                                         question.name.wire(), code(question.type), code(dns::RrClass::kIn));
  dns::store16(message, dns::load16(client.message) ^ kIdChange);
  dns::Query query;
  if (dns::parseQuery(message, size, options_.hash_seed, query) != dns::ParseOutcome::kQuery) std::abort();
  query.has_edns = client.has_edns;
  query.dnssec_ok = client.dnssec_ok;
  query.udp_payload = client.udp_payload;
  deferrer.question_end = query.question_end;
  Request inner = request;
  inner.deferrer = &deferrer;
  inner.is_inner = true;
  // The name of another address may be another block's, or not for this client.
  if (question.type == RrType::kPtr && request.router != nullptr) {
    Request elsewhere = inner;
    ++elsewhere.inner_depth;
    const QueryOutcome outcome = request.router->answerInner(chain_, 0, query, elsewhere);
    if (!outcome.isNext()) return outcome;
  }
  return chain_.runFrom(behind_, query, inner, flags);
}

// The client is kept already.
void Dns64::askLate(const Question& question, Reply reply, const Then& then, uint16_t flags) {
  const records::ReadSection section(reader_);
  const Request request = reply->request();
  Deferrer deferrer([&reply] { return std::move(reply); }, then);
  const QueryOutcome outcome = ask(question, request, deferrer, flags);
  if (outcome.kind == QueryOutcome::Kind::kAnswer) {
    then(std::move(reply), {{question_room_.data(), outcome.size}, deferrer.question_end});
  }
}

// Over the query. AA, RA as the handler has said.
size_t Dns64::write(const dns::Query& query, size_t limit, const Translated& response) {
  dns::ResponseBuilder builder(query, limit);
  if (!response.packed) return builder.finish(dns::Rcode::kServFail, dns::kFlagRa);
  if ((response.header_flags & dns::kFlagTc) != 0) {  // the records would be larger still
    builder.truncate();
    return builder.finish(response.packed->rcode, response.header_flags & dns::kFlagRa);
  }
  const size_t size = dns::writePackedResponse(*response.packed, query, limit, {});
  constexpr uint16_t kHandlers = dns::kFlagAa | dns::kFlagRa;
  uint8_t* flags = query.message + 2;
  const uint16_t cut = response.is_cut ? dns::kFlagTc : 0;  // RFC 2181 §9, over TCP too
  dns::store16(flags, (dns::load16(flags) & ~kHandlers) | (response.header_flags & kHandlers) | cut);
  return size;
}

void Dns64::finish(Reply reply, const Translated& response) {
  reply->makeRoom(reply_room_, options_.nsid.get());
  const size_t size = write(reply->query(), reply->responseLimit(), response);
  reply->finish(size, options_.limiter.get(), options_.log.get(), options_.directive);
}

// As it came, but for the client's ID.
void Dns64::pass(Reply reply, const MessageView& response) {
  reply->makeRoom(reply_room_, options_.nsid.get());
  uint8_t* message = reply->query().message;
  const uint16_t id = dns::load16(message);
  std::copy(response.bytes.begin(), response.bytes.end(), message);
  dns::store16(message, id);
  reply->finish(response.bytes.size(), options_.limiter.get(), options_.log.get(), options_.directive);
}

}  // namespace idetcd::resolver
