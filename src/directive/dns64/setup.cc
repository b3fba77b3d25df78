#include "directive/dns64/setup.h"

#include "config/arguments.h"
#include "config/option_table.h"
#include "resolver/dns64.h"

namespace idetcd::directive {

namespace {

Result<void> readPrefix(config::DirectiveCursor& cursor, Dns64Settings& settings) {
  const auto word = cursor.oneArg();
  if (!word) return tl::unexpected(word.error());
  const auto prefix = resolver::Nat64Prefix::parse(*word);
  if (!prefix) return cursor.error(prefix.error().message);
  settings.prefix = *prefix;
  return {};
}

// `dns64 [PREFIX]`
Result<void> readHead(config::DirectiveCursor& cursor, Dns64Settings& settings) {
  return cursor.argumentFollows() ? readPrefix(cursor, settings) : Result<void>();
}

}  // namespace

Result<void> Dns64Directive::read(config::DirectiveCursor& cursor, const resolve::Block&) {
  static const config::Options<Dns64Settings> kOptions{
      readHead,
      {{"prefix", "prefix PREFIX, like prefix 64:ff9b::/96", readPrefix},
       {"translate_all", "translate_all", config::flag(&Dns64Settings::translate_all)},
       {"allow_ipv4", "allow_ipv4", config::flag(&Dns64Settings::allow_ipv4)}}};
  return kOptions.read(cursor, settings_);
}

Result<void> Dns64Directive::addTo(resolve::Chain& chain, const resolve::LoopContext& context) {
  resolver::Dns64::Options options{.prefix = settings_.prefix,
                                   .translate_all = settings_.translate_all,
                                   .allow_ipv4 = settings_.allow_ipv4,
                                   .hash_seed = context.process.hash_seed,
                                   .directive = context.process.names.idOf("dns64"),
                                   .nsid = chain.parts.nsid,
                                   .limiter = chain.parts.limiter,
                                   .log = chain.parts.log};
  chain.add(std::make_unique<resolver::Dns64>(chain, chain.size() + 1, std::move(options), context.process.epochs,
                                              context.process.metrics.scope()));
  return {};
}

const resolve::DirectiveType kDns64Directive{.name = "dns64",
                                             .syntax = "dns64 [PREFIX] [{ prefix PREFIX; translate_all; allow_ipv4 }]",
                                             .make = resolve::makeDirective<Dns64Directive>,
                                             .once = true};

}  // namespace idetcd::directive
