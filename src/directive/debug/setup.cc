#include "directive/debug/setup.h"

namespace idetcd::directive {

Result<void> DebugDirective::prepare(resolve::Process& process, const resolve::Block&) {
  log_ = process.log;
  return {};
}

const resolve::DirectiveType kDebugDirective{
    .name = "debug", .syntax = "debug", .make = resolve::makeDirective<DebugDirective>};

}  // namespace idetcd::directive
