// Each counter of a member under the name by which the registry knows it. That they count what they say is shown where
// it happens: beside claims, mirror and confirmation.
#include "naming/counters.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/metric_values.h"

namespace idetcd::naming {
namespace {

const std::vector<std::pair<std::string, metrics::Counter Counters::*>> kCounters{
    {"claim_requests", &Counters::claim_requests},
    {"claims", &Counters::claims},
    {"claim_collisions", &Counters::claim_collisions},
    {"claims_refused", &Counters::claims_refused},
    {"keepalives", &Counters::keepalives},
    {"keepalive_failures", &Counters::keepalive_failures},
    {"leases_lost", &Counters::leases_lost},
    {"keys_lost", &Counters::keys_lost},
    {"conflicts", &Counters::conflicts},
    {"shared_addresses", &Counters::shared_addresses},
    {"address_updates", &Counters::address_updates},
    {"confirmations", &Counters::confirmations},
    {"confirmation_failures", &Counters::confirmation_failures},
    {"beats", &Counters::beats},
    {"standstills", &Counters::standstills},
    {"clones", &Counters::clones},
    {"watch_events", &Counters::events},
    {"names_refused", &Counters::names_refused},
    {"watch_breaks", &Counters::watch_breaks},
    {"watch_disorders", &Counters::watch_disorders},
    {"watches_behind", &Counters::watches_behind},
    {"snapshots", &Counters::snapshots},
    {"store_restarts", &Counters::restarts_of_store},
    {"comparisons", &Counters::comparisons},
    {"repaired_names", &Counters::reconciled},
    {"relay_failures", &Counters::relay_failures},
    {"mass_deletions", &Counters::mass_deletions},
};

const std::vector<std::pair<std::string, metrics::Counter FileCounters::*>> kFileCounters{
    {"saves", &FileCounters::saves},
    {"save_failures", &FileCounters::save_failures},
    {"saved_refused", &FileCounters::saved_refused},
};

const std::vector<std::pair<std::string, metrics::Gauge Counters::*>> kGauges{
    {"spare", &Counters::spare},
    {"names", &Counters::names},
    {"watch_connected", &Counters::watch_connected},
    {"watch_lag_revisions", &Counters::watch_lag_revisions},
    {"watch_changed_timestamp_seconds", &Counters::watch_changed},
    {"relayed", &Counters::relayed},
    {"relay_readers", &Counters::relay_readers},
};

TEST(NamingCounters, AreKnownByTheirNames) {
  const metrics::Registry registry;
  Counters counters(registry.scope().with("pattern", "worker{{.ID}}.x."));
  FileCounters files(registry.scope().with("pattern", "worker{{.ID}}.x."));
  std::map<std::string, double> expected;
  for (const auto& [name, counter] : kCounters) {
    (counters.*counter).add(expected.size() + 1);
    expected["idetcd_" + name + "_total{pattern=\"worker{{.ID}}.x.\"}"] = static_cast<double>(expected.size() + 1);
  }
  for (const auto& [name, counter] : kFileCounters) {
    (files.*counter).add(expected.size() + 1);
    expected["idetcd_" + name + "_total{pattern=\"worker{{.ID}}.x.\"}"] = static_cast<double>(expected.size() + 1);
  }
  for (const auto& [name, gauge] : kGauges) {
    (counters.*gauge).set(static_cast<double>(expected.size() + 1));
    expected["idetcd_" + name + "{pattern=\"worker{{.ID}}.x.\"}"] = static_cast<double>(expected.size() + 1);
  }
  for (size_t i = 0; i < kRejections.size(); ++i) {
    counters.rejected.add(static_cast<Rejection>(i), expected.size() + 1);
    expected["idetcd_rejected_total{pattern=\"worker{{.ID}}.x.\",reason=\"" + std::string(kRejections.at(i)) + "\"}"] =
        static_cast<double>(expected.size() + 1);
  }
  EXPECT_EQ(expected.size(), kCounters.size() + kFileCounters.size() + kGauges.size() + kRejections.size());
  EXPECT_EQ(test_support::valuesOf(registry), expected) << "all of them, and no other";
}

}  // namespace
}  // namespace idetcd::naming
