// The directive `minimal`: answers carry what was asked for and no more.
#pragma once

#include "resolve/flag_directive.h"

namespace idetcd::directive {

class MinimalDirective final : public resolve::FlagDirective {};

extern const resolve::DirectiveType kMinimalDirective;

}  // namespace idetcd::directive
