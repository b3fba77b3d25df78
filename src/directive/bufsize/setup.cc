#include "directive/bufsize/setup.h"

#include <fmt/format.h>

#include "base/text.h"

namespace idetcd::directive {

Result<void> BufsizeDirective::read(config::DirectiveCursor& cursor, const resolve::Block&) {
  const auto arguments = cursor.args(0, 1);
  if (!arguments) return tl::unexpected(arguments.error());
  bytes_ = dns::kDefaultUdpPayload;
  if (!arguments->empty()) {
    const auto size = parseNumber<int64_t>(arguments->front());
    if (!size || *size < 512 || *size > 4096) {
      return cursor.error(fmt::format("bufsize must be within 512 - 4096: {}", arguments->front()));
    }
    bytes_ = static_cast<size_t>(*size);
  }
  return cursor.finish();
}

Result<void> BufsizeDirective::addTo(resolve::Chain& chain, const resolve::LoopContext&) {
  chain.parts.bufsize = bytes_;
  return {};
}

const resolve::DirectiveType kBufsizeDirective{
    .name = "bufsize", .syntax = "bufsize [SIZE], from 512 to 4096", .make = resolve::makeDirective<BufsizeDirective>};

}  // namespace idetcd::directive
