// Answers of a Local. Written on its loop's thread.
#pragma once

#include "base/metrics.h"

namespace idetcd::directive {

struct LocalCounters : metrics::Group {
  using Group::Group;

  // CoreDNS's name.
  metrics::Counter intercepted{*this, "coredns_local_localhost_requests_total",
                               "Queries for localhost below another name, and for names below localhost."};
};

}  // namespace idetcd::directive
