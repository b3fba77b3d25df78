#include <unistd.h>

#include "cli/command.h"
#include "cli/roster.h"
#include "cli/slots.h"
#include "cli/text.h"

namespace idetcd::cli {
namespace {

using nlohmann::json;
using Slots = std::vector<HeldSlot>;

std::string reservedText(const Cluster& cluster) {
  if (cluster.reserved.empty()) return {};
  std::vector<Row> rows{{"ID", "NAME", "NODE", "FREE IN"}};
  for (const HeldSlot& slot : cluster.reserved) {
    rows.push_back({fmt::format("{}", slot.id), escaped(withoutDot(slot.name)), slot.node ? escaped(*slot.node) : "-",
                    slot.lease()});
  }
  return fmt::format("{} of the others wait for nodes that are away\n", cluster.reserved.size()) + table(rows);
}

std::string clusterText(const Cluster& cluster) {
  std::string text = fmt::format("{}: {} of {} names are held{}\n", escaped(cluster.pattern), cluster.slots.size(),
                                 cluster.limit ? fmt::format("{}", *cluster.limit) : "?",
                                 cluster.generation ? fmt::format(", generation {}", *cluster.generation) : "");
  if (cluster.slots.empty()) return text + reservedText(cluster);
  const bool has_places = std::ranges::any_of(cluster.slots, [](const HeldSlot& slot) { return !slot.place.empty(); });
  std::vector<Row> rows{{"ID", "NAME", "ADDRESSES", "NODE", "AGE", "LEASE LEFT", ""}};
  if (has_places) rows.front().insert(rows.front().begin() + 3, "PLACE");
  for (const HeldSlot& slot : cluster.slots) {
    rows.push_back({fmt::format("{}", slot.id), escaped(withoutDot(slot.name)),
                    slot.addressText(), slot.node ? escaped(*slot.node) : "-", slot.age(), slot.lease(), slot.state()});
    if (has_places) rows.back().insert(rows.back().begin() + 3, slot.place.empty() ? "-" : escaped(slot.place));
  }
  return text + table(rows) + reservedText(cluster);
}

// Whether --order says so. The error is a line.
Result<bool> wantsOrderOfPlace(const Arguments& arguments) {
  const auto order = arguments.text("order");
  if (!order || *order == "number") return false;
  if (*order == "topology") return true;
  return fail(fmt::format("--order: '{}' is neither number nor topology", escaped(*order)));
}

// The members for a launcher: exactly the members that are asked for, and, if `own` is given, this node among them.
Reply<Slots> readRoster(const Call& call, size_t* own) {
  const auto timeout = call.arguments.duration("timeout");
  const Deadline deadline = timeout ? Deadline(timeout) : Deadline::once();
  const auto by_place = wantsOrderOfPlace(call.arguments);
  if (!by_place) return failed(by_place.error().message);
  return keepTrying<Slots>(deadline, [&]() -> Reply<Slots> {
    auto cluster = readCluster(call.node, givenPattern(call.arguments), deadline.patience());
    if (!cluster) return tl::unexpected(cluster.error());
    if (*by_place) cluster->orderByPlace();
    auto slots = exactly(*cluster, call.arguments.number("members"));
    if (!slots) return slots;
    if (own != nullptr) {
      const auto index = ownIndex(*slots);
      if (!index) return tl::unexpected(index.error());
      *own = *index;
    }
    return called(std::move(*slots),
                  {.network = call.arguments.text("network"), .by_address = call.arguments.has("addresses")});
  });
}

// The slots of the answer itself.
void orderByPlace(json& said) {
  const auto clusters = said.find("clusters");
  if (clusters == said.end()) return;
  std::vector<Cluster> known = clustersOf(said);
  for (size_t i = 0; i < known.size() && i < clusters->size(); ++i) {
    known[i].orderByPlace();
    json slots = json::array();
    for (HeldSlot& slot : known[i].slots) slots.push_back(std::move(slot.said));
    (*clusters)[i]["slots"] = std::move(slots);
  }
}

CommandResult missing(std::string_view option) {
  return {.code = kFailed, .out = {}, .err = fmt::format("--{} is required\n", option)};
}

// Of all clusters; null: not known.
std::vector<json> generationsOf(const json& said) {
  std::vector<json> generations;
  for (const json& cluster : arrayAt(said, "clusters")) generations.push_back(cluster.value("generation", json()));
  return generations;
}

// As the node knows it, without asking etcd. The error may pass.
Reply<std::vector<json>> readGenerations(const Call& call, const std::optional<std::string>& pattern,
                                         const Deadline& deadline) {
  if (!pattern) {
    const auto status = call.node.get("/v1/status", deadline.patience());
    if (!status) return tl::unexpected(status.error());
    return generationsOf(*status);
  }
  const auto cluster = readClusterStatus(call.node, pattern, deadline.patience());
  if (!cluster) return tl::unexpected(cluster.error());
  return std::vector<json>{cluster->value("generation", json())};
}

// A line for each roster, as of one moment, and one at the beginning. The server may be away for a while: what happens
// meanwhile is one change. Ends with an output that cannot be written.
CommandResult watchMembers(const Call& call, bool by_place) {
  const auto pattern = givenPattern(call.arguments);
  const Deadline deadline(std::nullopt);
  std::optional<std::vector<json>> printed;
  while (true) {
    auto said = keepTrying<json>(deadline, [&]() -> Reply<json> {
      const auto now = readGenerations(call, pattern, deadline);
      if (!now) return tl::unexpected(now.error());
      if (*now == printed || std::ranges::find(*now, json()) != now->end()) return notYet("nothing has changed");
      auto members = readMembers(call.node, pattern, deadline.patience());
      if (!members) return members;
      const std::vector<json> generations = generationsOf(*members);
      if (generations == printed || std::ranges::find(generations, json()) != generations.end())
        return notYet("the roster is older than the generation");
      return members;
    });
    if (!said) return outcomeOf(said.error());
    printed = generationsOf(*said);
    if (by_place) orderByPlace(*said);
    const auto written = print(STDOUT_FILENO, toLine(*said));
    if (!written) return outcomeOf({.message = fmt::format("cannot print: {}", written.error().message)});
  }
}

// Until the generation is above this.
Reply<int64_t> awaitGeneration(const Call& call, uint64_t above, const Deadline& deadline) {
  return keepTrying<int64_t>(deadline, [&]() -> Reply<int64_t> {
    const auto cluster = readClusterStatus(call.node, givenPattern(call.arguments), deadline.patience());
    if (!cluster) return tl::unexpected(cluster.error());
    const auto generation = cluster->value("generation", json());
    if (!generation.is_number_integer()) return notYet("the generation is not known yet");
    const auto now = generation.get<int64_t>();
    if (now < 0 || static_cast<uint64_t>(now) <= above)
      return notYet(fmt::format("the generation is {}", now));
    return now;
  });
}

}  // namespace

std::string membersText(const json& said, bool by_place) {
  std::string text;
  for (Cluster& cluster : clustersOf(said)) {
    if (by_place) cluster.orderByPlace();
    if (!text.empty()) text += '\n';
    text += clusterText(cluster);
  }
  return text;
}

CommandResult members(const Call& call) {
  const auto by_place = wantsOrderOfPlace(call.arguments);
  if (!by_place) return outcomeOf({.message = by_place.error().message});
  if (call.arguments.has("watch")) return watchMembers(call, *by_place);
  auto said = readMembers(call.node, givenPattern(call.arguments), LocalNode::kReadPatience);
  if (!said) return outcomeOf(said.error());
  if (!call.wantsJson()) return {.code = kGood, .out = membersText(*said, *by_place), .err = {}};
  if (*by_place) orderByPlace(*said);
  return {.code = kGood, .out = toLine(*said), .err = {}};
}

CommandResult wait(const Call& call) {
  const auto count = call.arguments.number("members");
  const auto above = call.arguments.number("generation-above");
  if (!count && !above) return missing("members");
  const Deadline deadline(call.arguments.duration("timeout"));
  if (above) {
    auto generation = awaitGeneration(call, *above, deadline);
    if (!generation) {
      if (generation.error().may_pass) generation.error().code = kNo;
      return outcomeOf(generation.error());
    }
    if (!count) {
      const std::string text = call.wantsJson() ? toLine({{"generation", *generation}}) : fmt::format("{}\n", *generation);
      return {.code = kGood, .out = text, .err = {}};
    }
  }
  auto slots = keepTrying<Slots>(deadline, [&]() -> Reply<Slots> {
    const auto cluster = readCluster(call.node, givenPattern(call.arguments), deadline.patience());
    if (!cluster) return tl::unexpected(cluster.error());
    const auto servers = serversOf(call.node, *cluster);
    if (!servers) return tl::unexpected(servers.error());
    return atLeastResolved(*cluster, *count, *servers, deadline);
  });
  if (!slots) {
    if (slots.error().may_pass) slots.error().code = kNo;
    return outcomeOf(slots.error());
  }
  if (!call.wantsJson()) return {.code = kGood, .out = hostfile(*slots, std::nullopt), .err = {}};
  json array = json::array();
  for (const HeldSlot& slot : *slots) array.push_back(slot.said);
  return {.code = kGood, .out = toLine(array), .err = {}};
}

CommandResult tfConfig(const Call& call) {
  const auto role = call.arguments.text("role");
  const auto port = call.arguments.number("port");
  if (!role) return missing("role");
  if (!port) return missing("port");
  size_t own = 0;
  const auto slots = readRoster(call, &own);
  if (!slots) return outcomeOf(slots.error());
  return {.code = kGood, .out = toLine(tensorflowConfig(*slots, own, *role, *port)), .err = {}};
}

CommandResult printHostfile(const Call& call) {
  const auto slots = readRoster(call, nullptr);
  if (!slots) return outcomeOf(slots.error());
  const auto count = call.arguments.number("slots");
  return {.code = kGood,
          .out = call.wantsJson() ? toLine(hostfileAsJson(*slots, count)) : hostfile(*slots, count),
          .err = {}};
}

CommandResult torchrunEnvironment(const Call& call) {
  const auto port = call.arguments.number("port");
  if (!port) return missing("port");
  size_t own = 0;
  const auto slots = readRoster(call, &own);
  if (!slots) return outcomeOf(slots.error());
  const auto variables = torchrunVariables(*slots, own, *port);
  if (!call.wantsJson()) return {.code = kGood, .out = asEnvironment(variables), .err = {}};
  json object = json::object();
  for (const auto& [name, value] : variables) object[name] = value;
  return {.code = kGood, .out = toLine(object), .err = {}};
}

}  // namespace idetcd::cli
