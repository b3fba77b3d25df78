// Responses that a ResponseLimiter let pass and held back. Written on its loop's thread.
#pragma once

#include "base/metrics.h"

namespace idetcd::directive {

struct RrlCounters : metrics::Group {
  using Group::Group;

  metrics::Counter requests_exceeded{*this, "idetcd_rrl_requests_exceeded_total",
                                     "Queries over UDP beyond what their network may ask."};
  metrics::Counter responses_exceeded{*this, "idetcd_rrl_responses_exceeded_total",
                                      "Responses over UDP beyond what their network may get."};
  metrics::Counter dropped{*this, "idetcd_rrl_dropped_total", "Of these two, those that were not answered."};
  metrics::Counter slipped{*this, "idetcd_rrl_slipped_total",
                           "Of the responses, those that were sent empty, with TC, so that the client asks over TCP."};
};

}  // namespace idetcd::directive
