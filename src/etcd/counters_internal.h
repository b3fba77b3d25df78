// Counters of an etcd client. For etcd/*.cc only. Written by the completion thread; before there is one, by the
// thread that makes the client.
#pragma once

#include "base/metrics.h"

namespace idetcd::etcd {

struct Counters : metrics::Group {
  using Group::Group;

  metrics::Counter endpoint_failures{*this, "idetcd_etcd_endpoint_failures_total",
                                     "Calls and streams that failed since their endpoint of etcd is away."};
  metrics::Counter tls_reloads{*this, "idetcd_etcd_tls_reloads_total",
                               "Changed TLS files for etcd that were taken over."};
  metrics::Counter tls_failures{*this, "idetcd_etcd_tls_failures_total",
                                "TLS files for etcd, first or changed, that could not be used."};
  metrics::Counter authentications{*this, "idetcd_etcd_authentications_total",
                                   "Tokens that etcd has given for user and password."};
  metrics::Counter authentication_failures{*this, "idetcd_etcd_authentication_failures_total",
                                           "Times that etcd has refused user and password."};
};

}  // namespace idetcd::etcd
