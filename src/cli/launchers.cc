#include "cli/launchers.h"

#include "base/text.h"
#include "cli/text.h"

namespace idetcd::cli {
namespace {

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

Reply<size_t> ownIndex(const std::vector<HeldSlot>& slots) {
  const auto own = std::find_if(slots.begin(), slots.end(), [](const HeldSlot& slot) { return slot.own; });
  if (own == slots.end()) return notYet("this node has no name in the cluster, or is drained");
  return static_cast<size_t>(own - slots.begin());
}

nlohmann::json tensorflowConfig(const std::vector<HeldSlot>& slots, size_t own, const std::string& role, uint64_t port) {
  nlohmann::json addresses = nlohmann::json::array();
  for (const HeldSlot& slot : slots) addresses.push_back(fmt::format("{}:{}", withoutDot(slot.name), port));
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
