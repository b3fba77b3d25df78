// The directive `dns64`: IPv6 addresses for hosts that have IPv4 addresses only.
#include "config/option_table.h"
#include "resolve/directive.h"
#include "resolver/dns64.h"

namespace idetcd::directive {

namespace {

using Options = resolver::Dns64::Options;

Result<void> readPrefix(config::DirectiveCursor& cursor, Options& settings) {
  const auto word = cursor.oneArg();
  if (!word) return tl::unexpected(word.error());
  const auto prefix = resolver::Nat64Prefix::parse(*word);
  if (!prefix) return cursor.error(prefix.error().message);
  settings.prefix = *prefix;
  return {};
}

// `dns64 [PREFIX]`
Result<void> readHead(config::DirectiveCursor& cursor, Options& settings) {
  return cursor.argumentFollows() ? readPrefix(cursor, settings) : Result<void>();
}

const config::Options<Options>& options() {
  static const config::Options<Options> kOptions{
      config::Field<Options>(readHead).orElse("64:ff9b::/96").named("PREFIX"),
      {{"prefix", "prefix PREFIX, like prefix 64:ff9b::/96", readPrefix},
       {"translate_all", "translate_all", config::flag(&Options::translate_all)},
       {"allow_ipv4", "allow_ipv4", config::flag(&Options::allow_ipv4)}}};
  return kOptions;
}

class Dns64Directive final : public resolve::Configured<Options> {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block&) override {
    return options().read(cursor, settings_);
  }
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override {
    Options options = settings_;
    options.hash_seed = context.process.hash_seed;
    options.directive = context.process.names.idOf("dns64");
    chain.add(std::make_unique<resolver::Dns64>(chain, chain.size() + 1, std::move(options), context.process.epochs,
                                                context.process.metrics.scope()));
    return {};
  }
};

}  // namespace

extern const resolve::DirectiveType kDns64Directive{
    .name = "dns64",
    .syntax = "dns64 [PREFIX] [{ prefix PREFIX; translate_all; allow_ipv4 }]",
    .make = resolve::makeDirective<Dns64Directive>,
    .once = true,
    .defaults = [] { return options().defaults(); }};

}  // namespace idetcd::directive
