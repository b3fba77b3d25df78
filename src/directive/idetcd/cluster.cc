#include "directive/idetcd/cluster.h"

#include "naming/saved_names.h"

namespace idetcd::directive {

ClusterMetrics::ClusterMetrics(const metrics::Scope& scope, const naming::Member& member,
                               const records::RecordStore& store, std::chrono::seconds lease)
    : owned_(scope, "idetcd_owned", "Whether this node owns a name: 1 or 0.",
             [&member] { return member.ownership() ? 1.0 : 0.0; }),
      token_(scope, "idetcd_token", "The fencing token of the name that this node owns; 0: it owns none.",
             [&member] {
               const auto ownership = member.ownership();
               return ownership ? static_cast<double>(ownership->token) : 0;
             }),
      generation_(scope, "idetcd_generation", "The generation of the membership, which rises with each change; 0: not known.",
                  [&store] { return static_cast<double>(store.generation()); }),
      lease_(scope, "idetcd_lease_remaining_seconds",
             "How long the name is still owned if etcd answers no more; 0: none is owned.",
             [&member] {
               const auto ownership = member.ownership();
               return ownership ? std::chrono::duration<double>(ownership->deadline - BootClock::now()).count() : 0;
             }),
      moving_(scope, "idetcd_moving", "Whether the cluster moves to another store: 1 or 0.",
              [&member] { return member.second() ? 1.0 : 0.0; }),
      moved_(scope, "idetcd_moved",
             "Whether this node has its name in the store to which the cluster moves, too: 1 or 0.",
             [&member] {
               const auto second = member.second();
               return second && second->needed && second->owned ? 1.0 : 0.0;
             }),
      fresh_(scope, "idetcd_names_fresh", "Whether answers are not marked as stale: 1 or 0.",
             [&store] { return store.freshness() == records::Freshness::kFresh ? 1.0 : 0.0; }),
      lag_(scope, "idetcd_names_age_seconds",
           "How old the last moment is as of which all names were known; infinite: there was none.",
           [&store, lease] {
             const auto until = store.lastFreshUntil();
             if (until == BootClock::time_point()) return std::numeric_limits<double>::infinity();
             return std::chrono::duration<double>(BootClock::now() - (until - lease)).count();
           }),
      table_bytes_(scope, "idetcd_table_bytes",
                   "The size of the table of names, with that of addresses: as large as they were at their largest.",
                   [&store] { return static_cast<double>(store.bytes()); }),
      drained_(scope, "idetcd_drained", "Whether an operator has taken the addresses of this node out of DNS: 1 or 0.",
               [&member] { return member.isDrained() ? 1.0 : 0.0; }),
      sick_(scope, "idetcd_check_failed", "Whether a check of this machine fails: 1 or 0.",
            [&member] { return member.health().sick.empty() ? 0.0 : 1.0; }),
      out_(scope, "idetcd_check_out",
           "Whether this node's name has no address, or none is held, by its checks: 1 or 0.",
           [&member] { return member.health().out ? 1.0 : 0.0; }) {}

bool ClusterStore::isReady() const {
  if (!peers) return true;
  std::vector<std::string> endpoints = peers->endpoints();
  if (endpoints.empty()) return false;
  client->setEndpoints(std::move(endpoints));
  return true;
}

peers::PeerGroup::Membership ClusterStore::membership() const {
  using Membership = peers::PeerGroup::Membership;
  return peers ? peers->membership().value_or(Membership{}) : Membership{};
}

std::vector<ClusterStore*> Cluster::stores() const {
  std::vector<ClusterStore*> stores{first.get()};
  if (second) stores.push_back(second.get());
  return stores;
}

std::string Cluster::status() const {
  const std::string& pattern = settings.pattern.text();
  if (settings.observe) return fmt::format("observes {}", pattern);
  const auto owned = member->ownership();
  if (!owned) return fmt::format("no name of {}", pattern);
  return owned->name.substr(0, owned->name.size() - 1);  // as host names are written
}

void Cluster::start() {
  if (!first->isReady()) return;
  if (!std::exchange(first->started, true)) {
    const auto [number, token_base] = first->membership();
    member->found(number, token_base);
    member->start();
  }
  if (!second || !second->isReady() || std::exchange(second->started, true)) return;
  member->startSecond(second->membership().token_base);
}

// Whoever goes on with the second store alone owns names that nodes of the first one alone would own, too: so all names
// are to be in both.
Result<void> Cluster::checkMoved() const {
  const std::string to = settings.movesTo();
  const auto moved = member->second();
  if (member->ownership() && !(moved && moved->needed))
    return fail(fmt::format("this node's name is not held in the store of `{}` yet: see idetcd status", to));
  for (const ClusterStore* store : stores()) {
    if (store->records->freshness() != records::Freshness::kFresh)
      return fail("the names of both stores are not known to be current: see idetcd status");
  }
  std::vector<std::string> missing;
  naming::forEachName(*first->records, [&](const naming::SavedName& name) {
    const auto wire = name.name.wire();
    const records::RecordTable& table = second->records->table();
    if (!settings.pattern.recognise(name.name.toString())) return;
    records::EpochDomain::Reader reader(table.epochs());
    const records::ReadSection section(reader);
    const records::Entry* entry = table.find(hashBytes(wire.data(), wire.size(), table.seed()), wire);
    if (entry == nullptr || !entry->isHeld()) missing.push_back(name.name.toString());
  });
  if (missing.empty()) return {};
  constexpr size_t kMost = 5;
  const size_t count = missing.size();
  missing.resize(std::min(count, kMost));
  return fail(
      fmt::format("{} of the names are not in the store of `{}` yet: {}{}; their nodes have to be given both first",
                  count, to, fmt::join(missing, " "), count > kMost ? " …" : ""));
}

}  // namespace idetcd::directive
