#include "directive/workers/setup.h"

#include <fmt/format.h>

#include "base/text.h"

namespace idetcd::directive {

Result<void> WorkersDirective::read(config::DirectiveCursor& cursor, const resolve::Block&) {
  constexpr int64_t kMost = 256;
  const auto argument = cursor.oneArg();
  if (!argument) return tl::unexpected(argument.error());
  const auto number = parseNumber<int64_t>(*argument);
  if (!number || *number < 1 || *number > kMost) {
    return cursor.error(fmt::format("workers must be a number from 1 to {}: '{}'", kMost, *argument));
  }
  count_ = static_cast<size_t>(*number);
  return cursor.finish();
}

const resolve::DirectiveType kWorkersDirective{
    .name = "workers", .syntax = "workers N", .make = resolve::makeDirective<WorkersDirective>};

}  // namespace idetcd::directive
