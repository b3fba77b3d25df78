#include "directive/acl/setup.h"

#include "config/arguments.h"
#include "config/option_table.h"

namespace idetcd::directive {

namespace {

Result<void> readRule(config::DirectiveCursor& cursor, Acl::RuleSet& rules) {
  std::vector<std::string> words{cursor.value()};
  for (std::string& word : cursor.remainingArgs()) words.push_back(std::move(word));
  auto rule = parseAclRule(words);
  if (!rule) return cursor.error(rule.error().message);
  rules.rules.push_back(std::move(*rule));
  return {};
}

}  // namespace

Result<void> AclDirective::read(config::DirectiveCursor& cursor, const resolve::Block& block) {
  static const config::Options<Acl::RuleSet> kOptions{config::zonesIfAny(&Acl::RuleSet::zones), {}, readRule};
  Acl::RuleSet rules{.zones = config::zonesOf(block.keys), .rules = {}};
  if (auto read = kOptions.read(cursor, rules); !read) return read;
  rule_sets_.push_back(std::move(rules));
  return {};
}

Result<void> AclDirective::prepare(resolve::Process&, const resolve::Block&) {
  acl_ = std::make_shared<const Acl>(rule_sets_);
  return {};
}

Result<void> AclDirective::addTo(resolve::Chain& chain, const resolve::LoopContext& context) {
  chain.parts.gate = acl_;
  chain.parts.gate_directive = context.process.names.idOf("acl");
  return {};
}

const resolve::DirectiveType kAclDirective{
    .name = "acl",
    .syntax = "acl [ZONES...] { allow|block|filter|drop [type TYPE...] [net NETWORK...] }",
    .make = resolve::makeDirective<AclDirective>};

}  // namespace idetcd::directive
