#include <map>
#include <string>

#include <gtest/gtest.h>

#include "etcd/counters_internal.h"
#include "support/metric_values.h"

namespace idetcd::etcd {
namespace {

TEST(EtcdCounters, AreKnownByTheirNames) {
  const metrics::Registry registry;
  Counters counters(registry.scope());
  counters.endpoint_failures.add(1);
  counters.tls_reloads.add(2);
  counters.tls_failures.add(3);
  counters.authentications.add(4);
  counters.authentication_failures.add(5);
  EXPECT_EQ(test_support::valuesOf(registry), (std::map<std::string, double>{
                                                  {"idetcd_etcd_endpoint_failures_total", 1},
                                                  {"idetcd_etcd_tls_reloads_total", 2},
                                                  {"idetcd_etcd_tls_failures_total", 3},
                                                  {"idetcd_etcd_authentications_total", 4},
                                                  {"idetcd_etcd_authentication_failures_total", 5},
                                              }));
}

}  // namespace
}  // namespace idetcd::etcd
