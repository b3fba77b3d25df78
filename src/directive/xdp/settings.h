// What a Corefile says with the directive `xdp`, checked and as plain values. Any thread.
#pragma once

#include <string>

#include "base/result.h"
#include "config/directive_cursor.h"
#include "kernel/program.h"

namespace idetcd::directive {

struct XdpSettings {
  kernel::AttachOptions attach;
  bool required = false;
  std::string pin;  // the directory; empty: the program ends with the process

  bool isSameAttachment(const XdpSettings& other) const;
};

// `cursor` stands at the directive's name. Touches nothing but the words.
Result<XdpSettings> parseXdpSettings(config::DirectiveCursor& cursor);

}  // namespace idetcd::directive
