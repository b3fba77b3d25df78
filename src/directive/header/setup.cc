// The directive `header`: flags of queries and of responses.
#include "base/text.h"
#include "config/option_table.h"
#include "resolve/directive.h"
#include "resolve/inner_question.h"

namespace idetcd::directive {

namespace {

using dns::MessageView;
using resolve::QueryOutcome;

// Of the flags of a header; the last action on a flag counts.
struct FlagChange {
  uint16_t set = 0;
  uint16_t clear = 0;

  void add(uint16_t flag, bool state) {
    (state ? set : clear) |= flag;
    (state ? clear : set) &= static_cast<uint16_t>(~flag);
  }
  uint16_t apply(uint16_t flags) const { return static_cast<uint16_t>((flags & ~clear) | set); }
};

struct HeaderSettings {
  FlagChange query;
  FlagChange response;
};

// `FLAGS…`, behind the word of the action.
Result<void> readFlags(config::DirectiveCursor& cursor, FlagChange& change, bool state) {
  const auto words = cursor.args(1);
  if (!words) return tl::unexpected(words.error());
  for (const std::string& word : *words) {
    const std::string flag = lowerCase(word);
    if (flag == "aa") {
      change.add(dns::kFlagAa, state);
    } else if (flag == "ra") {
      change.add(dns::kFlagRa, state);
    } else if (flag == "rd") {
      change.add(dns::kFlagRd, state);
    } else {
      return cursor.error(fmt::format("unknown/unsupported flag={}; there are aa, ra and rd", flag));
    }
  }
  return {};
}

// `query|response ACTION FLAGS…`
Result<void> readSelected(config::DirectiveCursor& cursor, FlagChange& change) {
  if (!cursor.nextArg()) return cursor.argError();
  const std::string action = lowerCase(cursor.value());
  if (action != "set" && action != "clear")
    return cursor.error(fmt::format("unknown flag action={}, should be set or clear", action));
  return readFlags(cursor, change, action == "set");
}

const config::Options<HeaderSettings>& options() {
  using Settings = HeaderSettings;
  using Cursor = config::DirectiveCursor;
  static const config::Options<Settings> kOptions{
      {"set", "set FLAGS..., of aa, ra and rd",
       [](Cursor& cursor, Settings& settings) { return readFlags(cursor, settings.response, true); }},
      {"clear", "clear FLAGS..., of aa, ra and rd",
       [](Cursor& cursor, Settings& settings) { return readFlags(cursor, settings.response, false); }},
      {"response", "response set|clear FLAGS...",
       [](Cursor& cursor, Settings& settings) { return readSelected(cursor, settings.response); }},
      {"query", "query set|clear FLAGS...",
       [](Cursor& cursor, Settings& settings) { return readSelected(cursor, settings.query); }}};
  return kOptions;
}

// Asks those behind it, and changes the flags of what they answer.
class HeaderHandler final : public resolve::Handler {
 public:
  HeaderHandler(const HeaderSettings& settings, const resolve::Chain& chain, resolve::DirectiveId directive)
      : settings_(settings),
        chain_(chain),
        behind_(chain.size() + 1),
        exit_{chain, directive} {}

  QueryOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) override {
    if (request.inner_depth > 0) return QueryOutcome::next();  // a part of a response that is changed as a whole
    dns::Query asked = query;
    asked.flags = settings_.query.apply(query.flags);
    resolve::LateAnswer late([&] { return std::make_unique<resolve::DeferredReply>(asked, request); },
                             [this](resolve::KeptReply reply, const MessageView& response) {
                               std::vector<uint8_t> changed(response.bytes.begin(), response.bytes.end());
                               change(changed.data());
                               exit_.pass(*reply, changed);
                             });
    late.question_end = query.question_end;
    resolve::Request inner = request;
    inner.deferrer = &late;
    inner.is_inner = true;
    const QueryOutcome outcome = chain_.runFrom(behind_, asked, inner, flags);
    if (outcome.kind == QueryOutcome::Kind::kAnswer) change(query.message);
    return outcome;
  }

 private:
  void change(uint8_t* message) const {
    dns::store16(message + 2, settings_.response.apply(dns::load16(message + 2)));
  }

  const HeaderSettings settings_;
  const resolve::Chain& chain_;
  const size_t behind_;
  const resolve::LateExit exit_;
};

class HeaderDirective final : public resolve::Configured<HeaderSettings> {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block&) override {
    return options().read(cursor, settings_);
  }
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override {
    chain.add(std::make_unique<HeaderHandler>(settings_, chain, context.process.names.idOf("header")));
    return {};
  }
};

}  // namespace

extern const resolve::DirectiveType kHeaderDirective{
    .name = "header",
    .syntax = "header { [query|response] set|clear FLAGS... }",
    .make = resolve::makeDirective<HeaderDirective>};

}  // namespace idetcd::directive
