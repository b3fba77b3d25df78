#include "cli/slots.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "cli/text.h"

namespace idetcd::cli {
namespace {

std::optional<int64_t> integerAt(const nlohmann::json& object, std::string_view key) {
  const auto number = numberAt(object, key);
  if (!number || std::abs(*number) > 9e15) return std::nullopt;
  return static_cast<int64_t>(*number);
}

}  // namespace

Slot Slot::of(const nlohmann::json& said) {
  Slot slot{.id = integerAt(said, "id").value_or(0),
            .name = textAt(said, "name").value_or(""),
            .addresses = {},
            .node = textAt(said, "node"),
            .age_seconds = numberAt(said, "age_seconds"),
            .lease_left_seconds = numberAt(said, "lease_left_seconds"),
            .permanent = flagAt(said, "permanent"),
            .drained = flagAt(said, "drained"),
            .own = flagAt(said, "own"),
            .said = said};
  for (const nlohmann::json& address : arrayAt(said, "addresses")) {
    if (address.is_string()) slot.addresses.push_back(address.get<std::string>());
  }
  return slot;
}

std::string Slot::state() const {
  std::vector<std::string_view> words;
  if (own) words.emplace_back("this node");
  if (drained) words.emplace_back("drained");
  if (permanent) words.emplace_back("permanent");
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string Slot::lease() const {
  if (permanent) return "none";
  return lease_left_seconds ? humanSeconds(*lease_left_seconds) : "-";
}

std::vector<Slot> Cluster::undrained() const {
  std::vector<Slot> found;
  std::copy_if(slots.begin(), slots.end(), std::back_inserter(found), [](const Slot& slot) { return !slot.drained; });
  return found;
}

std::vector<Cluster> clustersOf(const nlohmann::json& members) {
  std::vector<Cluster> found;
  for (const nlohmann::json& said : arrayAt(members, "clusters")) {
    Cluster cluster{.pattern = textAt(said, "pattern").value_or(""), .limit = integerAt(said, "limit"), .slots = {}};
    for (const nlohmann::json& slot : arrayAt(said, "slots")) cluster.slots.push_back(Slot::of(slot));
    std::stable_sort(cluster.slots.begin(), cluster.slots.end(),
                     [](const Slot& a, const Slot& b) { return a.id < b.id; });
    found.push_back(std::move(cluster));
  }
  return found;
}

Reply<Cluster> onlyCluster(const nlohmann::json& members) {
  std::vector<Cluster> all = clustersOf(members);
  if (all.empty()) return failed("the server has no cluster: its Corefile has no idetcd with a pattern");
  if (all.size() == 1) return std::move(all.front());
  std::vector<std::string> patterns;
  patterns.reserve(all.size());
  for (const Cluster& cluster : all) patterns.push_back(escaped(cluster.pattern));
  return failed(fmt::format("there are several clusters: choose one with --pattern: {}", fmt::join(patterns, " ")));
}

}  // namespace idetcd::cli
