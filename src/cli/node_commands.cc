#include <ctime>

#include "cli/command.h"
#include "cli/roster.h"
#include "cli/slots.h"
#include "cli/text.h"

namespace idetcd::cli {
namespace {

using nlohmann::json;

std::string joined(const json& array) {
  std::vector<std::string> words;
  for (const json& each : array) {
    if (each.is_string()) words.push_back(escaped(each.get<std::string>()));
  }
  return words.empty() ? "-" : fmt::format("{}", fmt::join(words, " "));
}

// Of the names in etcd some may be of no slot.
std::string namesText(const json& cluster) {
  const auto all = numberAt(cluster, "names_in_etcd");
  const bool is_worth_it = all && all != numberAt(cluster, "names");
  return fmt::format("{} of {} held{}", numberAt(cluster, "names") ? wholeAt(cluster, "names") : "unknown, how many",
                     wholeAt(cluster, "limit"),
                     is_worth_it ? fmt::format(", {} names in etcd", wholeAt(cluster, "names_in_etcd")) : "");
}

std::string mirrorText(const json& cluster) {
  const auto confirmed = numberAt(cluster, "confirmed_seconds_ago");
  if (!confirmed) return "never confirmed by etcd";
  return fmt::format("{}, confirmed {} ago", flagAt(cluster, "fresh") ? "fresh" : "stale", humanSeconds(*confirmed));
}

std::string storeText(const json& cluster) {
  const auto since = numberAt(cluster, "store_since");
  return fmt::format("{} for {}", flagAt(cluster, "store_connected") ? "connected" : "AWAY",
                     since ? humanSeconds(std::max(0.0, static_cast<double>(std::time(nullptr)) - *since)) : "?");
}

void addClusters(const json& said, std::vector<Row>* rows) {
  for (const json& cluster : arrayAt(said, "clusters")) {
    rows->push_back({"cluster", escaped(textAt(cluster, "pattern").value_or("-"))});
    const auto name = textAt(cluster, "name");
    if (name) {
      rows->push_back(
          {"  name", fmt::format("{}{}", escaped(withoutDot(*name)), flagAt(cluster, "drained") ? " (drained)" : "")});
      rows->push_back({"  id, token", fmt::format("{}, {}", wholeAt(cluster, "id"), wholeAt(cluster, "token"))});
      rows->push_back({"  lease", fmt::format("{} left of {}", secondsAt(cluster, "lease_left_seconds"),
                                              secondsAt(cluster, "lease_seconds"))});
    } else {
      rows->push_back({"  name", flagAt(cluster, "observes")   ? "none: this node only observes"
                                : flagAt(cluster, "had_name") ? "none: it was lost"
                                                              : "none yet"});
    }
    const json& addresses = arrayAt(cluster, "addresses");
    if (const auto sick = textAt(cluster, "sick"))
      rows->push_back({"  sick", escaped(*sick) + (flagAt(cluster, "out") ? "" : " (not taken out)")});
    const bool is_withheld = (flagAt(cluster, "drained") || flagAt(cluster, "out")) && !addresses.empty();
    rows->push_back({"  addresses", (is_withheld ? "withheld: " : "") + joined(addresses)});
    if (const auto networks = cluster.find("networks"); networks != cluster.end() && networks->is_object()) {
      for (const auto& [network, there] : networks->items())
        rows->push_back({"  in " + escaped(network), (is_withheld ? "withheld: " : "") + joined(there)});
    }
    if (const auto node = textAt(cluster, "node")) rows->push_back({"  node", escaped(*node)});
    rows->push_back({"  names", namesText(cluster)});
    rows->push_back({"  mirror", mirrorText(cluster)});
    if (const auto relay = textAt(cluster, "relay")) rows->push_back({"  through", "the relay at " + escaped(*relay)});
    rows->push_back({"  " + escaped(textAt(cluster, "store").value_or("etcd")),
                     fmt::format("{}: {}", storeText(cluster), joined(arrayAt(cluster, "endpoints")))});
    for (const json& unused : arrayAt(cluster, "unused_endpoints")) {
      rows->push_back({"  not used", fmt::format("{}: {}", escaped(textAt(unused, "endpoint").value_or("-")),
                                                 escaped(textAt(unused, "reason").value_or("-")))});
    }
    if (const auto target = textAt(cluster, "moves_to")) {
      const char* state = flagAt(cluster, "observes") ? "names of both are answered"
                          : flagAt(cluster, "moved")  ? "the name is there too"
                                                      : "the name is not there yet";
      rows->push_back({"  moves to", fmt::format("{}: {}{}", escaped(*target), state,
                                                 flagAt(cluster, "second_connected") ? "" : ", AWAY")});
    }
  }
}

void addQueries(const json& said, std::vector<Row>* rows) {
  const auto found = said.find("queries");
  if (found == said.end() || !found->is_object()) return;
  rows->push_back(
      {"queries",
       fmt::format("{}/s, p50 {}, p99 {} (last {})", humanRate(numberAt(*found, "rate").value_or(0)),
                   latencyAt(*found, "p50_seconds"), latencyAt(*found, "p99_seconds"), secondsAt(*found, "seconds"))});
}

void addCaches(const json& said, std::vector<Row>* rows) {
  for (const json& cache : arrayAt(said, "caches")) {
    const double hits = numberAt(cache, "hits").value_or(0);
    const double asked = hits + numberAt(cache, "misses").value_or(0);
    rows->push_back({"cache " + escaped(textAt(cache, "block").value_or("")),
                     fmt::format("{} entries, {}B, {} hits of {:.0f} queries", wholeAt(cache, "entries"),
                                 humanSize(numberAt(cache, "bytes").value_or(0)),
                                 asked > 0 ? humanShare(hits / asked) : "0 %", asked)});
  }
}

void addUpstreams(const json& said, std::vector<Row>* rows) {
  for (const json& upstream : arrayAt(said, "upstreams")) {
    rows->push_back({"upstream " + escaped(textAt(upstream, "block").value_or("")),
                     fmt::format("{} {}, round trip {}", escaped(textAt(upstream, "server").value_or("-")),
                                 flagAt(upstream, "up") ? "up" : "DOWN", latencyAt(upstream, "round_trip_seconds"))});
  }
}

std::vector<std::string> ownNames(const json& said, const std::optional<std::string>& pattern) {
  std::vector<std::string> names;
  for (const json& cluster : arrayAt(said, "clusters")) {
    if (pattern && textAt(cluster, "pattern") != *pattern) continue;
    if (const auto name = textAt(cluster, "name")) names.push_back(*name);
  }
  return names;
}

}  // namespace

std::string statusText(const json& said) {
  std::vector<Row> rows;
  rows.push_back({"idetcd", fmt::format("{}, process {}, up {}", escaped(textAt(said, "version").value_or("?")),
                                        wholeAt(said, "pid"), secondsAt(said, "uptime_seconds"))});
  const json& degraded = arrayAt(said, "degraded");
  rows.push_back({"ready", !flagAt(said, "ready") ? "NO" : degraded.empty() ? "yes" : "yes, but DEGRADED"});
  for (const json& missing : arrayAt(said, "not_ready")) {
    if (missing.is_string()) rows.push_back({"  missing", escaped(missing.get<std::string>())});
  }
  for (const json& reason : degraded) {
    if (reason.is_string()) rows.push_back({"  degraded", escaped(reason.get<std::string>())});
  }
  addClusters(said, &rows);
  addQueries(said, &rows);
  addCaches(said, &rows);
  addUpstreams(said, &rows);
  return table(rows);
}

CommandResult status(const Call& call) {
  const auto said = call.node.get("/v1/status");
  if (!said) return outcomeOf(said.error());
  return {.code = flagAt(*said, "ready") ? kGood : kNo,
          .out = call.wantsJson() ? toLine(*said) : statusText(*said),
          .err = {}};
}

CommandResult whoami(const Call& call) {
  const auto said = call.node.get("/v1/status");
  if (!said) return outcomeOf(said.error());
  const auto pattern = givenPattern(call.arguments);
  const json& clusters = arrayAt(*said, "clusters");
  if (pattern && std::none_of(clusters.begin(), clusters.end(),
                              [&](const json& each) { return textAt(each, "pattern") == *pattern; }))
    return outcomeOf(unknownPattern(*pattern, *said));
  const std::vector<std::string> names = ownNames(*said, pattern);
  if (call.wantsJson()) {
    json found = json::array();
    for (const std::string& name : names) found.push_back({{"name", name}, {"short", firstLabel(name)}});
    return {.code = names.empty() ? kNo : kGood, .out = toLine(found), .err = {}};
  }
  if (names.empty()) return {.code = kNo, .out = {}, .err = "this node has no name\n"};
  CommandResult outcome;
  for (const std::string& name : names)
    outcome.out += escaped(call.arguments.has("short") ? firstLabel(name) : withoutDot(name)) + '\n';
  return outcome;
}

}  // namespace idetcd::cli
