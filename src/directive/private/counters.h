// What a RebindingFilter has withheld. Written on its loop's thread.
#pragma once

#include "base/metrics.h"

namespace idetcd::directive {

struct RebindingCounters : metrics::Group {
  using Group::Group;

  metrics::Counter withheld{*this, "idetcd_private_withheld_total",
                            "Answers of upstreams that were withheld because of a private address."};
};

}  // namespace idetcd::directive
