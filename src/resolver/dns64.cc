#include "resolver/dns64.h"

#include <cstdlib>

#include "base/ip_address.h"
#include "dns/record.h"
#include "dns/response.h"
#include "dns/reverse_name.h"

namespace idetcd::resolver {

using dns::code;
using dns::RrType;
using resolve::QueryOutcome;
using resolve::Request;

namespace {

// Our questions have other IDs than the client's own, which may be on their way as well: what has the same ID counts as
// sent twice (resolver/waiting_clients).
constexpr uint16_t kIdChange = 0x6464;

// The response that stands where the query was.
MessageView viewOf(const dns::Query& query, size_t size) { return {{query.message, size}, query.question_end}; }

}  // namespace

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

// What the question for AAAA has brought, if that is not the end.
struct Dns64::First {
  AaaaFindings findings;
  Translated usable;  // the response without what is excluded
};

QueryOutcome Dns64::answer(const dns::Query& query, const Request& request, uint16_t flags) {
  if (!isOurs(query, request)) [[likely]]
    return QueryOutcome::next();
  return query.qtype == code(RrType::kAaaa) ? answerAddress(query, request, flags)
                                            : answerPointer(query, request, flags);
}

bool Dns64::isOurs(const dns::Query& query, const Request& request) const {
  if (query.qtype != code(RrType::kAaaa) && query.qtype != code(RrType::kPtr)) return false;
  if (request.is_inner || (query.dnssec_ok && (query.flags & dns::kFlagCd) != 0)) return false;
  if (options_.allow_ipv4) return true;
  const auto source = IpAddress::fromSockaddr(request.source);
  return source && source->unmapped().isV6();
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

QueryOutcome Dns64::answerPointer(const dns::Query& query, const Request& request, uint16_t flags) {
  const auto v6 = dns::addressOfReverseName(query.name());
  const auto v4 = v6 && v6->isV6() ? options_.prefix.extract(*v6) : std::nullopt;
  if (!v4) return QueryOutcome::next();
  const dns::Name name = dns::reverseName(*v4);
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
  if (translated.packed) counters_.reversed.add();
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
  dns::store16(flags, (dns::load16(flags) & ~kHandlers) | (response.header_flags & kHandlers));
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
