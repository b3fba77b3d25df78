// Counts events of this node's name and of its mirror of etcd. Written by the completion thread, but for what is said.
#pragma once

#include <ctime>

#include "base/metrics.h"

namespace idetcd::naming {

// Why a key and its value are no record.
enum class Rejection : uint8_t {
  kKey,            // no name
  kKeyTooLong,     // longer than any name
  kValue,          // nothing that a record says
  kValueTooLarge,  // larger than any record
};
inline constexpr std::array<std::string_view, 4> kRejections{"key", "key_too_long", "value", "value_too_large"};

struct Counters : metrics::Group {
  using Group::Group;

  // The claim.
  metrics::Counter claim_requests{*this, "idetcd_claim_requests_total",
                                  "Requests to etcd while a name was claimed: four for a claim without trouble."};
  metrics::Counter claims{*this, "idetcd_claims_total", "Names that were claimed."};
  metrics::Counter claim_collisions{*this, "idetcd_claim_collisions_total",
                                    "Names that another node took while this one claimed them."};
  metrics::Counter claims_refused{*this, "idetcd_claims_refused_total", "Claims that found no name free."};
  metrics::Gauge spare{*this, "idetcd_spare", "Whether this node waits for a name since all are taken: 1 or 0."};

  // The name while it is held.
  metrics::Counter keepalives{*this, "idetcd_keepalives_total", "Renewals of the lease that etcd has confirmed."};
  metrics::Counter keepalive_failures{*this, "idetcd_keepalive_failures_total",
                                      "Renewals of the lease that had no answer."};
  metrics::Counter leases_lost{*this, "idetcd_leases_lost_total",
                               "Names that were lost since etcd no longer knew the lease."};
  metrics::Counter keys_lost{*this, "idetcd_keys_lost_total", "Names that were lost since their key was deleted."};
  metrics::Counter conflicts{*this, "idetcd_conflicts_total",
                             "Names that were lost since another writer has overwritten their key."};
  metrics::Counter shared_addresses{*this, "idetcd_shared_addresses_total",
                                    "Other names that came to have an address of this node."};
  metrics::Counter address_updates{*this, "idetcd_address_updates_total",
                                   "Times that the addresses of this node have changed and were published anew."};

  // What was confirmed (confirmation.h).
  metrics::Counter confirmations{*this, "idetcd_confirmations_total", "Reads of etcd's revision that were answered."};
  metrics::Counter confirmation_failures{*this, "idetcd_confirmation_failures_total",
                                         "Reads of etcd's revision that were not answered."};
  metrics::Counter beats{*this, "idetcd_beats_total",
                         "Writes of the beat key, by which a watch shows that it is alive."};
  metrics::Counter standstills{*this, "idetcd_standstills_total",
                               "Times that the machine stood still, or its wall clock was set."};
  metrics::Counter clones{*this, "idetcd_clones_total",
                          "Times that another process was found to use the lease of this one."};

  // The mirror.
  metrics::Counter events{*this, "idetcd_watch_events_total", "Changes of names that a watch has delivered."};
  metrics::CountersBy<Rejection, kRejections.size()> rejected{
      *this, "idetcd_rejected_total", "reason", kRejections,
      "Keys and values that are no record; each version of a key counts once."};
  metrics::Counter names_refused{*this, "idetcd_names_refused_total",
                                 "Names that are not served since there are as many as may be."};
  metrics::Gauge names{*this, "idetcd_names", "Names of etcd that are known."};
  metrics::Gauge watch_connected{*this, "idetcd_watch_connected", "Whether a watch is open: 1 or 0."};
  metrics::Gauge watch_changed{*this, "idetcd_watch_changed_timestamp_seconds",
                               "When that has changed, or the node was started, in Unix time."};
  void setWatch(bool connected) {
    watch_connected.set(connected ? 1 : 0);
    watch_changed.set(static_cast<double>(std::time(nullptr)));
  }
  metrics::Gauge watch_lag_revisions{
      *this, "idetcd_watch_lag_revisions",
      "How many revisions the watch is behind the last one that was read from a quorum."};
  metrics::Counter watch_breaks{*this, "idetcd_watch_breaks_total", "Watches that ended."};
  metrics::Counter watch_disorders{*this, "idetcd_watch_disorders_total",
                                   "Watches that ended since etcd delivered a change after a later one."};
  metrics::Counter watches_behind{*this, "idetcd_watches_behind_total",
                                  "Watches that ended since they lacked what was in the store."};
  metrics::Counter snapshots{*this, "idetcd_snapshots_total",
                             "Times that all names were read: at the start, and when the watch cannot be resumed."};
  metrics::Counter restarts_of_store{*this, "idetcd_store_restarts_total",
                                     "Times that etcd's revision went back: another store, or a restored one."};
  metrics::Counter comparisons{*this, "idetcd_comparisons_total", "Comparisons of all names with etcd."};
  metrics::Counter reconciled{*this, "idetcd_repaired_names_total",
                              "Names that a comparison has found different, and repaired."};
  metrics::Gauge relayed{*this, "idetcd_relayed", "Whether this node has its names from a relay: 1 or 0."};
  metrics::Counter relay_failures{*this, "idetcd_relay_failures_total", "Relays that were left, or not reached."};
  metrics::Gauge relay_readers{*this, "idetcd_relay_readers", "Nodes that have their names from this one, a relay."};
  metrics::Counter mass_deletions{*this, "idetcd_mass_deletions_total", "Times that most names vanished at once."};
};

// Of a node's files.
struct FileCounters : metrics::Group {
  using Group::Group;

  // The file of names; written by the thread that saves it.
  metrics::Counter saves{*this, "idetcd_saves_total", "Times that all names were saved to the state directory."};
  metrics::Counter save_failures{*this, "idetcd_save_failures_total", "Times that a file of the state directory could not be written."};
  // Written by the thread that starts the member.
  metrics::Counter saved_refused{*this, "idetcd_saved_refused_total",
                                 "Files of names that were of no use at the start."};
};

}  // namespace idetcd::naming
