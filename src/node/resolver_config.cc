#include "node/resolver_config.h"

#include <sstream>

#include "base/file.h"
#include "base/text.h"

namespace idetcd::node {
namespace {

constexpr size_t kMaxBytes = 64 << 10;
constexpr int kMostDots = 15;  // glibc's RES_MAXNDOTS

void takeServer(const std::string& word, ResolverConfig& config) {
  const auto address = IpAddress::parse(std::string_view(word).substr(0, word.find('%')));
  if (address) config.servers.push_back(*address);
}

void takeSearch(std::istringstream& words, ResolverConfig& config) {
  config.search.clear();  // the last of several lines counts
  for (std::string word; words >> word;) {
    if (word.ends_with('.')) word.pop_back();
    if (!word.empty()) config.search.push_back(lowerCase(word));
  }
}

void takeOption(std::string_view word, ResolverConfig& config) {
  constexpr std::string_view kDots = "ndots:";
  if (!word.starts_with(kDots)) return;
  if (const auto dots = parseNumber<int>(word.substr(kDots.size()))) config.ndots = std::clamp(*dots, 0, kMostDots);
}

}  // namespace

ResolverConfig parseResolverConfig(std::string_view text) {
  ResolverConfig config;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string keyword;
    std::string word;
    words >> keyword;
    if (keyword == "nameserver" && words >> word) takeServer(word, config);
    if (keyword == "search" || keyword == "domain") takeSearch(words, config);
    if (keyword != "options") continue;
    while (words >> word) takeOption(word, config);
  }
  return config;
}

Result<ResolverConfig> readResolverConfig(const std::string& path) {
  const auto text = readFile(path, kMaxBytes);
  if (!text) return fail(fmt::format("{}: {}", path, text.error().message), text.error().code);
  return parseResolverConfig(*text);
}

}  // namespace idetcd::node
