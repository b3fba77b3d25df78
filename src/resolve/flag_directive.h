// A directive that is there or not: no arguments, no options.
#pragma once

#include "config/arguments.h"
#include "resolve/directive.h"

namespace idetcd::resolve {

class FlagDirective : public Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const Block&) override {
    bool flag = false;
    if (auto read = config::readFlag(cursor, flag); !read) return read;
    return cursor.finish();
  }
};

}  // namespace idetcd::resolve
