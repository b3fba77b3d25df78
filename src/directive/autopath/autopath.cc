#include "directive/autopath/autopath.h"

#include "base/text.h"

namespace idetcd::directive {

using dns::MessageView;
using resolve::QueryOutcome;

Result<std::vector<dns::Name>> parseSearchList(std::string_view content) {
  std::vector<dns::Name> search;
  while (!content.empty()) {
    std::string_view line = content.substr(0, content.find('\n'));
    content.remove_prefix(std::min(line.size() + 1, content.size()));
    std::vector<std::string_view> words;
    while (true) {
      const size_t begin = std::min(line.find_first_not_of(" \t\r"), line.size());
      line.remove_prefix(begin);
      if (line.empty()) break;
      words.push_back(line.substr(0, line.find_first_of(" \t\r")));
      line.remove_prefix(words.back().size());
    }
    if (words.size() < 2 || (words[0] != "search" && words[0] != "domain")) continue;
    search.clear();
    for (const std::string_view word : std::span(words).subspan(1)) {
      const auto domain = dns::Name::parse(word);
      if (!domain) return fail(fmt::format("'{}' is no domain", printable(word)));
      search.push_back(*domain);
    }
  }
  if (search.empty()) return fail("there is no search list");
  return search;
}

// The way of one query through the list.
struct Autopath::Walk {
  std::vector<uint8_t> base;  // the labels before the domain, without the root's
  uint16_t flags;
  std::vector<uint8_t> first_response{};  // to the name that was asked for
  size_t first_question_end = 0;
};

Autopath::Autopath(const resolve::Chain& chain, size_t behind, Options options, records::EpochDomain& epochs,
                   metrics::Scope scope)
    : chain_(chain),
      behind_(behind),
      options_(std::move(options)),
      exit_{chain, options_.directive},
      reader_(epochs),
      counters_(std::move(scope)) {
  assert(!options_.search.empty());
}

// What an alias leads to is nothing that a search list has made.
bool Autopath::isOurs(const dns::Query& query, const resolve::Request& request) const {
  const auto is_within = [&query](const dns::Name& zone) { return dns::isNameWithin(query.name(), zone); };
  return request.inner_depth == 0 && is_within(options_.search.front()) &&
         query.qname_size > options_.search.front().size() && std::ranges::any_of(options_.zones, is_within);
}

// Of the domain at `index`, behind the last one the name alone. Nothing: it is too long.
std::optional<dns::Name> Autopath::candidate(const Walk& walk, size_t index) const {
  const dns::Name domain = index < options_.search.size() ? options_.search[index] : dns::Name();
  if (walk.base.size() + domain.size() > dns::kMaxNameLength) return std::nullopt;
  std::vector<uint8_t> wire = walk.base;
  wire.insert(wire.end(), domain.wire().begin(), domain.wire().end());
  return dns::Name::fromWire(wire);
}

// Whether the client gets an answer to this question of ours where it asks that itself. The signature of its own question
// is none for another one.
bool Autopath::mayAsk(const dns::Query& question, const resolve::Request& request) const {
  const resolve::Gate* gate = chain_.parts.gate.get();
  if (gate != nullptr && gate->judge(IpAddress::fromSockaddr(request.source), question.name(), question.qtype) !=
                             resolve::Gate::AclVerdict::kAllow)
    return false;
  return !chain_.parts.signatures || !chain_.parts.signatures->isRequiredOf(question);
}

QueryOutcome Autopath::answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) {
  if (!isOurs(query, request)) [[likely]]
    return QueryOutcome::next();
  const auto labels = query.name().first(query.qname_size - options_.search.front().size());
  const auto walk = std::make_shared<Walk>(Walk{.base = {labels.begin(), labels.end()}, .flags = flags});
  for (size_t i = 0; i <= options_.search.size(); ++i) {
    const auto name = candidate(*walk, i);
    if (!name) continue;
    const resolve::InnerQuestion question(query, name->wire(), query.qtype, request.response_limit, options_.hash_seed);
    if (i > 0 && !mayAsk(question.query(), request)) continue;
    resolve::LateAnswer late([&] { return std::make_unique<resolve::DeferredReply>(query, request); },
                             goOnLater(walk, i));
    const QueryOutcome outcome = ask(question, request, late, *walk);
    if (outcome.kind != QueryOutcome::Kind::kAnswer) return outcome;
    const MessageView response = question.answerOf(outcome.size);
    if (!isFound(*walk, i, response)) continue;
    return QueryOutcome::answer(
        dns::writeRewritten(conclude(query, *walk, i, response), query, request.response_limit));
  }
  return QueryOutcome::answer(dns::writeRewritten(concludeWithFirst(query, *walk), query, request.response_limit));
}

resolve::LateAnswer::Then Autopath::goOnLater(const Walking& walk, size_t index) {
  return [this, walk, index](resolve::KeptReply reply, const MessageView& response) {
    if (!isFound(*walk, index, response)) return goOn(std::move(reply), walk, index + 1);
    send(*reply, conclude(reply->query(), *walk, index, response));
  };
}

QueryOutcome Autopath::ask(const resolve::InnerQuestion& question, const resolve::Request& request,
                           resolve::LateAnswer& late, const Walk& walk) const {
  late.question_end = question.query().question_end;
  resolve::Request inner = request;
  inner.deferrer = &late;
  inner.is_inner = true;
  inner.response_limit = question.limit();
  return chain_.runFrom(behind_, question.query(), inner, walk.flags);
}

// The client is kept already. From the domain at `index` on.
void Autopath::goOn(resolve::KeptReply reply, const Walking& walk, size_t index) {
  const records::ReadSection section(reader_);
  for (; index <= options_.search.size(); ++index) {
    const auto name = candidate(*walk, index);
    if (!name) continue;
    if (BootClock::now() - reply->receivedAt() > kMaxTime) break;
    const resolve::Request request = reply->request();
    const resolve::InnerQuestion question(reply->query(), name->wire(), reply->query().qtype, reply->responseLimit(),
                                          options_.hash_seed);
    if (index > 0 && !mayAsk(question.query(), request)) continue;
    resolve::LateAnswer late([&reply] { return std::move(reply); }, goOnLater(walk, index));
    const QueryOutcome outcome = ask(question, request, late, *walk);
    if (outcome.kind == QueryOutcome::Kind::kPending) return;
    if (outcome.kind == QueryOutcome::Kind::kDrop) return reply->drop(outcome.dropReason());
    const MessageView response = question.answerOf(outcome.size);
    if (isFound(*walk, index, response)) return send(*reply, conclude(reply->query(), *walk, index, response));
  }
  send(*reply, concludeWithFirst(reply->query(), *walk));
}

// Keeps the first response.
bool Autopath::isFound(Walk& walk, size_t index, const MessageView& response) const {
  if (index == 0) {
    walk.first_response.assign(response.bytes.begin(), response.bytes.end());
    walk.first_question_end = response.question_end;
  }
  switch (dns::HeaderView(response.bytes.data()).rcode()) {
    case dns::Rcode::kNxDomain:
    case dns::Rcode::kServFail:
    case dns::Rcode::kRefused:
    case dns::Rcode::kFormErr:
    case dns::Rcode::kNotImp:
      return false;
    default:
      return true;
  }
}

dns::RewrittenResponse Autopath::conclude(const dns::Query& query, const Walk& walk, size_t index,
                                          const MessageView& response) {
  dns::ResponseRewriter rewriter(query, response);
  if (index > 0) {
    counters_.found.add();
    rewriter.clearAuthenticData();  // nobody has signed the CNAME
    dns::MessageReader reader(response.bytes, response.question_end);
    dns::RecordView record;
    const bool has_answer =
        reader.next(record) == dns::ReadStep::kRead && record.section == dns::Section::kAnswer;
    const auto name = candidate(walk, index);
    if (has_answer && !rewriter.addAnswer(query.name(), dns::RrType::kCname, record.ttl, name->wire())) return {};
  }
  return rewriter.run([&rewriter, index](const dns::RecordView& record, std::span<const uint8_t> owner) {
    return (index > 0 && rewriter.leaveOut(record, owner)) || rewriter.keep(record, owner);
  });
}

dns::RewrittenResponse Autopath::concludeWithFirst(const dns::Query& query, const Walk& walk) {
  return conclude(query, walk, 0, {walk.first_response, walk.first_question_end});
}

void Autopath::send(resolve::DeferredReply& reply, const dns::RewrittenResponse& response) const {
  exit_.send(reply, [&response](const dns::Query& query, size_t limit) {
    return dns::writeRewritten(response, query, limit);
  });
}

}  // namespace idetcd::directive
