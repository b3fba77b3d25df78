#include "directive/local/setup.h"

#include <memory>

#include <fmt/format.h>

#include "config/option_table.h"
#include "directive/local/local.h"

namespace idetcd::directive {

namespace {

struct BlockReader {
  config::DirectiveCursor& cursor;
  bool& prefix;

  Result<void> readPrefix() {
    const auto word = cursor.oneArg();
    if (!word) return tl::unexpected(word.error());
    if (*word != "on" && *word != "off") return cursor.error(fmt::format("'{}' is neither on nor off", *word));
    prefix = *word == "on";
    return {};
  }
};

}  // namespace

Result<void> LocalDirective::read(config::DirectiveCursor& cursor, const resolve::Block&) {
  static constexpr config::OptionTable<BlockReader, 1> kOptions{{
      {"localhost_prefix", "localhost_prefix on|off", &BlockReader::readPrefix},
  }};
  Result<void> head;
  if (const auto words = cursor.args(0, 0); !words) head = tl::unexpected(words.error());
  BlockReader reader{cursor, prefix_};
  return config::readBlock(cursor, reader, kOptions, nullptr, head);
}

Result<void> LocalDirective::addTo(resolve::Chain& chain, const resolve::LoopContext& context) {
  chain.add(
      std::make_unique<Local>(prefix_, context.process.log.named("plugin/local"), context.process.metrics.scope()));
  return {};
}

const resolve::DirectiveType kLocalDirective{
    .name = "local", .syntax = "local [{ localhost_prefix on|off }]", .make = resolve::makeDirective<LocalDirective>};

}  // namespace idetcd::directive
