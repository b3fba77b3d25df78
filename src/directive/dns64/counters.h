// What a Dns64 has made up. Written on its loop's thread.
#pragma once

#include "base/metrics.h"

namespace idetcd::directive {

struct Dns64Counters : metrics::Group {
  using Group::Group;

  // CoreDNS's name.
  metrics::Counter translated{*this, "coredns_dns64_requests_translated_total",
                              "Queries that were answered with AAAA records made of A records."};
  metrics::Counter reversed{*this, "idetcd_dns64_reverse_total",
                            "Queries for the name of an address of the prefix that were answered with that of the IPv4 "
                            "address within."};
};

}  // namespace idetcd::directive
