#include "directive/loadbalance/setup.h"

#include <fmt/format.h>

#include "config/option_table.h"

namespace idetcd::directive {

namespace {

struct BlockReader {
  config::DirectiveCursor& cursor;
  std::vector<IpNetwork>& preferred;

  Result<void> readHead() {
    const std::vector<std::string> policy = cursor.remainingArgs();
    if (!policy.empty() && policy.front() != "round_robin") {
      return cursor.error(fmt::format("loadbalance policy '{}' is not supported", policy.front()));
    }
    if (policy.size() > 1) return cursor.argError();
    return {};
  }

  Result<void> readPrefer() {
    const auto words = cursor.args(1);
    if (!words) return tl::unexpected(words.error());
    for (const std::string& word : *words) {
      const auto network = IpNetwork::parse(word);
      if (!network) return cursor.error(network.error().message);
      preferred.push_back(*network);
    }
    return {};
  }
};

}  // namespace

Result<void> LoadbalanceDirective::read(config::DirectiveCursor& cursor, const resolve::Block&) {
  static constexpr config::OptionTable<BlockReader, 1> kOptions{{
      {"prefer", "prefer NETWORKS..., like prefer 10.0.0.0/8", &BlockReader::readPrefer},
  }};
  BlockReader reader{cursor, preferred_};
  const auto head = reader.readHead();
  return config::readBlock(cursor, reader, kOptions, nullptr, head);
}

const resolve::DirectiveType kLoadbalanceDirective{.name = "loadbalance",
                                                   .syntax = "loadbalance [round_robin] [{ prefer NETWORKS... }]",
                                                   .make = resolve::makeDirective<LoadbalanceDirective>};

}  // namespace idetcd::directive
