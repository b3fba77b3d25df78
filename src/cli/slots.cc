#include "cli/slots.h"

#include <cmath>
#include <iterator>

#include "base/text.h"

namespace idetcd::cli {

namespace {

std::optional<int64_t> integerAt(const nlohmann::json& object, std::string_view key) {
  const auto number = numberAt(object, key);
  if (!number || std::abs(*number) > 9e15) return std::nullopt;
  return static_cast<int64_t>(*number);
}

// Whether a shell, systemd and mpirun take the word for what it is.
bool isPlain(std::string_view word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return isDigit(c) || (lowerCase(c) >= 'a' && lowerCase(c) <= 'z') || c == '-' || c == '.' || c == '_' || c == ':';
  });
}

// A word that a POSIX shell takes as it is.
std::string quoted(const std::string& word) {
  if (isPlain(word)) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? R"('\'')" : std::string(1, c);
  return text + "'";
}

}  // namespace

HeldSlot HeldSlot::of(const nlohmann::json& said) {
  HeldSlot slot{.id = integerAt(said, "id").value_or(0),
                .name = textAt(said, "name").value_or(""),
                .addresses = {},
                .networks = {},
                .node = textAt(said, "node"),
                .place = textAt(said, "topology").value_or(""),
                .age_seconds = numberAt(said, "age_seconds"),
                .age_at_least_seconds = numberAt(said, "age_at_least_seconds"),
                .lease_left_seconds = numberAt(said, "lease_left_seconds"),
                .permanent = flagAt(said, "permanent"),
                .drained = flagAt(said, "drained"),
                .sick = flagAt(said, "sick"),
                .foreign = flagAt(said, "foreign"),
                .reserved = flagAt(said, "reserved"),
                .own = flagAt(said, "own"),
                .said = said};
  slot.addresses = textsAt(said, "addresses");
  const auto networks = said.find("networks");
  if (networks == said.end() || !networks->is_object()) return slot;
  for (const auto& [network, there] : networks->items())
    slot.networks.push_back({network, textAt(there, "name").value_or(""), textsAt(there, "addresses")});
  return slot;
}

std::string HeldSlot::addressText() const {
  std::string text = fmt::format("{}", fmt::join(addresses, " "));
  for (const HeldNetwork& one : networks)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", one.network, fmt::join(one.addresses, " "));
  return text.empty() ? "-" : escaped(text);
}

std::string HeldSlot::state() const {
  std::vector<std::string_view> words;
  if (own) words.emplace_back("this node");
  if (drained) words.emplace_back(sick ? "sick" : own ? "drained" : "drained or sick");
  if (addresses.empty() && !drained && !reserved) words.emplace_back("without a valid record");
  if (permanent) words.emplace_back("permanent");
  if (foreign) words.emplace_back("of another pattern");
  if (reserved) words.emplace_back("reserved for its node, which is away");
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string HeldSlot::age() const {
  if (age_seconds) return humanSeconds(*age_seconds);
  return age_at_least_seconds ? "> " + roughSeconds(*age_at_least_seconds) : "-";
}

std::string HeldSlot::lease() const {
  if (permanent) return "none";
  return lease_left_seconds ? humanSeconds(*lease_left_seconds) : "-";
}

void Cluster::orderByPlace() {
  const auto keyOf = [](const HeldSlot& slot) {
    std::vector<std::string_view> parts;
    for (std::string_view rest = slot.place; !rest.empty();) {
      const size_t end = std::min(rest.find('/'), rest.size());
      parts.push_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return std::tuple(parts.empty(), std::move(parts), slot.id);
  };
  std::ranges::stable_sort(slots, {}, keyOf);
}

std::vector<HeldSlot> Cluster::usable() const {
  std::vector<HeldSlot> found;
  std::copy_if(slots.begin(), slots.end(), std::back_inserter(found),
               [](const HeldSlot& slot) { return slot.isUsable(); });
  return found;
}

std::vector<Cluster> clustersOf(const nlohmann::json& members) {
  std::vector<Cluster> found;
  for (const nlohmann::json& said : arrayAt(members, "clusters")) {
    Cluster cluster{.pattern = textAt(said, "pattern").value_or(""),
                    .limit = integerAt(said, "limit"),
                    .generation = integerAt(said, "generation"),
                    .slots = {},
                    .reserved = {},
                    .servers = textsAt(said, "servers")};
    for (const nlohmann::json& slot : arrayAt(said, "slots")) cluster.slots.push_back(HeldSlot::of(slot));
    for (const nlohmann::json& slot : arrayAt(said, "reserved")) cluster.reserved.push_back(HeldSlot::of(slot));
    std::ranges::stable_sort(cluster.slots, {}, &HeldSlot::id);
    std::ranges::stable_sort(cluster.reserved, {}, &HeldSlot::id);
    found.push_back(std::move(cluster));
  }
  return found;
}

std::string patternsOf(const nlohmann::json& said) {
  std::vector<std::string> patterns;
  for (const nlohmann::json& cluster : arrayAt(said, "clusters"))
    patterns.push_back(escaped(textAt(cluster, "pattern").value_or("-")));
  return fmt::format("{}", fmt::join(patterns, " "));
}

Failure unknownPattern(const std::string& pattern, const nlohmann::json& said) {
  if (arrayAt(said, "clusters").empty()) return {.message = std::string(kNoCluster)};
  return {.message = fmt::format("the server has no pattern {}, but: {}", escaped(pattern), patternsOf(said))};
}

Reply<Cluster> onlyCluster(const nlohmann::json& members) {
  std::vector<Cluster> all = clustersOf(members);
  if (all.empty()) return failed(std::string(kNoCluster));
  if (all.size() == 1) return std::move(all.front());
  return failed(fmt::format("there are several clusters: choose one with --pattern: {}", patternsOf(members)));
}

Reply<std::vector<HeldSlot>> called(std::vector<HeldSlot> slots, const Calling& calling) {
  for (HeldSlot& slot : slots) {
    const std::string node(withoutDot(slot.name));
    if (calling.network) {
      const auto found = std::ranges::find(slot.networks, *calling.network, &HeldNetwork::network);
      if (found == slot.networks.end())
        return notYet(fmt::format("{} is not in the network {}", escaped(node), escaped(*calling.network)));
      slot.name = found->name;
      slot.addresses = found->addresses;
    }
    if (!calling.by_address) continue;
    if (slot.addresses.empty()) return notYet(fmt::format("{} has no address", escaped(node)));
    slot.name = slot.addresses.front();
  }
  return slots;
}

Reply<size_t> ownIndex(const std::vector<HeldSlot>& slots) {
  const auto own = std::find_if(slots.begin(), slots.end(), [](const HeldSlot& slot) { return slot.own; });
  if (own == slots.end()) return notYet("this node has no name in the cluster, or is drained");
  return static_cast<size_t>(own - slots.begin());
}

nlohmann::json tensorflowConfig(const std::vector<HeldSlot>& slots, size_t own, const std::string& role,
                                uint64_t port) {
  nlohmann::json addresses = nlohmann::json::array();
  for (const HeldSlot& slot : slots) {
    const bool is_ipv6 = slot.name.find(':') != std::string::npos;
    addresses.push_back(fmt::format("{}{}{}:{}", is_ipv6 ? "[" : "", withoutDot(slot.name), is_ipv6 ? "]" : "", port));
  }
  return {{"cluster", {{role, std::move(addresses)}}}, {"task", {{"type", role}, {"index", own}}}};
}

std::string hostfile(const std::vector<HeldSlot>& slots, std::optional<uint64_t> count) {
  std::string text;
  for (const HeldSlot& slot : slots) {
    text += escaped(withoutDot(slot.name));
    if (count) text += fmt::format(" slots={}", *count);
    text += '\n';
  }
  return text;
}

nlohmann::json hostfileAsJson(const std::vector<HeldSlot>& slots, std::optional<uint64_t> count) {
  nlohmann::json hosts = nlohmann::json::array();
  for (const HeldSlot& slot : slots) {
    nlohmann::json host = {{"name", withoutDot(slot.name)}};
    if (count) host["slots"] = *count;
    hosts.push_back(std::move(host));
  }
  return hosts;
}

std::vector<std::pair<std::string, std::string>> torchrunVariables(const std::vector<HeldSlot>& slots, size_t own,
                                                                   uint64_t port) {
  assert(own < slots.size());
  return {{"RANK", std::to_string(own)},
          {"WORLD_SIZE", std::to_string(slots.size())},
          {"MASTER_ADDR", std::string(withoutDot(slots.front().name))},
          {"MASTER_PORT", std::to_string(port)}};
}

std::string asEnvironment(const std::vector<std::pair<std::string, std::string>>& variables) {
  std::string text;
  for (const auto& [name, value] : variables) text += fmt::format("{}={}\n", name, quoted(value));
  return text;
}

}  // namespace idetcd::cli
