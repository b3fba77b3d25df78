#include "plugin/debug/setup.h"

namespace idetcd::plugin {

Result<void> DebugDirective::share(resolve::Process& process, const resolve::Block&) {
  log_ = process.log;
  return {};
}

const resolve::DirectiveType kDebugDirective{
    .name = "debug", .syntax = "debug", .make = resolve::makeDirective<DebugDirective>};

}  // namespace idetcd::plugin
