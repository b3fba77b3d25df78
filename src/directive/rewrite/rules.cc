#include "directive/rewrite/rules.h"

#include <re2/re2.h>

#include "base/text.h"
#include "config/regex.h"

namespace idetcd::directive {

namespace {

using dns::RrType;
using Kind = NameMatch::Kind;

std::string withDot(const std::string& text) { return text.ends_with('.') ? text : text + "."; }

// The number in braces at `pos` of a replacement, and its end; nothing: a brace of its own.
std::optional<std::pair<size_t, size_t>> groupAt(std::string_view text, size_t pos) {
  const size_t end = text[pos] == '{' ? text.find('}', pos) : text.npos;
  if (end == text.npos) return std::nullopt;
  const auto number = parseNumber<uint16_t>(text.substr(pos + 1, end - pos - 1));
  if (!number) return std::nullopt;
  return std::pair<size_t, size_t>(*number, end + 1);
}

std::string fillGroups(std::string_view text, const std::vector<std::string_view>& groups) {
  std::string filled;
  for (size_t pos = 0; pos < text.size();) {
    const auto group = groupAt(text, pos);
    if (!group) {
      filled += text[pos++];
      continue;
    }
    filled += group->first < groups.size() ? groups[group->first] : std::string_view();
    pos = group->second;
  }
  return filled;
}

// Types whose data begin with the name that is changed, behind this many bytes; NAPTR is apart.
std::optional<size_t> nameOffset(uint16_t type) {
  switch (static_cast<RrType>(type)) {
    case RrType::kCname:
    case RrType::kDname:
    case RrType::kNs:
    case RrType::kPtr:
    case RrType::kSoa:
      return 0;
    case RrType::kMx:
      return 2;
    case RrType::kSrv:
      return 6;
    default:
      return std::nullopt;
  }
}

// Where the name stands in the data of a record: an offset of the message; nothing: there is none.
std::optional<size_t> findValue(std::span<const uint8_t> message, const dns::RecordView& record) {
  const size_t end = record.rdata + record.rdata_size;
  size_t pos = record.rdata;
  if (record.type == dns::code(RrType::kNaptr)) {  // order, preference, three character-strings (RFC 3403 §4.1)
    pos += 4;
    for (int i = 0; i < 3 && pos < end; ++i) pos += message[pos] + 1u;
  } else if (const auto offset = nameOffset(record.type)) {
    pos += *offset;
  } else {
    return std::nullopt;
  }
  return pos < end ? std::optional(pos) : std::nullopt;
}

// Whether the response is to the client's question.
bool isQuestionOf(const dns::Query& query, const dns::MessageView& response) {
  constexpr size_t kTail = 4;  // type and class
  const auto question = response.bytes.first(response.question_end).subspan(dns::kHeaderSize);
  if (question.size() != query.qname_size + kTail) return false;
  const uint8_t* tail = question.data() + query.qname_size;
  return dns::sameName(question.first(query.qname_size), query.name()) && dns::load16(tail) == query.qtype &&
         dns::load16(tail + 2) == query.qclass;
}

class Change {
 public:
  Change(std::span<const ResponseRule> rules, const dns::MessageView& response, dns::ResponseRewriter& to)
      : rules_(rules), message_(response.bytes), to_(to) {}

  bool write(const dns::RecordView& record, std::span<const uint8_t> owner) {
    std::optional<dns::Name> new_owner;
    if (!changeName(&ResponseRule::owners, owner, new_owner)) return false;
    if (new_owner) owner = new_owner->wire();
    if (to_.leaveOut(record, owner)) return true;
    const uint32_t ttl = ttlOf(record);
    const auto pos = findValue(message_, record);
    if (!pos) return to_.keep(record, owner, ttl);
    dns::ExpandedName value;
    const size_t end = dns::expandName(message_, *pos, value);
    std::optional<dns::Name> new_value;
    if (end == 0 || !changeName(&ResponseRule::values, value.span(), new_value)) return false;
    if (!new_value) return to_.keep(record, owner, ttl);
    std::vector<uint8_t> rdata(&message_[record.rdata], &message_[*pos]);
    rdata.insert(rdata.end(), new_value->wire().begin(), new_value->wire().end());
    if (record.type == dns::code(RrType::kSoa) && !appendRestOfSoa(record, end, rdata)) return false;
    return to_.replace(record, owner, static_cast<RrType>(record.type), ttl, rdata);
  }

 private:
  using Names = std::shared_ptr<const NameChange> ResponseRule::*;

  // False: it becomes no name. `to` stays empty if the name stays.
  bool changeName(Names names, std::span<const uint8_t> from, std::optional<dns::Name>& to) const {
    const bool any = std::ranges::any_of(rules_, [names](const ResponseRule& rule) { return rule.*names != nullptr; });
    if (!any) return true;
    std::string text = dns::Name::fromWire(from).toString();
    bool changed = false;
    for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
      auto next = (*rule).*names ? ((*rule).*names)->apply(text) : std::nullopt;
      if (!next) continue;
      text = withDot(*next);
      changed = true;
    }
    if (!changed) return true;
    const auto name = dns::Name::parse(text);
    if (!name) return false;
    to_.clearAuthenticData();
    to = *name;
    return true;
  }

  uint32_t ttlOf(const dns::RecordView& record) const {
    uint32_t ttl = record.ttl;
    for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
      if (rule->ttl) ttl = std::clamp(ttl, rule->ttl->least, rule->ttl->most);
    }
    return ttl;
  }

  // The mailbox at `pos`, and the numbers (RFC 1035 §3.3.13).
  bool appendRestOfSoa(const dns::RecordView& record, size_t pos, std::vector<uint8_t>& rdata) const {
    constexpr size_t kNumbers = 20;
    dns::ExpandedName mailbox;
    const size_t end = dns::expandName(message_, pos, mailbox);
    if (end == 0 || end + kNumbers != record.rdata + record.rdata_size) return false;
    rdata.insert(rdata.end(), mailbox.span().begin(), mailbox.span().end());
    rdata.insert(rdata.end(), &message_[end], &message_[end] + kNumbers);
    return true;
  }

  const std::span<const ResponseRule> rules_;
  const std::span<const uint8_t> message_;
  dns::ResponseRewriter& to_;
};

// The words of a rule, one after the other.
class Words {
 public:
  explicit Words(std::span<const std::string> words) : left_(words) {}
  size_t count() const { return left_.size(); }
  // REQUIRES: count() > 0.
  const std::string& next() {
    const std::string& word = left_.front();
    left_ = left_.subspan(1);
    return word;
  }
  // Takes the next word if it is this one, in any case.
  bool take(std::string_view word) {
    if (left_.empty() || lowerCase(left_.front()) != word) return false;
    left_ = left_.subspan(1);
    return true;
  }

 private:
  std::span<const std::string> left_;
};

// A kind that stands in front of the other words, if there are more than `without`.
Result<Kind> readKind(Words& words, size_t without) {
  if (words.count() <= without) return Kind::kExact;
  const std::string& word = words.next();
  const auto kind = NameMatch::kindOf(word);
  if (!kind) return fail(fmt::format("'{}' is none of exact, prefix, suffix, substring and regex", printable(word)));
  return *kind;
}

// `auto`, `name FROM TO` or `value FROM TO`.
Result<void> readAnswer(Words& words, Kind kind, const std::string& from, const std::string& to, RewriteRule& rule) {
  if (words.take("auto")) {
    if (kind != Kind::kSuffix) {
      rule.reverts = true;
      return {};
    }
    auto back = NameChange::make(Kind::kSuffix, to, from);
    if (!back) return tl::unexpected(back.error());
    const auto change = std::make_shared<const NameChange>(std::move(*back));
    rule.response.push_back({.owners = change, .values = change});
    return {};
  }
  const bool is_value = words.take("value");
  if ((!is_value && !words.take("name")) || words.count() < 2)
    return fail("write: answer auto, answer name FROM TO, or answer value FROM TO");
  const std::string& answer_from = words.next();
  auto change = NameChange::make(Kind::kRegex, answer_from, words.next());
  if (!change) return tl::unexpected(change.error());
  auto shared = std::make_shared<const NameChange>(std::move(*change));
  rule.response.push_back(is_value ? ResponseRule{.values = std::move(shared)} : ResponseRule{.owners = std::move(shared)});
  return {};
}

// `[exact|prefix|suffix|substring|regex] FROM TO [answer …]…`; `answer` need not be repeated.
Result<void> readName(Words& words, RewriteRule& rule) {
  const auto kind = readKind(words, 2);
  if (!kind) return tl::unexpected(kind.error());
  if (words.count() < 2) return fail("write: name [exact|prefix|suffix|substring|regex] FROM TO [answer ...]");
  const std::string& from = words.next();
  const std::string& to = words.next();
  auto change = NameChange::make(*kind, from, to);
  if (!change) return tl::unexpected(change.error());
  rule.name = std::move(*change);
  rule.reverts = *kind == Kind::kExact;
  for (bool is_first = true; words.count() > 0; is_first = false) {
    if (!words.take("answer") && is_first) return fail(fmt::format("'{}' behind the names; write: answer ...", printable(words.next())));
    if (auto read = readAnswer(words, *kind, from, to, rule); !read) return read;
  }
  return {};
}

// `[KIND] NAME`, with `behind` words to follow.
Result<void> readNames(Words& words, size_t behind, RewriteRule& rule) {
  const auto kind = readKind(words, behind + 1);
  if (!kind) return tl::unexpected(kind.error());
  if (words.count() != behind + 1) return fail("a wrong number of arguments");
  auto names = NameMatch::make(*kind, words.next());
  if (!names) return tl::unexpected(names.error());
  rule.names = std::move(*names);
  return {};
}

// `SECONDS`, `LEAST-MOST`, `LEAST-` or `-MOST`.
std::optional<ResponseRule::Ttl> parseTtlRange(std::string_view text) {
  constexpr uint32_t kMost = std::numeric_limits<int32_t>::max();  // RFC 2181 §8
  const size_t dash = text.find('-');
  const std::string_view first = text.substr(0, dash);
  const std::string_view second = dash == text.npos ? first : text.substr(dash + 1);
  if (first.empty() && second.empty()) return std::nullopt;
  const auto least = first.empty() ? std::optional<uint32_t>(0) : parseNumber<uint32_t>(first);
  const auto most = second.empty() ? std::optional(kMost) : parseNumber<uint32_t>(second);
  if (!least || !most || *least > *most || *most > kMost) return std::nullopt;
  return ResponseRule::Ttl{*least, *most};
}

Result<void> readTtl(Words& words, RewriteRule& rule) {
  if (auto read = readNames(words, 1, rule); !read) return read;
  const std::string& word = words.next();
  const auto ttl = parseTtlRange(word);
  if (!ttl) return fail(fmt::format("invalid TTL '{}' for a ttl rule", printable(word)));
  rule.response.push_back({.ttl = ttl});
  return {};
}

Result<dns::Rcode> parseRcode(const std::string& word) {
  constexpr uint16_t kMost = 23;
  const auto number = parseNumber<uint16_t>(word);
  const auto code = number ? number : dns::kRcodeNames.parse(word);
  if (!code || *code > kMost) return fail(fmt::format("invalid RCODE '{}' for a rcode rule", printable(word)));
  return static_cast<dns::Rcode>(*code);
}

Result<void> readRcode(Words& words, RewriteRule& rule) {
  if (auto read = readNames(words, 2, rule); !read) return read;
  const auto from = parseRcode(words.next());
  if (!from) return tl::unexpected(from.error());
  const auto to = parseRcode(words.next());
  if (!to) return tl::unexpected(to.error());
  rule.response.push_back({.rcode = ResponseRule::Rcode{*from, *to}});
  return {};
}

bool isAskedFor(uint16_t type) {
  constexpr uint16_t kFirstMeta = 128;
  constexpr uint16_t kAny = 255;
  return type != 0 && type != dns::code(RrType::kOpt) && (type < kFirstMeta || type >= kAny);
}

Result<void> readType(Words& words, RewriteRule& rule) {
  if (words.count() != 2) return fail("type rules must have exactly two arguments");
  const std::string& from_word = words.next();
  const std::string& to_word = words.next();
  const auto from = dns::kTypeNames.parse(from_word);
  const auto to = dns::kTypeNames.parse(to_word);
  if (!from) return fail(fmt::format("invalid type '{}'", printable(from_word)));
  if (!to || !isAskedFor(*to)) return fail(fmt::format("invalid type '{}'", printable(to_word)));
  rule.type = RewriteRule::Change<uint16_t>{*from, *to};
  return {};
}

Result<void> readClass(Words& words, RewriteRule& rule) {
  if (words.count() != 2) return fail("class rules must have exactly two arguments");
  const std::string& from_word = words.next();
  const std::string& to_word = words.next();
  const auto from = dns::kClassNames.parse(from_word);
  const auto to = dns::kClassNames.parse(to_word);
  if (!from) return fail(fmt::format("invalid class '{}'", printable(from_word)));
  if (!to) return fail(fmt::format("invalid class '{}'", printable(to_word)));
  if (*to != dns::code(dns::RrClass::kIn))
    return fail(fmt::format("class {}: queries can become IN only, which is all that the others answer", to_word));
  rule.from_class = *from;
  return {};
}

Result<void> readField(const std::string& field, Words& words, RewriteRule& rule) {
  if (field == "name") return readName(words, rule);
  if (field == "type") return readType(words, rule);
  if (field == "class") return readClass(words, rule);
  if (field == "ttl") return readTtl(words, rule);
  if (field == "rcode") return readRcode(words, rule);
  if (field == "answer") return fail("response rewrites must begin with a name rule: write: name ... answer ...");
  if (field == "edns0" || field == "cname" || field == "flag")
    return fail(fmt::format("{} rules are CoreDNS's, they are not supported here", field));
  return fail(fmt::format("invalid rule type '{}'; write: one of name, type, class, ttl, rcode", printable(field)));
}

}  // namespace

std::optional<Kind> NameMatch::kindOf(std::string_view word) {
  static constexpr std::pair<std::string_view, Kind> kKinds[]{{"exact", Kind::kExact},
                                                              {"prefix", Kind::kPrefix},
                                                              {"suffix", Kind::kSuffix},
                                                              {"substring", Kind::kSubstring},
                                                              {"regex", Kind::kRegex}};
  const std::string name = lowerCase(word);
  for (const auto& [text, kind] : kKinds) {
    if (text == name) return kind;
  }
  return std::nullopt;
}

Result<NameMatch> NameMatch::make(Kind kind, const std::string& from) {
  NameMatch match;
  match.kind_ = kind;
  if (kind == Kind::kRegex) {
    auto regex = config::compileRegex(from);
    if (!regex) return tl::unexpected(regex.error());
    match.regex_ = std::move(*regex);
    return match;
  }
  match.from_ = lowerCase(from);
  if (kind == Kind::kExact || kind == Kind::kSuffix) match.from_ = withDot(match.from_);
  if (match.from_.empty()) return fail("an empty text is in every name");
  return match;
}

bool NameMatch::matches(const std::string& name) const {
  switch (kind_) {
    case Kind::kExact:
      return name == from_;
    case Kind::kPrefix:
      return name.starts_with(from_);
    case Kind::kSuffix:
      return name.ends_with(from_);
    case Kind::kSubstring:
      return name.find(from_) != name.npos;
    case Kind::kRegex:
      return re2::RE2::PartialMatch(name, *regex_);
    case Kind::kWithin:
      return name.ends_with(from_) && (name.size() == from_.size() || name[name.size() - from_.size() - 1] == '.');
  }
  return false;
}

Result<NameChange> NameChange::make(Kind kind, const std::string& from, const std::string& to) {
  auto match = NameMatch::make(kind, from);
  if (!match) return tl::unexpected(match.error());
  NameChange change;
  static_cast<NameMatch&>(change) = std::move(*match);
  change.to_ = lowerCase(to);
  if (kind == Kind::kExact || kind == Kind::kSuffix) change.to_ = withDot(change.to_);
  if (kind == Kind::kExact && !dns::Name::parse(change.to_)) return fail(fmt::format("'{}' is no name", printable(to)));
  if (kind != Kind::kRegex) return change;
  for (size_t pos = 0; pos < change.to_.size(); ++pos) {
    const auto group = groupAt(change.to_, pos);
    if (group && group->first > static_cast<size_t>(change.regex_->NumberOfCapturingGroups()))
      return fail(fmt::format("'{}' uses more groups than '{}' has", printable(to), change.regex_->pattern()));
  }
  return change;
}

std::optional<std::string> NameChange::apply(const std::string& name) const {
  if (kind_ == Kind::kRegex) {
    const auto groups = config::matchRegex(*regex_, name);
    return groups ? std::optional(fillGroups(to_, *groups)) : std::nullopt;
  }
  if (!matches(name)) return std::nullopt;
  const std::string_view text(name);
  const size_t rest = name.size() - std::min(name.size(), from_.size());
  switch (kind_) {
    case Kind::kPrefix:
      return to_ + std::string(text.substr(from_.size()));
    case Kind::kSuffix:
    case Kind::kWithin:
      return std::string(text.substr(0, rest)) + to_;
    case Kind::kSubstring:
      break;
    default:
      return to_;
  }
  std::string changed;
  size_t begin = 0;
  for (size_t found; (found = name.find(from_, begin)) != name.npos; begin = found + from_.size()) {
    changed.append(text.substr(begin, found - begin)).append(to_);
  }
  return changed.append(text.substr(begin));
}

Result<RewriteRule> parseRewriteRule(std::span<const std::string> list) {
  Words words(list);
  RewriteRule rule;
  rule.stops = !words.take("continue");
  if (rule.stops) words.take("stop");
  if (words.count() == 0) return fail("no rule type specified for rewrite");
  const std::string field = lowerCase(words.next());
  if (auto read = readField(field, words, rule); !read) return tl::unexpected(read.error());
  return rule;
}

std::optional<RewrittenQuestion> applyRules(std::span<const RewriteRule> rules, const dns::Query& query) {
  RewrittenQuestion question{.name = dns::Name::fromWire(query.name()), .type = query.qtype};
  uint16_t rr_class = query.qclass;
  std::string name = question.name.toString();
  bool any = false;
  for (const RewriteRule& rule : rules) {
    const auto changed = rule.name ? rule.name->apply(name) : std::nullopt;
    const bool of_type = rule.type && rule.type->from == question.type;
    const bool of_class = rule.from_class == rr_class;
    if (!changed && !of_type && !of_class && !(rule.names && rule.names->matches(name))) continue;
    any = true;
    if (of_type) question.type = rule.type->to;
    if (of_class) rr_class = dns::code(dns::RrClass::kIn);
    if (changed) {
      const auto parsed = dns::Name::parse(*changed);
      question.is_name = parsed.has_value();
      if (!parsed) return question;
      question.name = *parsed;
    }
    if (rule.reverts) {
      auto back = NameChange::make(Kind::kWithin, question.name.toString(), name);
      const auto change = std::make_shared<const NameChange>(std::move(back.value()));
      question.response.push_back({.owners = change, .values = change});
    }
    question.response.insert(question.response.end(), rule.response.begin(), rule.response.end());
    name = question.name.toString();
    if (rule.stops) break;
  }
  if (!any || rr_class != dns::code(dns::RrClass::kIn)) return std::nullopt;
  return question;
}

dns::RewrittenResponse rewriteResponse(const dns::Query& query, const dns::MessageView& response,
                                       std::span<const ResponseRule> rules) {
  dns::ResponseRewriter rewriter(query, response);
  if (!isQuestionOf(query, response)) rewriter.clearAuthenticData();
  Change change(rules, response, rewriter);
  const auto write = [&change](const dns::RecordView& record, std::span<const uint8_t> owner) {
    return change.write(record, owner);
  };
  if (!rewriter.copy(write)) return {};
  for (auto rule = rules.rbegin(); rule != rules.rend(); ++rule) {
    if (!rule->rcode || rule->rcode->from != rewriter.rcode()) continue;
    rewriter.setRcode(rule->rcode->to);
    rewriter.clearAuthenticData();
  }
  return rewriter.finish();
}

}  // namespace idetcd::directive
