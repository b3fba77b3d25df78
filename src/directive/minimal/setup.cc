#include "directive/minimal/setup.h"

namespace idetcd::directive {

const resolve::DirectiveType kMinimalDirective{
    .name = "minimal", .syntax = "minimal", .make = resolve::makeDirective<MinimalDirective>};

}  // namespace idetcd::directive
