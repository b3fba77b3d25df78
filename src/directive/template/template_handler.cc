#include "directive/template/template_handler.h"

#include <re2/re2.h>

#include "config/regex.h"
#include "dns/record_writer.h"
#include "dns/response.h"

namespace idetcd::directive {

namespace {

using resolve::QueryOutcome;

constexpr size_t kAnyWork = 1'000'000;  // the records are our own

bool isForType(uint16_t type, uint16_t qtype) {
  constexpr uint16_t kAny = dns::code(dns::RrType::kAny);
  return type == kAny || qtype == kAny || type == qtype;
}

// The longest that the name is in; null: it is in none.
const dns::Name* findZone(const std::vector<dns::Name>& zones, const dns::Query& query) {
  const dns::Name* found = nullptr;
  for (const dns::Name& zone : zones) {
    const bool is_in = dns::isNameWithin(query.name(), zone);
    if (is_in && (found == nullptr || zone.size() > found->size())) found = &zone;
  }
  return found;
}

// Whether a rule's expressions match the name, and the groups by which.
bool matchName(const TemplateRule& rule, TemplateData& data) {
  if (rule.match.empty()) {
    data.match = {data.name};
    data.group = {{"0", data.name}};
    return true;
  }
  for (const auto& regex : rule.match) {
    const auto groups = config::matchRegex(*regex, data.name);
    if (!groups) continue;
    data.match.assign(groups->begin(), groups->end());
    data.group.clear();
    for (size_t i = 0; i < groups->size(); ++i) data.group.emplace(fmt::to_string(i), (*groups)[i]);
    for (const auto& [name, number] : regex->NamedCapturingGroups())
      data.group.insert_or_assign(name, std::string((*groups)[static_cast<size_t>(number)]));
    return true;
  }
  return false;
}

TemplateData dataOf(const dns::Query& query, const resolve::Request& request) {
  TemplateData data{.name = dns::nameToString(query.qname),
                    .rr_class = dns::kClassNames.toString(query.qclass),
                    .type = dns::kTypeNames.toString(query.qtype)};
  const auto client = request.source != nullptr ? IpAddress::fromSockaddr(request.source) : std::nullopt;
  if (client) data.remote = client->toString();
  data.question = {.name = dns::nameToString(query.message + dns::kHeaderSize),
                   .type = query.qtype,
                   .rr_class = query.qclass};
  return data;
}

// The records of a response, section by section, behind one question.
class Body {
 public:
  explicit Body(const dns::Query& query) : work_(kAnyWork), writer_(query, dns::kMinUdpPayload, work_) {}

  // False if there are too many.
  bool append(const std::vector<TemplateRecord>& records) {
    return std::ranges::all_of(records, [this](const TemplateRecord& record) {
      const dns::RecordView view{.type = record.type,
                                 .klass = dns::code(dns::RrClass::kIn),
                                 .rdata_size = static_cast<uint16_t>(record.rdata.size())};
      ++count_;
      return writer_.append(record.rdata, view, record.owner.wire(), record.ttl);
    });
  }

  struct Section {
    std::span<const uint8_t> records;
    uint16_t count;
  };
  // What was appended since the last one. Borrowed until more is appended.
  Section cut() {
    const Section section{writer_.body().subspan(begin_), std::exchange(count_, uint16_t{0})};
    begin_ = writer_.body().size();
    return section;
  }

 private:
  dns::NameWork work_;
  dns::RecordWriter writer_;
  size_t begin_ = 0;
  uint16_t count_ = 0;
};

}  // namespace

// The records of a rule's response.
struct TemplateHandler::Expanded {
  std::vector<TemplateRecord> answers{};
  std::vector<TemplateRecord> authorities{};
  std::vector<TemplateRecord> additionals{};

  bool endsWithAlias() const { return !answers.empty() && answers.back().type == dns::code(dns::RrType::kCname); }
};

QueryOutcome TemplateHandler::answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) {
  std::optional<TemplateData> data;
  for (const TemplateRule& rule : *rules_) {
    if (!isForType(rule.type, query.qtype)) continue;
    const dns::Name* zone = findZone(rule.zones, query);
    if (zone == nullptr) continue;
    if (!data) data = dataOf(query, request);
    if (matchName(rule, *data)) {
      data->zone = zone->toString();
      if (request.own_only)  // that there is one is enough
        return QueryOutcome::answer(dns::ResponseBuilder(query, request.response_limit).finish(rule.rcode, flags));
      counters_.matches.add();
      return respond(rule, *data, query, request, flags);
    }
    if (findZone(rule.fallthrough, query) == nullptr)
      return QueryOutcome::answer(
          dns::ResponseBuilder(query, request.response_limit).finish(dns::Rcode::kServFail, flags));
  }
  return QueryOutcome::next();
}

Result<TemplateHandler::Expanded> TemplateHandler::expand(const TemplateRule& rule, const TemplateData& data) {
  Expanded expanded;
  const std::pair<const std::vector<RecordTemplate>&, std::vector<TemplateRecord>&> sections[]{
      {rule.answers, expanded.answers},
      {rule.authorities, expanded.authorities},
      {rule.additionals, expanded.additionals}};
  for (const auto& [templates, records] : sections) {
    for (const RecordTemplate& each : templates) {
      auto record = each.expand(data);
      if (!record) return tl::unexpected(record.error());
      records.push_back(std::move(*record));
    }
  }
  return expanded;
}

QueryOutcome TemplateHandler::respond(const TemplateRule& rule, const TemplateData& data, const dns::Query& query,
                                      const resolve::Request& request, uint16_t flags) {
  const auto expanded = expand(rule, data);
  if (!expanded) return fail(query, request, flags, expanded.error().message);
  dns::ResponseBuilder response(query, request.response_limit);
  if (rule.ede) response.setEde(*rule.ede, rule.ede_text);
  Body body(query);
  if (!body.append(expanded->answers)) response.truncate();
  const Body::Section answers = body.cut();
  response.addAnswer(answers.records, answers.count);
  if (!body.append(expanded->authorities)) response.truncate();
  const Body::Section authorities = body.cut();
  response.addAuthority(authorities.records, authorities.count);
  if (body.append(expanded->additionals)) {
    const Body::Section additionals = body.cut();
    response.addAdditional(additionals.records, additionals.count);
  }
  const size_t size = response.finish(rule.rcode, static_cast<uint16_t>(flags | dns::kFlagAa));
  if (expanded->endsWithAlias() && aliases_) return aliases_->complete(query, request, size);
  return QueryOutcome::answer(size);
}

QueryOutcome TemplateHandler::fail(const dns::Query& query, const resolve::Request& request, uint16_t flags,
                                   std::string_view reason) {
  counters_.failures.add();
  if (chain_.parts.errors) chain_.parts.errors->onFailed(query, dns::Rcode::kServFail, reason);
  return QueryOutcome::answer(
      dns::ResponseBuilder(query, request.response_limit).finish(dns::Rcode::kServFail, flags));
}

}  // namespace idetcd::directive
