// The directive `template`: answers out of the query.
#include <re2/re2.h>

#include "base/text.h"
#include "config/option_table.h"
#include "config/regex.h"
#include "directive/template/template_handler.h"
#include "resolve/directive.h"

namespace idetcd::directive {

namespace {

// `template CLASS TYPE [ZONE…]`
Result<void> readHead(config::DirectiveCursor& cursor, TemplateRule& rule) {
  auto words = cursor.args(2);
  if (!words) return tl::unexpected(words.error());
  const auto rr_class = dns::kClassNames.parse((*words)[0]);
  const bool is_any = lowerCase((*words)[0]) == "any";
  if (!rr_class && !is_any) return cursor.error(fmt::format("invalid query class {}", printable((*words)[0])));
  if (!is_any && *rr_class != dns::code(dns::RrClass::kIn))
    return cursor.error(fmt::format("class {}: there are templates for IN, which ANY stands for too", (*words)[0]));
  const auto type = dns::kTypeNames.parse((*words)[1]);
  if (!type) return cursor.error(fmt::format("invalid RR type {}", printable((*words)[1])));
  rule.type = *type;
  words->erase(words->begin(), words->begin() + 2);
  auto zones = config::parseZones(cursor, *words);
  if (!zones) return tl::unexpected(zones.error());
  if (!zones->empty()) rule.zones = std::move(*zones);
  return {};
}

Result<void> readMatch(config::DirectiveCursor& cursor, TemplateRule& rule) {
  const auto words = cursor.args(1);
  if (!words) return tl::unexpected(words.error());
  for (const std::string& word : *words) {
    auto regex = config::compileRegex(word);
    if (!regex) return cursor.error(regex.error().message);
    rule.match.push_back(std::move(*regex));
  }
  return {};
}

// One record or more, each a word.
config::Field<TemplateRule> recordsOf(std::vector<RecordTemplate> TemplateRule::*section) {
  return [section](config::DirectiveCursor& cursor, TemplateRule& rule) -> Result<void> {
    const auto words = cursor.args(1);
    if (!words) return tl::unexpected(words.error());
    for (const std::string& word : *words) {
      auto made = RecordTemplate::parse(word);
      if (!made) return cursor.error(made.error().message);
      (rule.*section).push_back(std::move(*made));
    }
    return {};
  };
}

Result<void> readRcode(config::DirectiveCursor& cursor, TemplateRule& rule) {
  const auto word = cursor.oneArg();
  if (!word) return tl::unexpected(word.error());
  const auto rcode = dns::kRcodeNames.parse(*word);
  if (!rcode) return cursor.error(fmt::format("unknown rcode {}", printable(*word)));
  rule.rcode = static_cast<dns::Rcode>(*rcode);
  return {};
}

Result<void> readEde(config::DirectiveCursor& cursor, TemplateRule& rule) {
  constexpr size_t kMaxText = 255;
  const auto words = cursor.args(1, 2);
  if (!words) return tl::unexpected(words.error());
  const auto number = parseNumber<uint16_t>(words->front());
  if (!number) return cursor.error(fmt::format("error parsing extended DNS error code {}", printable(words->front())));
  rule.ede = static_cast<dns::EdeCode>(*number);
  if (words->size() > 1) rule.ede_text = (*words)[1];
  if (rule.ede_text.size() > kMaxText) return cursor.error(fmt::format("a reason of more than {} bytes", kMaxText));
  return {};
}

// Of earlier versions of CoreDNS, with any arguments.
Result<void> skipUpstream(config::DirectiveCursor& cursor, TemplateRule&) {
  cursor.remainingArgs();
  return {};
}

const config::Options<TemplateRule>& options() {
  using namespace config;
  static const Options<TemplateRule> kOptions{
      Field<TemplateRule>(readHead),
      {{"match", "match REGEX...", readMatch},
       {"answer", "answer \"RECORD\"", recordsOf(&TemplateRule::answers)},
       {"additional", "additional \"RECORD\"", recordsOf(&TemplateRule::additionals)},
       {"authority", "authority \"RECORD\"", recordsOf(&TemplateRule::authorities)},
       {"rcode", "rcode CODE, like rcode NXDOMAIN", Field<TemplateRule>(readRcode).orElse("NOERROR")},
       {"ederror", "ederror CODE [REASON]", readEde},
       {"fallthrough", "fallthrough [ZONES...]", zonesOrAll(&TemplateRule::fallthrough)},
       {"upstream", "upstream", skipUpstream}}};
  return kOptions;
}

bool hasGroup(const TemplateRule& rule, const std::string& name) {
  const auto number = parseNumber<int>(name);
  if (number == 0) return true;
  return std::ranges::any_of(rule.match, [&](const auto& regex) {
    return regex->NamedCapturingGroups().contains(name) || (number && *number <= regex->NumberOfCapturingGroups());
  });
}

// The first group that a record of the rule names and no expression has; empty: there is none.
std::string findMissingGroup(const TemplateRule& rule) {
  for (const auto* section : {&rule.answers, &rule.authorities, &rule.additionals}) {
    for (const RecordTemplate& record : *section) {
      for (const std::string& name : record.groups()) {
        if (!hasGroup(rule, name)) return name;
      }
    }
  }
  return {};
}

class TemplateDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override {
    TemplateRule rule;
    rule.zones = config::zonesOf(block.keys);
    if (auto read = options().read(cursor, rule); !read) return read;
    if (const std::string name = findMissingGroup(rule); !name.empty())
      return cursor.error(fmt::format("no expression has a group '{}'", printable(name)));
    rules_->push_back(std::move(rule));
    return {};
  }
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override {
    auto aliases = std::make_unique<resolver::AliasCompletion>(
        chain, context.loop, context.process.epochs,
        resolver::AliasCompletion::Options{.hash_seed = context.process.hash_seed,
                                           .directive = context.process.names.idOf("template")});
    chain.add(std::make_unique<TemplateHandler>(rules_, chain, std::move(aliases), context.process.metrics.scope()));
    return {};
  }

 private:
  const std::shared_ptr<std::vector<TemplateRule>> rules_ = std::make_shared<std::vector<TemplateRule>>();
};

}  // namespace

extern const resolve::DirectiveType kTemplateDirective{.name = "template",
                                                       .syntax = "template CLASS TYPE [ZONES...] { ... }",
                                                       .make = resolve::makeDirective<TemplateDirective>,
                                                       .defaults = [] { return options().defaults(); }};

}  // namespace idetcd::directive
