#include "plugin/minimal/setup.h"

namespace idetcd::plugin {

const resolve::DirectiveType kMinimalDirective{
    .name = "minimal", .syntax = "minimal", .make = resolve::makeDirective<MinimalDirective>};

}  // namespace idetcd::plugin
