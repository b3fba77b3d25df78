// The settings of the directive `xdp`, checked, as plain values. Any thread.
#pragma once

#include "config/option_table.h"
#include "kernel/program.h"

namespace idetcd::directive {

struct XdpSettings {
  kernel::AttachOptions attach;
  bool required = false;
  std::string pin;  // the directory; empty: the program ends with the process

  bool isSameAttachment(const XdpSettings& other) const;
};

const config::Options<XdpSettings>& xdpOptions();

}  // namespace idetcd::directive
