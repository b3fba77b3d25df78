#include "directive/dns64/setup.h"

#include <memory>
#include <string>
#include <utility>

#include "config/arguments.h"
#include "config/option_table.h"
#include "resolver/dns64.h"

namespace idetcd::directive {

namespace {

class Dns64Parser {
 public:
  explicit Dns64Parser(config::DirectiveCursor& cursor) : cursor_(cursor) {}

  // `dns64 [PREFIX] { … }`
  Result<Dns64Settings> parse() {
    const auto head = readHead();
    static constexpr config::OptionTable<Dns64Parser, 3> kOptions{{
        {"prefix", "prefix PREFIX, like prefix 64:ff9b::/96", &Dns64Parser::readPrefix},
        {"translate_all", "translate_all", &Dns64Parser::readTranslateAll},
        {"allow_ipv4", "allow_ipv4", &Dns64Parser::readAllowIpv4},
    }};
    if (auto read = config::readBlock(cursor_, *this, kOptions, nullptr, head); !read) {
      return tl::unexpected(read.error());
    }
    return settings_;
  }

 private:
  Result<void> readHead() {
    const auto words = cursor_.args(0, 1);
    if (!words) return tl::unexpected(words.error());
    return words->empty() ? Result<void>() : setPrefix(words->front());
  }

  Result<void> setPrefix(const std::string& text) {
    const auto prefix = resolver::Nat64Prefix::parse(text);
    if (!prefix) return cursor_.error(prefix.error().message);
    settings_.prefix = *prefix;
    return {};
  }

  Result<void> readPrefix() {
    const auto word = cursor_.oneArg();
    return word ? setPrefix(*word) : tl::unexpected(word.error());
  }
  Result<void> readTranslateAll() { return config::readFlag(cursor_, settings_.translate_all); }
  Result<void> readAllowIpv4() { return config::readFlag(cursor_, settings_.allow_ipv4); }

  config::DirectiveCursor& cursor_;
  Dns64Settings settings_;
};

}  // namespace

Result<void> Dns64Directive::read(config::DirectiveCursor& cursor, const resolve::Block&) {
  auto settings = Dns64Parser(cursor).parse();
  if (!settings) return tl::unexpected(settings.error());
  settings_ = *settings;
  return {};
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
