#include "directive/acl/setup.h"

#include <string>
#include <utility>

#include "config/arguments.h"
#include "config/option_table.h"

namespace idetcd::directive {

Result<void> AclDirective::read(config::DirectiveCursor& cursor, const resolve::Block& block) {
  Acl::RuleSet rules;
  config::Problems problems;
  auto zones = config::parseZonesOr(block.keys, cursor, cursor.remainingArgs());
  if (!zones) problems.add(zones.error().message);
  if (zones) rules.zones = std::move(*zones);
  while (cursor.nextBlock()) {
    std::vector<std::string> words{cursor.value()};
    for (std::string& word : cursor.remainingArgs()) words.push_back(std::move(word));
    auto rule = parseAclRule(words);
    if (rule) {
      rules.rules.push_back(std::move(*rule));
    } else {
      problems.add(cursor.error(rule.error().message));
    }
  }
  if (auto finished = cursor.finish(); !finished) problems.add(finished.error().message);
  if (auto all = problems.result(); !all) return all;
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
