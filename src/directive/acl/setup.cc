// The directive `acl`: which clients may query.
#include "config/option_table.h"
#include "directive/acl/acl.h"
#include "resolve/directive.h"
#include "resolver/resolver_settings.h"

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

class AclDirective final : public resolve::Configured<std::vector<Acl::RuleSet>>, public resolver::SettingsSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override {
    static const config::Options<Acl::RuleSet> kOptions{config::zonesIfAny(&Acl::RuleSet::zones), {}, readRule};
    Acl::RuleSet rules{.zones = config::zonesOf(block.keys), .rules = {}};
    if (auto read = kOptions.read(cursor, rules); !read) return read;
    settings_.push_back(std::move(rules));
    return {};
  }
  Result<void> prepare(resolve::Process&, const resolve::Block&) override {
    acl_ = std::make_shared<const Acl>(settings_);
    return {};
  }
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override {
    chain.parts.gate = acl_;
    chain.parts.gate_directive = context.process.names.idOf("acl");
    return {};
  }
  void fill(resolver::ResolverSettings& to) const override { to.limits_clients = true; }

 private:
  std::shared_ptr<const Acl> acl_;
};

}  // namespace

extern const resolve::DirectiveType kAclDirective{
    .name = "acl",
    .syntax = "acl [ZONES...] { allow|block|filter|drop [type TYPE...] [net NETWORK...] }",
    .make = resolve::makeDirective<AclDirective>};

}  // namespace idetcd::directive
