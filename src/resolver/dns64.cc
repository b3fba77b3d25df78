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

dns::RewrittenResponse withoutExcluded(const dns::Query& query, const MessageView& response) {
  dns::ResponseRewriter rewriter(query, response);
  return rewriter.run([&](const RecordView& record, std::span<const uint8_t> owner) {
    return (isAnswer(record, RrType::kAaaa) && isExcluded(response, record)) || rewriter.keep(record, owner);
  });
}

Translated translateAddresses(const dns::Query& query, const MessageView& response, const Nat64Prefix& prefix,
                              uint32_t most_seconds) {
  dns::ResponseRewriter rewriter(query, response);
  Translated translated;
  static_cast<dns::RewrittenResponse&>(translated) =
      rewriter.run([&](const RecordView& record, std::span<const uint8_t> owner) {
        // AAAA records are larger than A records: what no message has room for is left out.
        const bool is_full = translated.made > 0 && rewriter.isFull(owner, sizeof(Nat64Prefix::V6));
        if (record.section != Section::kAnswer) return is_full || rewriter.keep(record, owner);
        if (isSignatureOf(response, record, RrType::kA)) return true;
        if (record.type != code(RrType::kA)) {
          if (is_full) rewriter.noteCut();
          return is_full || rewriter.keep(record, owner);
        }
        const auto v4 = response.bytes.subspan(record.rdata, record.rdata_size);
        if (v4.size() != sizeof(uint32_t) || !prefix.mayEmbed(IpAddress::fromBytes(v4))) {
          ++translated.left_out;
          return true;
        }
        if (is_full) {
          rewriter.noteCut();
          return true;
        }
        ++translated.made;
        return rewriter.replace(record, owner, RrType::kAaaa, std::min(record.ttl, most_seconds), prefix.embed(v4));
      });
  return translated;
}

Translated translatePointers(const dns::Query& query, const MessageView& response, const dns::Name& name) {
  std::optional<uint32_t> ttl;
  dns::MessageReader reader(response.bytes, response.question_end);
  RecordView record;
  while (reader.next(record) == dns::ReadStep::kRead) {
    if (isAnswer(record, RrType::kPtr)) ttl = std::min(record.ttl, ttl.value_or(std::numeric_limits<uint32_t>::max()));
  }
  dns::ResponseRewriter rewriter(query, response);
  if (dns::HeaderView(response.bytes.data()).isTruncated())  // its records would not fit either
    return {rewriter.run([](const RecordView&, std::span<const uint8_t>) { return true; })};
  if (!ttl || !rewriter.addAnswer(query.name(), RrType::kCname, *ttl, name.wire())) return {};
  // The CNAME and the longer question need room: what no message has room for is left out.
  return {rewriter.run([&](const RecordView& each, std::span<const uint8_t> owner) {
            const bool is_full = rewriter.isFull(owner, each.rdata_size + dns::kMaxNameLength);
            if (is_full && each.section == Section::kAnswer) rewriter.noteCut();
            return is_full || rewriter.keep(each, owner);
          }),
          1};
}

// A question of ours, as the client would have asked it.
struct Dns64::Question {
  const dns::Query& client;
  const dns::Name& name;
  RrType type;
};

// The result of the question for AAAA, if that is not the end.
struct Dns64::First {
  AaaaFindings findings;
  dns::RewrittenResponse usable;  // the response without what is excluded
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
    return QueryOutcome::answer(dns::writeRewritten(first->usable, query, request.response_limit));
  }

  Deferrer deferrer(keep, [this, first](Reply reply, const MessageView& late) {
    const Translated response = conclude(reply->query(), late, *first);
    finish(reply, response);
  });
  const dns::Name name = dns::Name::fromWire(query.name());
  const QueryOutcome second = ask({query, name, RrType::kA}, request, deferrer, flags);
  if (second.kind != QueryOutcome::Kind::kAnswer) return second;
  const Translated response = conclude(query, {{question_room_.data(), second.size}, query.question_end}, *first);
  return QueryOutcome::answer(dns::writeRewritten(response, query, request.response_limit));
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
  if (!first || is_late) return exit_.pass(*reply, response.bytes);
  if (first->findings.has_usable && !options_.translate_all) return finish(reply, first->usable);
  const dns::Name name = dns::Name::fromWire(reply->query().name());
  const dns::Query client = reply->query();
  askLate(
      {client, name, RrType::kA}, std::move(reply),
      [this, first](Reply to, const MessageView& late) {
        const Translated translated = conclude(to->query(), late, *first);
        finish(to, translated);
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
  return response.packed ? QueryOutcome::answer(dns::writeRewritten(response, query, request.response_limit)) : QueryOutcome::next();
}

// Without a response: nothing is known of the IPv4 address.
Translated Dns64::reverse(const dns::Query& query, const MessageView& response, const dns::Name& name) {
  Translated translated = translatePointers(query, response, name);
  if (translated.packed && translated.made > 0) counters_.reversed.add();
  return translated;
}

void Dns64::onPointer(Reply reply, const MessageView& response, const dns::Name& name, uint16_t flags) {
  const Translated translated = reverse(reply->query(), response, name);
  if (translated.packed) return finish(reply, translated);
  const dns::Query client = reply->query();
  const dns::Name own_name = dns::Name::fromWire(client.name());
  askLate(
      {client, own_name, RrType::kPtr}, std::move(reply),
      [this](const Reply& to, const MessageView& late) { exit_.pass(*to, late.bytes); }, flags);
}

// Where it is answered at once: in question_room_. REQUIRES: inside a ReadSection.
QueryOutcome Dns64::ask(const Question& question, const Request& request, Deferrer& deferrer, uint16_t flags) {
  const dns::Query& client = question.client;
  const size_t room = std::max(request.response_limit, dns::kMaxQuestionSize) + dns::kReadSlack;
  if (question_room_.size() < room) question_room_.resize(room);
  dns::Query query;
  if (!resolve::writeInnerQuestion(client, question.name.wire(), code(question.type), kIdChange, options_.hash_seed,
                                   question_room_.data(), query))
    std::abort();
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
void Dns64::askLate(const Question& question, Reply reply, const Deferrer::Then& then, uint16_t flags) {
  const records::ReadSection section(reader_);
  const Request request = reply->request();
  Deferrer deferrer([&reply] { return std::move(reply); }, then);
  const QueryOutcome outcome = ask(question, request, deferrer, flags);
  if (outcome.kind == QueryOutcome::Kind::kAnswer) {
    then(std::move(reply), {{question_room_.data(), outcome.size}, deferrer.question_end});
  }
}

void Dns64::finish(const Reply& reply, const dns::RewrittenResponse& response) const {
  exit_.send(*reply, [&response](const dns::Query& query, size_t limit) {
    return dns::writeRewritten(response, query, limit);
  });
}

}  // namespace idetcd::resolver
